package shards

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// virtually runs do in virtual time. Under the race detector it does so on one
// processor: go1.26 runs the timers of one bubble on several at once, all of them as one
// of the detector's threads, and that breaks it (SIGSEGV, or "CHECK failed: tsan_rtl.cpp").
func virtually(t *testing.T, do func(t *testing.T)) {
	if underRace {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(t, do)
}

// bubble runs a test in a world of five nodes, in virtual time.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	virtually(t, func(t *testing.T) { f(t, newWorld(t, 1, five())) })
}

func five() []string { return []string{"a", "b", "c", "d", "e"} }

// turn begins a turn of a session of a pool on a node; proposals are the pool's
// backend of a number.
func (w *world) turn(node, pool, session string, proposal int) (*Turn, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	return w.node(node).router.Turn(ctx, pool, []byte(session), 0, func() string { return fmt.Sprintf("%s-b%d", pool, proposal) })
}

// must begins a turn that cannot fail.
func (w *world) must(node, pool, session string, proposal int) *Turn {
	w.t.Helper()
	t, err := w.turn(node, pool, session, proposal)
	if err != nil {
		w.t.Fatalf("turn of %s on %s: %v", session, node, err)
	}
	return t
}

// at runs a turn from its beginning to its end, and returns where it was.
func (w *world) at(node, pool, session string, proposal int) Home {
	w.t.Helper()
	t := w.must(node, pool, session, proposal)
	defer t.End()
	if err := t.Look(); err != nil {
		w.t.Fatalf("turn of %s on %s: %v", session, node, err)
	}
	return t.Home()
}

// wait lets time go by.
func (w *world) wait(d time.Duration) { _ = pass(context.Background(), d) }

// until waits for a condition, in virtual time.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		w.wait(10 * time.Millisecond)
	}
	w.t.Fatalf("it never came that %s", what)
}

// graced waits until a leader may change bindings of its own.
func (w *world) graced() { w.wait(lease + margin + 300*time.Millisecond) }

func (w *world) key(pool, session string) Key {
	k, _ := w.node(w.names[0]).router.Hash.Key(pool, session)
	return k
}

// TestOneHomeOnAllNodes: whoever asks first decides, and later turns ask nobody.
func TestOneHomeOnAllNodes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		first := w.at("d", "llm", "s", 1)
		if first.Lookup != LookupNew || first.Backend != "llm-b1" || first.Epoch != 1 {
			t.Fatalf("the first turn: %+v", first)
		}
		for i, node := range w.names {
			if h := w.at(node, "llm", "s", i); h.Backend != first.Backend || h.Epoch != 1 || h.Lookup != LookupHit {
				t.Errorf("%s: %+v", node, h)
			}
		}
		asked := 0
		w.set(func() { w.filter = func(_, _ string, q question) bool { asked += btoi(q.ask == askBind); return true } })
		for range 10 {
			w.at("d", "llm", "s", 2)
		}
		if asked > 0 {
			t.Errorf("later turns asked %d times", asked)
		}
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestLeaseIsRenewed: a node that has turns now and then keeps its lease for as
// long as there is a leader, and no longer.
func TestLeaseIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("e", "llm", "s", 1)
		s := w.node("e").router.sections[0]
		for range 100 {
			w.wait(100 * time.Millisecond)
			if !s.leased(w.now()) {
				t.Fatal("the lease lapsed beside a living leader")
			}
		}
		w.lead("")
		w.wait(lease)
		if s.leased(w.now()) {
			t.Error("the lease outlives the leader")
		}
	})
}

// TestStrictWantsALeader: bound and new turns fail from the lapse of the lease on,
// until somebody leads.
func TestStrictWantsALeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("d", "llm", "s", 1)
		w.lead("")
		if h := w.at("d", "llm", "s", 2); h.Backend != "llm-b1" {
			t.Errorf("under its lease: %+v", h)
		}
		w.wait(lease)
		for _, session := range []string{"s", "other"} {
			if _, err := w.turn("d", "llm", session, 2); !errors.Is(err, ErrNoLeader) {
				t.Errorf("%s without a leader: %v", session, err)
			}
		}
		w.lead("b")
		w.until("the session has its home again", func() bool {
			turn, err := w.turn("d", "llm", "s", 2)
			if err != nil {
				return false
			}
			defer turn.End()
			return turn.Home().Backend == "llm-b1" && turn.Home().Epoch == 1
		})
	})
}

