package consensus

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// failures counts the entries that Raft could not send.
type failures struct {
	hclog.Logger
	count atomic.Int32
}

func (f *failures) Error(text string, args ...any) {
	if text == "failed to appendEntries to" {
		f.count.Add(1)
	}
	f.Logger.Error(text, args...)
}

// TestBackAfterSilence: a follower that was away for some seconds has what it missed
// as soon as it is heard. Raft by itself lets it wait about as long again, up to ten
// seconds; with the leader it makes a majority all the while, which decides nothing.
func TestBackAfterSilence(t *testing.T) {
	t.Parallel()
	const cured, raw, many = 1, 2, 10 // after ten failures Raft waits for 2.56 s
	for range 5 {
		failed := make(map[string]*failures) // of the shard that is not cured, by the node that leads it
		w := newTown(t, 3, withTune(func(g *Group) {
			g.noCures.behind.Store(true)
			if g.ID.Shard == raw {
				g.noCures.hushed.Store(true)
				failed[g.name] = &failures{Logger: g.hlog}
				g.hlog = failed[g.name]
			}
		}))
		w.open(cured, three(), three()...)
		w.open(raw, three(), three()...)
		led := w.leader(raw)
		away := w.nodes[slices.DeleteFunc(others(led.name), func(n string) bool { return n == w.leader(cured).name })[0]]
		w.agree(raw, three()...)
		terms := [2]State{w.leader(cured).groups.Group(cured).State(), led.groups.Group(raw).State()}
		away.kill()
		w.propose(cured, "missed", others(away.name)...)
		w.propose(raw, "missed", others(away.name)...)
		w.eventually(func() string {
			if n := failed[led.name].count.Load(); n < many && led.groups.Group(raw).State().Led {
				return fmt.Sprintf("it could not be sent entries %d times yet", n)
			}
			return ""
		})
		away.up()
		away.open(cured, nil)
		away.open(raw, nil)
		w.agree(cured, three()...)
		late := !slices.Contains(away.diary(raw).all(), "missed")
		stood := terms == [2]State{w.leader(cured).groups.Group(cured).State(), led.groups.Group(raw).State()}
		w.end()
		switch {
		case late && stood:
			return
		case stood:
			t.Error("a follower that Raft was to keep waiting was as soon up to date as the other: is this cure still needed?")
		}
	}
	t.Error("five times the leaders were others at the end")
}
