//go:build unix

package promise_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestOneBackendAtATime: three nodes in processes of their own are stopped and go on
// (SIGSTOP), some for longer than a lease and leaders too, and are killed and started
// again, while sessions take turns through all of them and are moved. Under strict no
// two streams of a session are at two backends at once but where one's node was away;
// under available each such pair was counted by a node.
func TestOneBackendAtATime(t *testing.T) {
	for _, consistency := range []string{"strict", "available"} {
		t.Run(consistency, func(t *testing.T) {
			t.Parallel()
			oneAtATime(t, newTheatre(t, 3, consistency), consistency == "strict")
		})
	}
}

func oneAtATime(t *testing.T, h *theatre, strict bool) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	ctx := h.until(t, lasts(), 60)
	browser := &http.Client{Timeout: 8 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var all sync.WaitGroup
	var answered, refused atomic.Int64
	const sessions = 8
	for i := range 2 * sessions {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for ctx.Err() == nil {
				n := r.IntN(len(h.nodes))
				length := time.Duration(50+r.IntN(300)) * time.Millisecond
				if r.IntN(3) == 0 {
					length *= 12 // longer than a close may take to be noticed
				}
				if err := turn(ctx, browser, h.nodes[n].at(), fmt.Sprint("s", i%sessions), fmt.Sprintf("for=%v&node=%d", length, n), nil); err == nil {
					answered.Add(1)
				} else {
					refused.Add(1)
				}
				pauseFor(ctx, time.Duration(r.IntN(1500))*time.Millisecond)
			}
		})
	}
	all.Go(func() { // an operator
		r := rand.New(rand.NewPCG(seed, 100))
		for ctx.Err() == nil {
			h.nodes[r.IntN(3)].move(ctx, fmt.Sprint("s", r.IntN(sessions)), fmt.Sprint("b", 1+r.IntN(3)), time.Second)
			pauseFor(ctx, time.Duration(r.IntN(200))*time.Millisecond)
		}
	})
	h.disturb(t, ctx, rand.New(rand.NewPCG(seed, 200)))
	all.Wait()
	eventually(t, patience, h.running)
	h.verdict(t, seed, strict)
	t.Logf("seed %d: %d streams, %d turns answered whole, %d not", seed, h.total, answered.Load(), refused.Load())
}

// disturb stops nodes and lets them go on, for up to 10 s now and then, and kills a
// leader now and then, until ctx ends; all go on then.
func (h *theatre) disturb(t *testing.T, ctx context.Context, r *rand.Rand) {
	for i := 1; ctx.Err() == nil; i++ {
		p := h.nodes[r.IntN(len(h.nodes))]
		if r.IntN(3) == 0 {
			p = h.leader(t, 1+r.IntN(4))
		}
		switch {
		case i%4 == 0:
			p.kill(t, ctx, time.Duration(r.IntN(2000))*time.Millisecond)
		case i%5 == 0 && *full:
			p.pause(t, ctx, 10*time.Second)
		default:
			p.pause(t, ctx, time.Duration(200+r.IntN(3300))*time.Millisecond)
		}
		pauseFor(ctx, time.Duration(r.IntN(2000))*time.Millisecond)
	}
}

// verdict ends the nodes, so that their logs are whole, and judges.
func (h *theatre) verdict(t *testing.T, seed uint64, strict bool) {
	counted, alive := 0.0, make(map[int]bool)
	for i, p := range h.nodes {
		if len(p.killed) == 0 {
			counted += metric(t, p.asked().Address(), "starling_stale_turns_total")
			alive[i] = true
		}
	}
	var lines map[string]line
	eventually(t, patience, func() string { // written some time after each stream's end
		lines = logged(t, h.logs)
		for session, streams := range h.streams {
			for _, s := range streams {
				if _, ok := lines[s.id]; !ok && !h.nodes[s.node].away(s) {
					return fmt.Sprintf("no log has the stream of %s in epoch %d at %s", session, s.epoch, s.backend)
				}
			}
		}
		return ""
	})
	matched := h.judge(t, lines, strict, func(s *span) bool { return h.nodes[s.node].away(s) })
	stale := 0.0
	for _, streams := range h.streams {
		for _, s := range streams {
			if lines[s.id].Stale && lines[s.id].Epoch > 0 && alive[s.node] {
				stale++
			}
		}
	}
	if stale > counted {
		t.Errorf("seed %d: the logs have %v stale streams with an epoch, and %v are counted", seed, stale, counted)
	}
	_, moved := h.overlaps()
	t.Logf("seed %d: %d overlaps, each of them counted; %v stale streams counted; sessions were seen at %d more backends than one each", seed, matched, counted, moved)
	if h.total < 60 || moved == 0 {
		t.Errorf("seed %d: %d streams and %d moves show little", seed, h.total, moved)
	}
}

// TestPausedInAMove: a node is stopped in the middle of a move, for longer than a
// lease or until its death is agreed on. Turns wait at it all the time, and none of
// them starts at the old backend once the session was seen at another.
func TestPausedInAMove(t *testing.T) {
	t.Parallel()
	h := newTheatre(t, 3, "strict")
	const sessions = 6
	browser := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	for i, pause := range []time.Duration{2500 * time.Millisecond, 10 * time.Second} {
		paused, other := h.nodes[i], h.nodes[2]
		name := func(s int) string { return fmt.Sprintf("p%d-%d", i, s) }
		old := make([]string, sessions)
		for s := range sessions {
			for n, p := range []*process{paused, other} {
				eventually(t, patience, func() string {
					err := turn(t.Context(), browser, p.at(), name(s), fmt.Sprintf("for=0s&node=%d", i+n*(2-i)), func(b string) { old[s] = b })
					if err != nil {
						return err.Error()
					}
					return ""
				})
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), pause+4*time.Second+patience)
		var all sync.WaitGroup
		for s := range sessions {
			to := map[string]string{"b1": "b2", "b2": "b3", "b3": "b1"}[old[s]]
			all.Go(func() {
				for ctx.Err() == nil {
					other.move(ctx, name(s), to, pause+4*time.Second)
					pauseFor(ctx, time.Second)
				}
			})
			for n, p := range []*process{paused, other} {
				all.Go(func() {
					for ctx.Err() == nil {
						_ = turn(ctx, browser, p.at(), name(s), fmt.Sprintf("for=30ms&node=%d", i+n*(2-i)), nil) // strict: it may be refused
						pauseFor(ctx, 20*time.Millisecond)
					}
				})
			}
		}
		moves := func() (n int) {
			for s := range sessions {
				n += h.neverBack(t, name(s), old[s], pause)
			}
			return n
		}
		paused.pause(t, ctx, pause)
		pauseFor(ctx, 4*time.Second)
		for ctx.Err() == nil && moves() == 0 { // a busy machine takes longer
			pauseFor(ctx, 100*time.Millisecond)
		}
		cancel()
		all.Wait()
		eventually(t, patience, h.running)
		moved := moves()
		if t.Logf("stopped for %v: %d of %d sessions have moved", pause, moved, sessions); moved == 0 {
			t.Errorf("stopped for %v: none has moved", pause)
		}
	}
}

// neverBack says whether a session was seen at another backend, and wants no stream to
// have begun at the old one after.
func (l *ledger) neverBack(t *testing.T, session, old string, pause time.Duration) (moved int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.streams[session] {
		if s.backend != old {
			moved = 1
		} else if moved > 0 {
			t.Errorf("stopped for %v: stream %d of %s began at %s, in epoch %d, after one at another backend", pause, i, session, old, s.epoch)
		}
	}
	return moved
}
