package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// bindings are what stands at the leader, by session's number.
func (w *world) bindings(pool string, n int) (all []Binding) {
	var leader string
	w.get(func() { leader = w.leader })
	for i := range n {
		b, _ := w.node(leader).machine.Get(w.key(pool, fmt.Sprint(i)))
		all = append(all, b)
	}
	return all
}

// populate binds sessions 0 to n-1, each asked through another node, over the
// pool's first backends.
func (w *world) populate(pool string, n, backends int) {
	for i := range n {
		w.at(w.names[i%len(w.names)], pool, fmt.Sprint(i), 1+i%backends)
	}
}

// TestTTL: a session that had no turn for its TTL is another one afterwards, with a
// higher epoch; one that had is not.
func TestTTL(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set(func() { w.rules["llm"] = Rule{TTL: 50 * time.Millisecond, Wait: 250 * time.Millisecond, Strict: true} })
		w.at("d", "llm", "s", 1)
		w.graced()
		w.at("d", "llm", "s", 1) // perhaps anew
		first := w.at("d", "llm", "s", 1)
		for range 20 {
			w.wait(20 * time.Millisecond)
			if h := w.at("d", "llm", "s", 2); h.Epoch != first.Epoch || h.Backend != first.Backend {
				t.Fatalf("in use: %+v after %+v", h, first)
			}
		}
		w.wait(60 * time.Millisecond)
		if h := w.at("d", "llm", "s", 2); h.Epoch <= first.Epoch || h.Backend != "llm-b2" || h.Lookup != LookupLost {
			t.Errorf("after its TTL: %+v after %+v", h, first)
		}
	})
}

// TestExpiry: what nobody uses is let go; a long turn keeps its session; and a new
// leader, whose timers start afresh, lets nothing go early.
func TestExpiry(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const ttl = 10 * time.Second
		w.set(func() { w.rules["llm"] = Rule{TTL: ttl, Wait: 250 * time.Millisecond, Strict: true} })
		long := w.must("d", "llm", "long", 1)
		w.at("e", "llm", "short", 1)
		w.wait(ttl - time.Second)
		w.lead("b")
		w.wait(ttl - time.Second)
		if n := w.node("b").machine.Len(); n != 2 {
			t.Errorf("a new leader let go early: %d sessions are left of 2", n)
		}
		w.wait(5 * time.Second)
		if _, ok := w.node("b").machine.Get(w.key("llm", "short")); ok {
			t.Error("an unused session is still there")
		}
		if b, ok := w.node("b").machine.Get(w.key("llm", "long")); !ok || b.Epoch != long.Home().Epoch {
			t.Errorf("a session with a turn was let go: %+v", b)
		}
		long.End()
	})
}

// TestAddingMovesNone, TestDrain and TestDown hold to P5: only a backend's own
// sessions move, each once.
func TestAddingMovesNone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.populate("chat", 40, 4)
		w.graced()
		before := w.bindings("chat", 40)
		w.set(func() {
			s := &w.sets[1]
			s.Revision, s.Backends = 2, append(slices.Clone(s.Backends), Backend{ID: "chat-b9", Weight: 1})
		})
		w.wait(time.Minute)
		if after := w.bindings("chat", 40); !slices.Equal(before, after) {
			t.Errorf("they moved:\n%v\n%v", before, after)
		}
	})
}

func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.populate("llm", 40, 4)
		var running []*Turn
		for i := 0; i < 40; i += 4 {
			running = append(running, w.must("e", "llm", fmt.Sprint(i), 1)) // all of b1
		}
		w.graced()
		before := w.bindings("llm", 40)
		w.set(func() { w.leaving = []Leaver{{Pool: "llm", Backend: "llm-b1"}}; w.bad["llm-b1"] = true })
		w.wait(5 * time.Second)
		if after := w.bindings("llm", 40); !slices.Equal(before, after) {
			t.Error("sessions moved beneath their turns")
		}
		for _, turn := range running {
			if err := turn.Look(); err != nil {
				t.Errorf("a running turn: %v", err)
			}
			turn.End()
		}
		w.wait(5 * time.Second)
		for i, b := range w.bindings("llm", 40) {
			if moved := i%4 == 0; moved != (b.Epoch == before[i].Epoch+1) || b.Backend == "llm-b1" {
				t.Errorf("session %d is %+v, was %+v", i, b, before[i])
			}
		}
	})
}

