package promise_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/proxy"
)

// TestStrictOverALeadersDeath: the node that leads a session's shard dies, under turns
// at the others. They get no_leader and nothing else, for 4.5 s at most, and the same
// backend before and after.
func TestStrictOverALeadersDeath(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3, func(cfg *node.Config) {
		sticky(cfg, func(c *proxy.SessionConfig) { c.Consistency = "strict" })
	}, nil)
	const sessions = 24
	homes := s.populate(t, sessions, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var refused, last atomic.Int64
	var all sync.WaitGroup
	s.Kill(0) // it leads one shard of four at least
	died := time.Now()
	for i := range sessions {
		all.Go(func() {
			for n := 1; ctx.Err() == nil; n++ {
				home := ""
				err := turn(t.Context(), s.client, s.Node(1+n%2).URL(), fmt.Sprint("s", i), "for=0s", func(b string) { home = b })
				switch {
				case isLate(err) && strings.HasSuffix(err.Error(), "503"):
					refused.Add(1)
					last.Store(int64(time.Since(died)))
				case err != nil:
					t.Errorf("s%d: %v", i, err)
				case home != homes[i]:
					t.Errorf("s%d is at %s, and was at %s", i, home, homes[i])
				}
				pauseFor(ctx, 50*time.Millisecond)
			}
		})
	}
	quiet := func() string {
		if d := time.Since(died); d < 6*time.Second || d-time.Duration(last.Load()) < 2*time.Second {
			return "turns are still refused"
		}
		return ""
	}
	eventually(t, settleTime, quiet)
	cancel()
	all.Wait()
	took := time.Duration(last.Load()).Round(time.Millisecond)
	t.Logf("%d turns were refused, the last one %v after the death", refused.Load(), took)
	if limit := 4500 * time.Millisecond; *full && took > limit || took > 5*limit {
		t.Errorf("turns were refused for %v", took)
	}
}

// TestShortTTL: a session that had no turn for its TTL is bound anew, in a higher
// epoch; one that has turns is not.
func TestShortTTL(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, func(cfg *node.Config) {
		sticky(cfg, func(c *proxy.SessionConfig) { c.TTL = 50 * time.Millisecond })
	}, nil)
	epoch := 0
	eventually(t, patience, func() string { // a new leader lets nobody go for a while
		s.at(t, 0, "s")
		pauseFor(t.Context(), 60*time.Millisecond)
		s.at(t, 0, "s")
		s.mu.Lock()
		defer s.mu.Unlock()
		all := s.ledger.streams["s"]
		before, after := all[len(all)-2], all[len(all)-1]
		if epoch = after.epoch; before.epoch == 0 || after.epoch <= before.epoch { // 0: nobody had agreed yet
			return fmt.Sprintf("after a pause of %v it is in epoch %d, and was in %d", after.began.Sub(before.end), after.epoch, before.epoch)
		}
		return ""
	})
	if epoch < 2 {
		t.Errorf("epoch %d", epoch)
	}
}

// TestParallelTurnsDuringMoves: turns of one session through all nodes, side by side,
// while it is moved again and again: none fails, and none waits for longer than it may.
func TestParallelTurnsDuringMoves(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3, func(*node.Config) {}, nil)
	s.at(t, 0, "s")
	ctx, cancel := context.WithTimeout(t.Context(), lasts()/3+patience)
	defer cancel()
	began := time.Now()
	var longest, turns, moves atomic.Int64
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for ctx.Err() == nil {
				from := time.Now()
				if err := turn(t.Context(), s.client, s.Node(i%3).URL(), "s", "for=0s", nil); err != nil {
					t.Errorf("a turn at node %d: %v", i%3, err)
				}
				if took := int64(time.Since(from)); took > longest.Load() {
					longest.Store(took)
				}
				turns.Add(1)
				pauseFor(ctx, time.Duration(50+rand.IntN(300))*time.Millisecond)
			}
		})
	}
	shows := func() bool { return moves.Load() > 0 && turns.Load() >= 20 }
	for n := 0; ctx.Err() == nil && (time.Since(began) < lasts()/3 || !shows()); n++ {
		before := s.session(t, 0, "s")
		postMove(ctx, s.Node(n%3).AdminURL(), "s", map[string]string{"b1": "b2", "b2": "b3", "b3": "b1"}[before.Backend])
		if s.session(t, 0, "s").Epoch > before.Epoch {
			moves.Add(1)
		}
	}
	cancel()
	all.Wait()
	out := s.sum(t, 3, "starling_held_turns_total", `result="timeout"`)
	took := time.Duration(longest.Load()).Round(time.Millisecond)
	t.Logf("%d turns and %d moves; the longest turn took %v; %v turns were held for as long as they may", turns.Load(), moves.Load(), took, out)
	if limit := time.Second; *full && took > limit || took > 30*limit {
		t.Errorf("a turn took %v", took)
	}
	if !shows() {
		t.Errorf("%d turns and %d moves show little", turns.Load(), moves.Load())
	}
}