// TestAvailableGoesOn: without a leader bound sessions stay where they are, asked of
// the replicas where they are not known; new ones go where every node puts them; and
// when a leader is back, these choices become bindings within 30 s.
func TestAvailableGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("d", "chat", "s", 1)
		w.wait(100 * time.Millisecond) // the replicas apply it
		w.lead("")
		w.wait(lease)
		for _, node := range w.names {
			if h := w.at(node, "chat", "s", 2); h.Backend != "chat-b1" || h.Lookup != LookupFallback || !h.Stale {
				t.Errorf("bound, on %s: %+v", node, h)
			}
		}
		chosen := w.at("a", "chat", "new", 3)
		for _, node := range w.names {
			if h := w.at(node, "chat", "new", 4); h.Backend != chosen.Backend || !h.Provisional {
				t.Errorf("new, on %s: %+v, elsewhere %+v", node, h, chosen)
			}
		}
		w.lead("c")
		w.wait(30 * time.Second)
		for _, node := range w.names {
			if n := w.node(node).router.Counts().Provisional; n != 0 {
				t.Errorf("%s still has %d provisional choices", node, n)
			}
			if h := w.at(node, "chat", "new", 4); h.Backend != chosen.Backend || h.Provisional || h.Epoch != 1 {
				t.Errorf("afterwards, on %s: %+v", node, h)
			}
		}
	})
}

// TestAvailableWhileAllWarm: without a leader, and with no backend ready, a new session
// gets a home all the same, one by every node: its backend says whether it takes the turn.
func TestAvailableWhileAllWarm(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set(func() {
			for i := range 4 {
				w.bad[fmt.Sprintf("chat-b%d", i+1)] = true
			}
		})
		w.lead("")
		chosen := w.at("a", "chat", "new", 1)
		for _, node := range w.names {
			if h := w.at(node, "chat", "new", 2); h.Backend == "" || h.Backend != chosen.Backend || !h.Provisional {
				t.Errorf("on %s: %+v, elsewhere %+v", node, h, chosen)
			}
		}
	})
}

// TestLastKnownIsTheLater of what a node's replica has applied and of what it was told.
func TestLastKnownIsTheLater(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("b", "chat", "s", 1)
		w.wait(100 * time.Millisecond) // the replica applies it
		r, k := w.node("b").router, w.key("chat", "s")
		if b := r.lastHere(k, 1); b != (Binding{"chat-b1", 1}) {
			t.Errorf("both know of %+v", b)
		}
		r.cache.Put(k, Binding{"chat-b2", 2}, 0, r.Now())
		if b := r.lastHere(k, 1); b != (Binding{"chat-b2", 2}) {
			t.Errorf("it was told of a move that its replica has not applied yet, and knows of %+v", b)
		}
		if b := w.node("c").router.lastHere(k, 1); b != (Binding{"chat-b1", 1}) {
			t.Errorf("who had no turn knows of %+v", b)
		}
	})
}

// TestManyChoicesAreAgreedOn: a leader that is back, on a machine so busy that an
// answer takes it most of a second, is offered many choices of one node, of sessions
// that have no more turns. They become bindings within 30 s all the same.
func TestManyChoicesAreAgreedOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const many = 300
		w.lead("")
		w.wait(lease)
		for i := range many {
			w.at("d", "chat", fmt.Sprint("new", i), 3)
		}
		w.set(func() {
			w.before = func(from, _ string, q question) <-chan struct{} {
				if from != "d" || q.ask != askBind {
					return nil
				}
				answered := make(chan struct{})
				time.AfterFunc(700*time.Millisecond, func() { close(answered) })
				return answered
			}
		})
		if n := w.node("d").router.Counts().Provisional; n != many {
			t.Fatalf("%d provisional choices, want %d", n, many)
		}
		w.lead("c")
		w.wait(30 * time.Second)
		if n := w.node("d").router.Counts().Provisional; n != 0 {
			t.Errorf("%d of %d choices are not agreed on after 30 s", n, many)
		}
	})
}

// TestMove: a session goes where it is told, once its turn has ended, and every node
// knows.
func TestMove(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		running := w.must("d", "llm", "s", 1)
		w.at("e", "llm", "s", 1)
		w.graced()
		moved := make(chan error, 1)
		go func() {
			_, err := w.node("b").router.Move(t.Context(), "llm", []byte("s"), "llm-b3")
			moved <- err
		}()
		w.wait(3 * time.Second)
		if h := w.at("e", "llm", "s", 1); h.Backend != "llm-b1" {
			t.Fatalf("it moved beneath a turn: %+v", h)
		}
		if err := running.Look(); err != nil {
			t.Errorf("the running turn: %v", err)
		}
		running.End()
		if err := <-moved; err != nil {
			t.Fatal(err)
		}
		for _, node := range w.names {
			if h := w.at(node, "llm", "s", 1); h.Backend != "llm-b3" || h.Epoch != 2 {
				t.Errorf("%s: %+v", node, h)
			}
		}
	})
}