func TestDown(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.populate("chat", 40, 4)
		w.graced()
		before := w.bindings("chat", 40)
		w.set(func() { w.leaving = []Leaver{{Pool: "chat", Backend: "chat-b2", Gone: true}}; w.bad["chat-b2"] = true })
		w.wait(time.Second)
		set := w.Sets()[1]
		for i, b := range w.bindings("chat", 40) {
			want := before[i]
			if want.Backend == "chat-b2" {
				want = Binding{set.Choose(w.key("chat", fmt.Sprint(i)), func(id string) bool { return id != "chat-b2" }), want.Epoch + 1}
			}
			if b != want {
				t.Errorf("session %d is %+v, want %+v", i, b, want)
			}
			for _, node := range w.names {
				if h := w.at(node, "chat", fmt.Sprint(i), 1); h.Backend != want.Backend {
					t.Errorf("session %d on %s: %+v, want %+v", i, node, h, want)
				}
			}
		}
	})
}

// TestOrphans: the sessions of a backend that is of no set any more go elsewhere.
func TestOrphans(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.populate("llm", 20, 4)
		w.graced()
		w.set(func() {
			s := &w.sets[0]
			s.Revision, s.Backends = 2, slices.Clone(s.Backends[1:])
			w.bad["llm-b1"] = true
		})
		w.wait(3 * time.Second)
		for i, b := range w.bindings("llm", 20) {
			if b.Backend == "llm-b1" || i%4 != 0 && b.Epoch != 1 {
				t.Errorf("session %d: %+v", i, b)
			}
		}
	})
}

// TestEviction: a full shard lets those go that were not used for longest, and none
// with a running turn.
func TestEviction(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set(func() { w.rules["llm"] = Rule{TTL: time.Hour, Wait: 250 * time.Millisecond, Max: 16, Strict: true} })
		oldest := w.must("d", "llm", "0", 1)
		defer oldest.End()
		w.graced()
		for i := 1; i < 40; i++ {
			w.at("d", "llm", fmt.Sprint(i), 1)
			w.wait(300 * time.Millisecond)
		}
		w.wait(2 * time.Second)
		left := w.node("a").machine.Len()
		if left > 16 || left < 12 {
			t.Errorf("%d sessions are left, want 16 or a few less", left)
		}
		if _, ok := w.node("a").machine.Get(w.key("llm", "0")); !ok {
			t.Error("one with a running turn was let go")
		}
		if _, ok := w.node("a").machine.Get(w.key("llm", "39")); !ok {
			t.Error("the youngest was let go")
		}
		if n := w.node("a").router.Counts().Evicted; n < 20 {
			t.Errorf("%d evictions were counted", n)
		}
	})
}

// rebind has a turn on a node find its backend out of reach.
func (w *world) rebind(node, pool, session string, to int) (Home, error) {
	w.t.Helper()
	turn := w.must(node, pool, session, 1)
	defer turn.End()
	return turn.Rebind(w.t.Context(), turn.Home(), "connect", func() string { return fmt.Sprintf("%s-b%d", pool, to) })
}

// TestRebind: at once where the pool wants availability, but once in ten seconds;
// who comes again makes a detour, and the binding stands.
func TestRebind(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("d", "chat", "s", 1)
		other := w.must("e", "chat", "s", 1) // is no hindrance
		defer other.End()
		if h, err := w.rebind("d", "chat", "s", 2); err != nil || h.Backend != "chat-b2" || h.Epoch != 2 || h.Lookup != LookupRepin {
			t.Errorf("at first: %+v, %v", h, err)
		}
		if h, err := w.rebind("c", "chat", "s", 3); err != nil || h.Backend != "chat-b3" || !h.Stale || h.Epoch != 2 {
			t.Errorf("a moment later: %+v, %v", h, err)
		}
		if h := w.at("b", "chat", "s", 1); h.Backend != "chat-b2" || h.Epoch != 2 {
			t.Errorf("what stands: %+v", h)
		}
		w.wait(rebindRest)
		if h, err := w.rebind("c", "chat", "s", 3); err != nil || h.Backend != "chat-b3" || h.Epoch != 3 {
			t.Errorf("ten seconds later: %+v, %v", h, err)
		}
		if n := w.node("c").router.Counts().Detours; n != 1 {
			t.Errorf("%d detours were counted", n)
		}
	})
}