// late holds one write to a backend back, once it is armed: a process that is stopped
// between its last look and its write.
type late struct {
	armed   atomic.Bool
	waits   chan struct{} // closed when a write waits
	release chan struct{}
}

func (l *late) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &lateConn{c, l}, nil
}

type lateConn struct {
	net.Conn
	late *late
}

func (c *lateConn) Write(b []byte) (int, error) {
	if c.late.armed.CompareAndSwap(true, false) {
		close(c.late.waits)
		<-c.late.release
	}
	return c.Conn.Write(b)
}

// TestStoppedBeforeTheWrite provokes the exception that nobody but a backend can see.
// A turn has looked for the last time, and its node stops before the first byte goes
// out; its lease is over (in full, under strict, its death is agreed on, which takes a
// minute), and the session moves. The byte comes to the old backend all the same: in an
// older epoch than the new home's, and the turn is counted. With the lease back, no
// other turn of that node starts there.
func TestStoppedBeforeTheWrite(t *testing.T) {
	t.Parallel()
	l := &late{waits: make(chan struct{}), release: make(chan struct{})}
	s := newStage(t, 3, func(cfg *node.Config) {
		sticky(cfg, func(c *proxy.SessionConfig) {
			if *full {
				c.Consistency = "strict"
			}
		})
	}, l.dial)
	s.at(t, 0, "s")
	s.at(t, 1, "s")
	old := s.session(t, 0, "s").Backend
	const marked = 7 // no node's number
	l.armed.Store(true)
	stopped := make(chan error, 1)
	go func() {
		stopped <- turn(t.Context(), s.client, s.Node(0).URL(), "s", fmt.Sprint("for=700ms&node=", marked), nil)
	}()
	select {
	case <-l.waits:
	case <-time.After(patience):
		t.Fatal("no turn was about to write")
	}
	s.Partition([]int{0})
	to := map[string]string{"b1": "b2", "b2": "b3", "b3": "b1"}[old]
	eventually(t, 3*settleTime, func() string {
		postMove(t.Context(), s.Node(1).AdminURL(), "s", to)
		if v := s.session(t, 1, "s"); v.Backend != to {
			return fmt.Sprintf("it is still %+v", v)
		}
		return ""
	})
	long := make(chan error, 1)
	go func() { long <- turn(t.Context(), s.client, s.Node(1).URL(), "s", "for=10m&node=1", nil) }()
	eventually(t, patience, func() string {
		if s.running() == "" {
			return "no stream runs at the new home"
		}
		return ""
	})
	close(l.release)
	if err := <-stopped; err != nil {
		t.Errorf("the turn that was stopped: %v", err)
	}
	s.Heal()
	eventually(t, patience, func() string {
		home := s.at(t, 0, "s")
		if home == to {
			return ""
		}
		if *full {
			t.Errorf("the next turn of that node is at %s, not at %s", home, to)
		}
		return "the node goes by what it knew last: it can ask nobody yet" // available
	})
	close(s.release)
	if err := <-long; err != nil {
		t.Error(err)
	}
	eventually(t, patience, s.running)
	all, _ := s.overlaps()
	provoked := slices.DeleteFunc(slices.Clone(all), func(o overlap) bool { return o.first.node != marked && o.second.node != marked })
	if len(provoked) != 1 || *full && len(all) != 1 { // available may guess once more, as above
		t.Fatalf("%d overlaps, want the one that was provoked: %v", len(all), all)
	}
	for _, o := range all {
		eventually(t, patience, func() string {
			if said := logged(t, s.logs); !said[o.first.id].Stale && !said[o.second.id].Stale {
				return fmt.Sprintf("no log says why two ran: %v", o)
			}
			return ""
		})
	}
	older, newer := provoked[0].first, provoked[0].second
	if older.backend != old {
		older, newer = newer, older
	}
	if older.epoch >= newer.epoch || older.epoch == 0 {
		t.Errorf("a backend could not tell: %v", provoked[0])
	}
	eventually(t, patience, func() string {
		if said := logged(t, s.logs)[older.id]; !said.Stale {
			return fmt.Sprintf("the log does not say that it was stale: %+v", said)
		}
		return ""
	})
	if n := metric(t, s.Node(0).AdminURL(), "starling_stale_turns_total", `reason="outlived"`); n < 1 {
		t.Error("no turn is counted")
	}
}
