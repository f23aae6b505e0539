package shards

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// shiftIn is shift for any pool.
func (w *world) shiftIn(pool, via, session, to string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if b, err := w.node(via).router.Move(ctx, pool, []byte(session), to); err != nil || b.Backend != to {
		w.t.Fatalf("move of %s to %s: %+v, %v", session, to, b, err)
	}
}

// TestAStreamWaitsOnce: what a stream waited for its turns before is taken off what
// the next may wait, and who is out of time goes where the session was, or fails
// where its pool wants that, at once.
func TestAStreamWaitsOnce(t *testing.T) {
	for pool, strict := range map[string]bool{"llm": true, "chat": false} {
		bubble(t, func(t *testing.T, w *world) {
			w.at("d", pool, "s", 1)
			w.at("e", pool, "s", 1)
			w.graced()
			w.set(func() { w.stalled = true })
			ctx, cancel := context.WithCancel(context.Background())
			moved := make(chan struct{})
			go func() {
				defer close(moved)
				_, _ = w.node("e").router.Move(ctx, pool, []byte("s"), pool+"-b2")
			}()
			w.until("d holds the session", func() bool {
				p := w.node("d").router.sections[0].stripe(w.key(pool, "s"))
				p.mu.Lock()
				defer p.mu.Unlock()
				return p.isHeld(w.key(pool, "s"))
			})
			for _, waited := range []time.Duration{0, 700 * time.Millisecond, time.Second, time.Minute} {
				began := w.now()
				turn, err := w.node("d").router.Turn(t.Context(), pool, []byte("s"), waited, func() string { return "" })
				took, left := w.now()-began, max(0, heldTime-waited)
				if took > left+appliedTime || took < left-heldRest {
					t.Errorf("%s: after %v it waited %v, want %v", pool, waited, took, left)
				}
				if strict != (err != nil) {
					t.Errorf("%s: after %v: %v", pool, waited, err)
				}
				if err == nil {
					if h := turn.Home(); h.Backend != pool+"-b1" || !h.Stale {
						t.Errorf("%s: after %v: %+v", pool, waited, h)
					}
					turn.End()
				}
			}
			w.set(func() { w.stalled = false })
			w.until("the next is there in time", func() bool {
				turn, err := w.node("d").router.Turn(t.Context(), pool, []byte("s"), time.Minute, func() string { return "" })
				if err != nil {
					return false
				}
				defer turn.End()
				return turn.Home().Backend == pool+"-b2" && turn.Look() == nil
			})
			cancel()
			<-moved
		})
	}
}

// TestStaleAtItsEnd: a turn beside which another may have run elsewhere says so when
// it ends, and is counted, though it began as any other; and no other turn is.
func TestStaleAtItsEnd(t *testing.T) {
	counted := func(w *world) (all Counts) {
		for _, node := range w.names {
			c := w.node(node).router.Counts()
			all.Stale += c.Stale
			all.Rebound += c.Rebound
			all.Outlived += c.Outlived
			all.Detours += c.Detours
		}
		return all
	}
	for _, tt := range []struct {
		name string
		pool string
		tell func(w *world, turn *Turn) (stale bool)
		want Counts
	}{
		{"nothing happens", "chat", func(w *world, turn *Turn) bool {
			w.wait(time.Minute)
			return turn.End()
		}, Counts{}},
		{"another leader comes in time", "chat", func(w *world, turn *Turn) bool {
			w.lead("b")
			w.wait(time.Minute)
			return turn.End()
		}, Counts{}},
		{"cut off, and the session moves", "chat", func(w *world, turn *Turn) bool {
			w.isolate("d", true)
			w.wait(2 * lease)
			w.shiftIn("chat", "e", "s", "chat-b2")
			return turn.End()
		}, Counts{Outlived: 1}},
		{"cut off and back before its end", "chat", func(w *world, turn *Turn) bool {
			w.isolate("d", true)
			w.wait(2 * lease)
			w.isolate("d", false)
			w.until("d has a lease again", func() bool { w.starts("d", "s", ""); return w.leased("d") })
			return turn.End()
		}, Counts{Outlived: 1}},
		{"another node bound it elsewhere at once", "chat", func(w *world, turn *Turn) bool {
			other := w.must("e", "chat", "s", 1)
			if h, err := other.Rebind(context.Background(), other.Home(), "refused", func() string { return "chat-b2" }); err != nil || h.Backend != "chat-b2" {
				w.t.Fatalf("rebind: %+v, %v", h, err)
			}
			w.wait(100 * time.Millisecond)
			if err := other.Look(); err != nil || !other.End() {
				w.t.Errorf("the turn that had it bound: look %v, not stale", err)
			}
			return turn.End()
		}, Counts{Outlived: 1, Rebound: 1}},
		{"its backend was declared dead", "llm", func(w *world, turn *Turn) bool {
			w.set(func() { w.leaving, w.bad["llm-b1"] = []Leaver{{"llm", "llm-b1", true}}, true })
			w.wait(2 * time.Second)
			return turn.End()
		}, Counts{Outlived: 1}},
		{"its node was declared dead", "llm", func(w *world, turn *Turn) bool {
			w.pause("d")
			w.set(func() { w.dead["d"] = true })
			w.forgotten("a", "d")
			w.shiftIn("llm", "e", "s", "llm-b2")
			w.resume("d")
			return turn.End()
		}, Counts{Outlived: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				turn := w.must("d", tt.pool, "s", 1)
				w.at("e", tt.pool, "s", 1)
				if err := turn.Look(); err != nil {
					t.Fatal(err)
				}
				unsent := w.must("d", tt.pool, "s", 1)
				w.graced()
				if stale := tt.tell(w, turn); stale != (tt.want != Counts{}) {
					t.Errorf("stale: %v", stale)
				}
				if unsent.End() {
					t.Error("a turn that never wrote is stale")
				}
				if got := counted(w); got != tt.want {
					t.Errorf("counted %+v, want %+v", got, tt.want)
				}
			})
		})
	}
}