// TestStrictRebind is a move: it waits for the other turns, and fails rather than
// have two.
func TestStrictRebind(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("d", "llm", "s", 1)
		w.graced()
		if h, err := w.rebind("d", "llm", "s", 2); err != nil || h.Backend != "llm-b2" || h.Lookup != LookupRepin {
			t.Errorf("alone: %+v, %v", h, err)
		}
		other := w.must("e", "llm", "s", 1)
		if h, err := w.rebind("d", "llm", "s", 3); !errors.Is(err, ErrNoLeader) || h.Backend != "llm-b2" {
			t.Errorf("beside another turn: %+v, %v", h, err)
		}
		if err := other.Look(); err != nil {
			t.Errorf("the other turn: %v", err)
		}
		other.End()
	})
}

// TestHeavy: a heavy turn is moved in one round, or stays where it is without an
// error, at once.
func TestHeavy(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set(func() {
			w.rules["llm"] = Rule{TTL: time.Hour, Wait: 250 * time.Millisecond, Stay: 5 * time.Minute, Strict: true}
		})
		w.at("d", "llm", "s", 1)
		w.graced()
		heavy := func(to string) (Home, time.Duration) {
			turn := w.must("d", "llm", "s", 1)
			defer turn.End()
			began := w.now()
			h, err := turn.Rebind(t.Context(), turn.Home(), ReasonHeavy, func() string { return to })
			if err != nil || turn.Look() != nil {
				t.Errorf("heavy to %s: %+v, %v", to, h, err)
			}
			return h, w.now() - began
		}
		if h, took := heavy("llm-b2"); h.Backend != "llm-b2" || took > 100*time.Millisecond {
			t.Errorf("alone: %+v in %v", h, took)
		}
		if h, took := heavy("llm-b3"); h.Backend != "llm-b2" || took > 50*time.Millisecond {
			t.Errorf("a moment after a move: %+v in %v", h, took)
		}
		w.wait(6 * time.Minute)
		other := w.must("e", "llm", "s", 1)
		defer other.End()
		if h, took := heavy("llm-b3"); h.Backend != "llm-b2" || took > 250*time.Millisecond {
			t.Errorf("beside another turn: %+v in %v", h, took)
		}
	})
}

// TestDrainTimeout: a move that waits too long is called off, and nothing is held.
func TestDrainTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set(func() {
			w.rules["llm"] = Rule{TTL: time.Hour, Drain: 5 * time.Second, Wait: 250 * time.Millisecond, Strict: true}
		})
		turn := w.must("d", "llm", "s", 1)
		w.graced()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := w.node("e").router.Move(ctx, "llm", []byte("s"), "llm-b2"); !errors.Is(err, ErrPending) {
			t.Errorf("a move of a busy session: %v", err)
		}
		w.wait(10 * time.Second)
		turn.End()
		w.wait(10 * time.Second)
		if h := w.at("e", "llm", "s", 1); h.Backend != "llm-b1" || h.Epoch != 1 {
			t.Errorf("after the time for it: %+v", h)
		}
	})
}

// TestALostAnswerCostsAMoment: a holder that does not answer has the hold called
// off, and turns wait for it, but not for long.
func TestALostAnswerCostsAMoment(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("d", "llm", "s", 1)
		w.at("e", "llm", "s", 1)
		w.graced()
		w.set(func() { w.filter = func(from, _ string, q question) bool { return from != "d" || q.ask != askHeld } })
		move := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := w.node("e").router.Move(ctx, "llm", []byte("s"), "llm-b2")
			move <- err
		}()
		w.wait(100 * time.Millisecond)
		began := w.now()
		turn := w.must("e", "llm", "s", 1)
		if took := w.now() - began; took < 100*time.Millisecond || took > heldTime {
			t.Errorf("a held turn waited for %v", took)
		}
		turn.End()
		if err := <-move; !errors.Is(err, ErrPending) {
			t.Errorf("the move: %v", err)
		}
		if n := w.node("e").router.Counts().Held; n == 0 {
			t.Error("no held turn was counted")
		}
	})
}

// TestFarewell: a node that leaves without a turn is asked no more; one that dies
// is, until its death is agreed on and its lease is over.
func TestFarewell(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("d", "llm", "s", 1)
		w.at("e", "llm", "s", 1)
		w.graced()
		old := w.node("d")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = old.router.Stop(ctx)
		w.set(func() { delete(w.nodes, "d") })
		w.forgotten("a", "d")
		w.isolate("e", true)
		w.wait(3 * lease)
		if w.shift("b", "s", "llm-b2", 2*time.Second) {
			t.Error("a session moved without e, that may have turns")
		}
		w.set(func() { w.dead["e"] = true })
		w.forgotten("a", "e")
		if !w.shift("b", "s", "llm-b2", 2*time.Second) {
			t.Error("a session does not move after e is dead")
		}
	})
}