// TestParallelTurnsDuringAMove: none waits for over a second, none fails.
func TestParallelTurnsDuringAMove(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for _, node := range w.names {
			w.at(node, "llm", "s", 1)
		}
		w.graced()
		stop, done := context.WithCancel(t.Context())
		ended := make(chan time.Duration, len(w.names))
		for _, node := range w.names {
			go func() {
				var longest time.Duration
				for stop.Err() == nil {
					before := w.now()
					turn, err := w.turn(node, "llm", "s", 1)
					if err != nil {
						t.Errorf("%s: %v", node, err)
						break
					}
					longest = max(longest, w.now()-before)
					w.wait(w.rand.upTo(20 * time.Millisecond))
					turn.End()
					w.wait(w.rand.upTo(200 * time.Millisecond))
				}
				ended <- longest
			}()
		}
		for i := range 5 {
			to := fmt.Sprintf("llm-b%d", 2+i%2)
			if b, err := w.node("c").router.Move(t.Context(), "llm", []byte("s"), to); err != nil || b.Backend != to {
				t.Errorf("move %d: %+v, %v", i, b, err)
			}
		}
		done()
		for range w.names {
			if longest := <-ended; longest > heldTime {
				t.Errorf("a turn waited for %v", longest)
			}
		}
	})
}

// BenchmarkHit is a turn of a session that is known, from its begin over the second
// look to its end, of different sessions side by side.
func BenchmarkHit(b *testing.B) {
	r, names := leasedRouter(b, nil)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			t, err := r.Turn(context.Background(), "llm", names[i%len(names)], 0, nil)
			if err != nil || t.Look() != nil {
				b.Fatal("no hit", err)
			}
			t.End()
		}
	})
}

// leasedRouter knows 16,384 sessions and has the lease of each.
func leasedRouter(t testing.TB, now func() time.Duration) (*Router, [][]byte) {
	t.Helper()
	h, err := NewHasher(make([]byte, 32), 16)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRouter(Options{Node: "a", Hash: h, Place: (*world)(nil), Rules: fixed{}, Now: now})
	for _, s := range r.sections {
		s.begin(r, head{node: "a", incarnation: 1, term: 1})
		s.lengthen(1<<62, 0)
	}
	names := make([][]byte, 1<<14)
	for i := range names {
		names[i] = fmt.Appendf(nil, "session-%d", i)
		k, _ := h.Key("llm", string(names[i]))
		r.cache.Put(k, Binding{"llm-b1", 1}, 1, r.Now())
	}
	return r, names
}

// fixed is one rule for all.
type fixed struct{ nothing }

func (fixed) Pool(string) Rule { return Rule{TTL: time.Hour} }

// TestPausedInAMove: a node that is stopped in the middle of a move, for longer than
// its lease or until its death is agreed on, starts no turn on the old backend
// afterwards.
func TestPausedInAMove(t *testing.T) {
	for _, pause := range []time.Duration{2500 * time.Millisecond, 10 * time.Second} {
		bubble(t, func(t *testing.T, w *world) {
			w.at("d", "llm", "s", 1)
			w.at("e", "llm", "s", 1)
			w.graced()
			w.set(func() { w.delay = 60 * time.Millisecond }) // a hold lasts for some time
			moved := make(chan bool, 1)
			go func() { moved <- w.shift("e", "s", "llm-b2", pause+10*time.Second) }()
			w.until("d holds the session", func() bool {
				p := w.node("d").router.sections[0].stripe(w.key("llm", "s"))
				p.mu.Lock()
				defer p.mu.Unlock()
				return p.isHeld(w.key("llm", "s"))
			})
			w.pause("d")
			w.set(func() { w.delay = 2 * time.Millisecond })
			if pause > 5*time.Second {
				w.set(func() { w.dead["d"] = true })
			}
			w.wait(pause)
			w.resume("d")
			if !<-moved {
				t.Fatal("the session did not move")
			}
			if w.starts("d", "s", "llm-b1") {
				t.Errorf("stopped for %v: a turn starts on the old backend", pause)
			}
			w.set(func() { clear(w.dead) })
			w.until("d goes by the new one", func() bool { return w.starts("d", "s", "llm-b2") || w.leased("d") })
			if h := w.at("d", "llm", "s", 1); h.Backend != "llm-b2" {
				t.Errorf("stopped for %v: afterwards %+v", pause, h)
			}
		})
	}
}
