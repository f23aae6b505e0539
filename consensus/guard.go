package consensus

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// sickness is for how long after a write that failed a replica does not ask to
// lead: with a bad disk it would win, fail and step down, over and over.
const sickness = 5 * time.Second

// guard stands between Raft and the logs. Raft panics, and takes the process
// along, when it cannot save its term or read its log. Here the goroutine ends
// instead, with its deferred calls and without an answer to anybody, and the
// life is told to end.
type guard struct {
	Logs
	broken func(cause) // never waits

	writing atomic.Int64 // since when Raft's main goroutine waits for a write; 0: it does not
	failed  atomic.Int64 // when a write last failed; 0: never
	cut     atomic.Bool  // the end of the log was removed, and nothing was written since

	tail atomic.Pointer[raft.Log] // the last entry, if it is known and small: a leader that has nothing to send reads it twice a second for each follower
}

const tailMost = 4 << 10 // bytes of it

// pending is how long the write has taken that Raft waits for now.
func (g *guard) pending() time.Duration {
	if since := g.writing.Load(); since != 0 {
		return now() - time.Duration(since)
	}
	return 0
}

// sick tells whether this replica had better not lead.
func (g *guard) sick(stall time.Duration) bool {
	at := g.failed.Load()
	return g.pending() > stall || at != 0 && now()-time.Duration(at) < sickness
}

func (g *guard) begin() { g.writing.Store(int64(now())) }
func (g *guard) end()   { g.writing.Store(0) }

// die ends the calling goroutine, which is one of Raft's.
func (g *guard) die(what string, err error) {
	g.broken(cause{kind: parked, err: fmt.Errorf("%s: %w", what, err)})
	runtime.Goexit()
}

// StoreLogs hands errors on: Raft steps down, or tells the leader.
func (g *guard) StoreLogs(logs []*raft.Log) error {
	g.begin()
	defer g.end()
	err := g.Logs.StoreLogs(logs)
	if err == nil {
		g.cut.Store(false)
		g.remember(logs)
		return nil
	}
	g.tail.Store(nil)
	g.failed.Store(int64(now()))
	if g.cut.Load() { // Raft still counts on what it removed before
		g.broken(cause{kind: renewed, err: fmt.Errorf("write after a removal: %w", err)})
	}
	return err
}

func (g *guard) remember(logs []*raft.Log) {
	if len(logs) == 0 {
		return
	}
	last := *logs[len(logs)-1] // Raft goes on to use its own
	if len(last.Data)+len(last.Extensions) > tailMost {
		g.tail.Store(nil)
		return
	}
	g.tail.Store(&last)
}

func (g *guard) StoreLog(log *raft.Log) error { return g.StoreLogs([]*raft.Log{log}) }

// DeleteRange is called by Raft's main goroutine for an end, and by the one for
// snapshots for a beginning, which nobody waits for.
func (g *guard) DeleteRange(min, max uint64) error {
	last, err := g.Logs.LastIndex()
	if err == nil && max >= last {
		g.begin()
		defer g.end()
		g.cut.Store(true)
		g.tail.Store(nil)
	}
	return g.Logs.DeleteRange(min, max)
}

// GetLog fails only for an entry that is not in the log. One that should be is
// as bad as one that cannot be read.
func (g *guard) GetLog(index uint64, log *raft.Log) error {
	if tail := g.tail.Load(); tail != nil && tail.Index == index {
		*log = *tail
		return nil
	}
	err := g.Logs.GetLog(index, log)
	if err == nil {
		return nil
	}
	if errors.Is(err, raft.ErrLogNotFound) && !g.within(index) {
		return raft.ErrLogNotFound // as it is: Raft compares
	}
	g.die(fmt.Sprintf("read of entry %d", index), err)
	return err
}

func (g *guard) within(index uint64) bool {
	first, err1 := g.Logs.FirstIndex()
	last, err2 := g.Logs.LastIndex()
	return err1 == nil && err2 == nil && first != 0 && first <= index && index <= last
}

func (g *guard) Set(key, value []byte) error {
	g.begin()
	defer g.end()
	if err := g.Logs.Set(key, value); err != nil {
		g.die("save of the vote", err)
	}
	return nil
}

func (g *guard) SetUint64(key []byte, value uint64) error {
	g.begin()
	defer g.end()
	if err := g.Logs.SetUint64(key, value); err != nil {
		g.die("save of the term", err)
	}
	return nil
}

// IsMonotonic is what the logs say: a part that is missing is an error to them.
func (g *guard) IsMonotonic() bool {
	m, ok := g.Logs.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}