// TestUpgrade: while an older process of a node has turns, it is asked as well.
func TestUpgrade(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		turn := w.must("d", "llm", "s", 1)
		w.graced()
		older := w.node("d")
		living := []uint64{1}
		w.elders = func() []uint64 { w.mu.Lock(); defer w.mu.Unlock(); return living }
		w.boot("d", 2, false)
		w.at("d", "llm", "s", 1)
		if got := len(w.node("a").machine.Holders()); got != 2 {
			t.Fatalf("%d holders, want both processes", got)
		}
		if w.shift("b", "s", "llm-b2", 3*time.Second) {
			t.Error("it moved beneath a turn of the older process")
		}
		turn.End()
		if !w.shift("b", "s", "llm-b2", 5*time.Second) {
			t.Error("it does not move after that turn")
		}
		w.set(func() { living = nil })
		w.until("the older process is forgotten", func() bool { return len(w.node("a").machine.Holders()) == 1 })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = older.router.Stop(ctx)
	})
}

// TestUpgradesInARow: while the oldest of several processes of a node has turns, those
// between are holders, too, until they say that they have none.
func TestUpgradesInARow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		first := w.must("d", "llm", "s", 1)
		w.graced()
		oldest := w.node("d")
		living := []uint64{1}
		w.elders = func() []uint64 { w.mu.Lock(); defer w.mu.Unlock(); return living }
		w.boot("d", 2, false)
		second := w.must("d", "llm", "s", 1)
		between := w.node("d")
		w.set(func() { living = []uint64{1, 2} })
		w.boot("d", 3, false)
		w.at("d", "llm", "s", 1)
		if got := len(w.node("a").machine.Holders()); got != 3 {
			t.Fatalf("%d holders, want all three processes", got)
		}
		if w.shift("b", "s", "llm-b2", 3*time.Second) {
			t.Error("it moved beneath turns of both older processes")
		}
		second.End()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = between.router.Stop(ctx)
		w.until("the one between is no holder", func() bool { return len(w.node("a").machine.Holders()) == 2 })
		if w.shift("b", "s", "llm-b2", 3*time.Second) {
			t.Error("it moved beneath the oldest process's turn")
		}
		first.End()
		if !w.shift("b", "s", "llm-b2", 5*time.Second) {
			t.Error("it does not move after the last turn")
		}
		_ = oldest.router.Stop(ctx)
		w.set(func() { living = nil })
		w.until("only the newest is left", func() bool { return len(w.node("a").machine.Holders()) == 1 })
	})
}

// TestAnHeirThatDied: a process of a node that had leases and was killed is no holder
// as soon as the next one says who lives, however long an older one still has turns.
func TestAnHeirThatDied(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		turn := w.must("d", "llm", "s", 1)
		w.graced()
		elder := w.node("d")
		w.elders = func() []uint64 { return []uint64{1} }
		w.boot("d", 2, false)
		w.at("d", "llm", "s", 1)
		heir := w.node("d")
		heir.router.cancel() // it says nothing any more
		w.boot("d", 3, false)
		w.at("d", "llm", "s", 1)
		w.until("the one that died is no holder", func() bool {
			return slices.Equal(w.node("a").machine.Holders(), []Holder{{"d", 1}, {"d", 3}})
		})
		if w.shift("b", "s", "llm-b2", 3*time.Second) {
			t.Error("it moved beneath a turn of the elder")
		}
		turn.End()
		if !w.shift("b", "s", "llm-b2", 5*time.Second) {
			t.Error("it does not move after that turn")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = elder.router.Stop(ctx), heir.router.Stop(ctx)
	})
}

// TestSlowReader: a feed whose reader does not keep up is cut and opened afresh, and
// the node's bindings are asked for anew.
func TestSlowReader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("d", "llm", "s", 1)
		w.graced()
		s := w.node("d").router.sections[0]
		before := s.head.Load().gen
		f := w.node("a").router.desk.feed(Holder{"d", 1})
		f.mu.Lock()
		f.err = errBehind
		f.cut()
		f.mu.Unlock()
		w.until("the section began anew", func() bool { return s.head.Load().gen > before && s.leased(w.now()) })
		if h := w.at("d", "llm", "s", 2); h.Backend != "llm-b1" || h.Lookup != LookupHit {
			t.Errorf("afterwards: %+v", h)
		}
	})
}

