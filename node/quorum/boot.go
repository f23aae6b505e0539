package quorum

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/starling-lb/starling/shards/meta"
)

// bootFile counts the starts of the node: leaders tell by it which of two lives is
// over.
const bootFile = "sessions-boot"

// nextBoot returns a number that is higher than at the last start. A file that is
// lost costs nothing, unless the clock has been put back meanwhile.
func nextBoot(dir string, now time.Time) (uint64, error) {
	path := filepath.Join(dir, bootFile)
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("count the node's starts: %w", err)
	}
	last, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64) // what cannot be read is as good as lost
	next := max(last+1, uint64(now.Unix()))
	if err := os.WriteFile(path+".new", []byte(strconv.FormatUint(next, 10)+"\n"), 0o600); err != nil {
		return 0, fmt.Errorf("count the node's starts: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return 0, fmt.Errorf("count the node's starts: %w", err)
	}
	return next, nil
}

const (
	backTime  = 500 * time.Millisecond // for others to be met at a start
	backTimes = 4                      // as long, where shard 0 is to begin again here unless others say that it has
	backLook  = 10 * time.Millisecond
)

// lookBack has the others that run say whether this node's directory is an older
// copy. It waits for them a moment only: if all start at once, nobody knows. Where
// shard 0 is to begin again it waits for all: any of them may know better.
func (q *Quorum) lookBack(ctx context.Context, m *meta.Map) {
	others := 0
	for id, n := range m.Nodes {
		if id != q.o.Self.ID && n.State != meta.Removed {
			others++
		}
	}
	if q.o.Around == nil || others == 0 {
		return
	}
	most, met := backTime, func() bool { return len(q.others()) > 0 }
	if q.keeper.Recovering() {
		most, met = backTimes*backTime, func() bool { return q.company() >= others }
	}
	tick := time.NewTicker(backLook)
	defer tick.Stop()
	over := time.After(most)
	for waits := true; waits && !met(); {
		select {
		case <-tick.C:
		case <-over:
			waits = false
		case <-ctx.Done():
			return
		}
	}
	q.keeper.LookBack(ctx)
}

// company is how many other nodes of this cluster live and can be asked, also those
// that host nothing.
func (q *Quorum) company() (n int) {
	for _, p := range q.peers() {
		if p.ID != q.o.Self.ID && p.Alive && p.RPC != "" && p.Cluster == q.Cluster() {
			n++
		}
	}
	return n
}