// TestStoppedBetweenLookAndWrite is the exception that nobody but the backend can
// see: a process that is stopped right after its last look writes to the old backend
// when it goes on. What it writes names the older epoch, and the turn is counted.
func TestStoppedBetweenLookAndWrite(t *testing.T) {
	for _, pause := range []time.Duration{2500 * time.Millisecond, 10 * time.Second} {
		bubble(t, func(t *testing.T, w *world) {
			turn := w.must("d", "llm", "s", 1)
			w.at("e", "llm", "s", 1)
			w.graced()
			if err := turn.Look(); err != nil {
				t.Fatal(err)
			}
			w.pause("d")
			w.set(func() { w.dead["d"] = true })
			w.wait(pause)
			w.shiftIn("llm", "e", "s", "llm-b2")
			now := w.at("e", "llm", "s", 1)
			w.resume("d")
			if h := turn.Home(); h.Backend == now.Backend || h.Epoch >= now.Epoch {
				t.Errorf("it writes by %+v, and the session is at %+v: the backend could not tell", h, now)
			}
			if !turn.End() || w.node("d").router.Counts().Outlived != 1 {
				t.Error("the turn was not counted")
			}
			if w.starts("d", "s", "llm-b1") {
				t.Error("another turn starts on the old backend")
			}
		})
	}
}

// lives gives sessions another TTL.
func (w *world) lives(ttl time.Duration) {
	w.set(func() {
		for pool, rule := range w.rules {
			rule.TTL = ttl
			w.rules[pool] = rule
		}
	})
}

// TestClockJump: a clock that jumps by a day, a leader's or another node's, lets no
// session go and moves none, though it is no proof against the time that passes
// after.
func TestClockJump(t *testing.T) {
	for _, pool := range []string{"llm", "chat"} {
		for _, node := range []string{"a", "d"} {
			bubble(t, func(t *testing.T, w *world) {
				w.lives(10 * time.Minute)
				w.populate(pool, 20, 4)
				w.graced()
				before := w.bindings(pool, 20)
				w.set(func() { w.ahead[node] = 24 * time.Hour })
				for i := range 10 { // at once, too; the others rest
					turn, err := w.turn(w.names[i%5], pool, fmt.Sprint(i), 1)
					if err != nil {
						continue // strict, and nobody leads for a moment
					}
					turn.End()
				}
				w.wait(20 * time.Second)
				if after := w.bindings(pool, 20); !slices.Equal(before, after) {
					t.Errorf("%s, clock of %s: they are\n%v, were\n%v", pool, node, after, before)
				}
				for i := range 20 {
					if h := w.at(node, pool, fmt.Sprint(i), 1); h.Epoch != before[i].Epoch || h.Backend != before[i].Backend {
						t.Errorf("%s, clock of %s: session %d is at %+v, was %+v", pool, node, i, h, before[i])
					}
				}
				w.wait(21 * time.Minute)
				if n := w.node("a").machine.Len(); n != 0 {
					t.Errorf("%s, clock of %s: two TTLs later %d sessions are left", pool, node, n)
				}
			})
		}
	}
}

// TestRemovalIsQuick: a backend's sessions have moved a second after it was removed,
// as seen from every node.
func TestRemovalIsQuick(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const sessions = 1000
		w.populate("chat", sessions, 4)
		w.graced()
		before := w.bindings("chat", sessions)
		w.set(func() {
			s := &w.sets[1]
			s.Revision, s.Backends = 2, slices.Clone(s.Backends[1:])
			w.bad["chat-b1"] = true
		})
		began := w.now()
		w.until("all have moved", func() bool {
			return !slices.ContainsFunc(w.bindings("chat", sessions), func(b Binding) bool { return b.Backend == "chat-b1" })
		})
		w.wait(10 * time.Millisecond) // the feeds
		if took := w.now() - began; took > 700*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		for i, b := range w.bindings("chat", sessions) {
			if moved := i%4 == 0; moved != (b.Epoch == before[i].Epoch+1) {
				t.Errorf("session %d is %+v, was %+v", i, b, before[i])
			}
			for _, node := range w.names {
				if h := w.at(node, "chat", fmt.Sprint(i), 1); h.Backend != b.Backend || h.Epoch != b.Epoch {
					t.Fatalf("session %d on %s is at %+v, and bound as %+v", i, node, h, b)
				}
			}
		}
	})
}