// TestAnotherProvisionalHome: a provisional backend that cannot serve is replaced by
// the next pick, which is the one that is offered then.
func TestAnotherProvisionalHome(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.lead("")
		turn := w.must("d", "chat", "s", 1)
		first := turn.Home()
		second := "chat-b1"
		if first.Backend == second {
			second = "chat-b2"
		}
		h, err := turn.Rebind(t.Context(), first, "connect", func() string { return second })
		if err != nil || h.Backend != second || !h.Provisional || turn.Look() != nil {
			t.Errorf("%+v after %+v, %v", h, first, err)
		}
		turn.End()
		if h := w.at("d", "chat", "s", 3); h.Backend != second || !h.Provisional {
			t.Errorf("the next turn: %+v", h)
		}
		w.lead("a")
		w.until("it is bound", func() bool { b, ok := w.node("a").machine.Get(w.key("chat", "s")); return ok && b.Backend == second })
	})
}

// TestALeaverSilencesNobody: a client that leaves while its turn waits for an answer
// has the next ones wait all the same.
func TestALeaverSilencesNobody(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set(func() { w.delay = 40 * time.Millisecond })
		w.at("e", "llm", "s", 1) // d has no lease yet
		for range 3 {
			ctx, leave := context.WithTimeout(t.Context(), 5*time.Millisecond)
			if _, err := w.node("d").router.Turn(ctx, "llm", []byte("s"), 0, func() string { return "" }); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who left got %v", err)
			}
			leave()
		}
		w.set(func() { w.delay = 2 * time.Millisecond })
		if h := w.at("d", "llm", "s", 1); h.Backend != "llm-b1" {
			t.Errorf("the next: %+v", h)
		}
	})
}

// TestFeedsEnd: the feed of a node that leads nothing any more ends after a while,
// and begins again when it leads.
func TestFeedsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("d", "llm", "s", 1)
		w.lead("b")
		w.wait(2 * followFor)
		if f := w.node("a").router.desk.feed(Holder{"d", 1}); f != nil {
			t.Error("the feed of a node that does not lead is still open")
		}
		w.at("d", "llm", "s", 1)
		w.lead("a")
		w.until("d has a lease of a again", func() bool { return w.leased("d") })
		if h := w.at("d", "llm", "s", 2); h.Backend != "llm-b1" {
			t.Errorf("afterwards: %+v", h)
		}
	})
}

// TestAnEndedFeedBeginsNothing: what comes late by a feed that was ended takes the section
// away from none that was opened since.
func TestAnEndedFeedBeginsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("d", "llm", "s", 1)
		r := w.node("d").router
		r.mu.Lock()
		old := r.follows["a"]
		r.mu.Unlock()
		late := encodeItems([]item{{kind: itemBegin, shard: 1, incarnation: 1, term: 1, index: 1}})[0]
		r.unfollow(w.now() + 2*followFor)
		w.until("another feed is open", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			f := r.follows["a"]
			return f != nil && f != old && w.leased("d") && r.sections[0].head.Load().life == f.life.Load()
		})
		if err := old.take(late); err != nil {
			t.Fatal(err)
		}
		w.wait(2 * lease)
		if h := w.at("d", "llm", "s", 2); h.Backend != "llm-b1" || !w.leased("d") {
			t.Errorf("afterwards: %+v, leased %v", h, w.leased("d"))
		}
	})
}

// TestAClosedReplicaLetsGo: a hold whose outcome will never be known, because the
// replica is closed, ends with it.
func TestAClosedReplicaLetsGo(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("d", "llm", "s", 1)
		w.graced()
		w.set(func() { w.stalled = true })
		moved := make(chan bool, 1)
		go func() { moved <- w.shift("e", "s", "llm-b2", 2*time.Second) }()
		r := w.node("a").router
		o := r.desk.owner(1)
		w.until("a hold is proposed", func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return o.reign != nil && len(o.reign.heldBy) > 0 && len(o.reign.holds[o.reign.numbered].asked) == 0
		})
		o.mu.Lock()
		reign := o.reign
		o.mu.Unlock()
		r.Own(1, nil)
		w.lead("")
		if !reign.over() {
			t.Error("it goes on without a replica")
		}
		w.set(func() { w.stalled = false })
		w.lead("b")
		<-moved
		if h := w.at("d", "llm", "s", 1); h.Backend == "" {
			t.Errorf("afterwards: %+v", h)
		}
	})
}
