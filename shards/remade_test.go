package shards

import (
	"bytes"
	"testing"
)

// remake makes the shard anew, in its next incarnation, from the first entries of
// its log: what only the lost replicas had is gone.
func (w *world) remake(keep int, leader string) {
	w.t.Helper()
	from := NewMachine()
	var kept []entry
	w.get(func() { kept = w.log[:keep] })
	for i, e := range kept {
		if _, err := from.Apply(e.term, uint64(i+1), [][]byte{e.command}); err != nil {
			w.t.Fatal(err)
		}
	}
	from.Remade(2)
	image, err := from.Snapshot()
	if err != nil {
		w.t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := image.WriteTo(&b); err != nil {
		w.t.Fatal(err)
	}
	for _, name := range w.names {
		p := w.node(name)
		if p.machine == nil {
			continue
		}
		p.router.Own(1, nil)
		p.feed.Lock()
		m := NewMachine()
		if err := m.Restore(bytes.NewReader(b.Bytes())); err != nil {
			w.t.Fatal(err)
		}
		w.set(func() { p.machine, p.results, w.log, w.leader, w.term = m, nil, nil, leader, 1 }) // its terms begin anew, too
		p.feed.Unlock()
		p.router.Own(1, NewOwner(simLog{w, p}, m, 2))
	}
}

// entries is how long the log is.
func (w *world) entries() (n int) {
	w.get(func() { n = len(w.log) })
	return n
}

// TestRemadeShardLearnsWhatNodesKnow: a shard is made anew from a replica that had
// not heard of a session, or not of where it went last. The nodes that use it tell
// the shard, which then agrees with them, in a higher epoch than any before.
func TestRemadeShardLearnsWhatNodesKnow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("d", "llm", "moved", 1)
		w.at("d", "chat", "moved", 1)
		w.graced()
		early := w.entries()
		w.at("d", "llm", "lost", 2)
		w.at("d", "chat", "lost", 2)
		for _, pool := range []string{"llm", "chat"} {
			if _, err := w.node("c").router.Move(t.Context(), pool, []byte("moved"), pool+"-b3"); err != nil {
				t.Fatal(err)
			}
		}
		before := map[string]Home{}
		for _, pool := range []string{"llm", "chat"} {
			for _, session := range []string{"moved", "lost"} {
				before[pool+session] = w.at("d", pool, session, 4)
			}
		}
		w.remake(early, "b")
		for _, pool := range []string{"llm", "chat"} {
			for _, session := range []string{"moved", "lost"} {
				was := before[pool+session]
				w.until(pool+" "+session+" is agreed on again", func() bool {
					turn, err := w.turn("d", pool, session, 4)
					if err != nil {
						return false
					}
					defer turn.End()
					h := turn.Home()
					return h.Lookup == LookupHit && !h.Stale && h.Epoch > was.Epoch && h.Backend == was.Backend
				})
				if h := w.at("e", pool, session, 4); h.Backend != was.Backend || h.Epoch <= was.Epoch {
					t.Errorf("%s %s: another node goes to %+v, it was at %+v", pool, session, h, was)
				}
			}
		}
	})
}

// TestRemadeShardHearsOfRunningTurnsAtOnce: a session whose turn runs is told of
// before any other node asks for it.
func TestRemadeShardHearsOfRunningTurnsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("e", "llm", "other", 1)
		early := w.entries()
		turn := w.must("d", "llm", "s", 2)
		w.remake(early, "b")
		w.until("d has a lease of the next life", func() bool {
			s := w.node("d").router.sections[0]
			return s.head.Load().incarnation == 2 && s.leased(w.now())
		})
		w.wait(w.delay * 20)
		if h := w.at("e", "llm", "s", 3); h.Backend != "llm-b2" || h.Lookup == LookupNew {
			t.Errorf("while a turn runs at llm-b2 another goes to %+v", h)
		}
		turn.End()
	})
}

// TestRemadeShardTakesNoBackendThatIsGone: nobody is sent where nobody may go,
// whoever remembers it.
func TestRemadeShardTakesNoBackendThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("e", "llm", "other", 1)
		early := w.entries()
		was := w.at("d", "llm", "s", 2)
		w.set(func() { w.bad["llm-b2"] = true })
		w.remake(early, "b")
		w.graced()
		if h := w.at("d", "llm", "s", 3); h.Backend != "llm-b3" || h.Epoch <= was.Epoch {
			t.Errorf("it goes to %+v", h)
		}
	})
}

// TestRemadeShardKeepsWhatItDecidedSince: what a node knew of before does not undo
// what the shard's next life has agreed on.
func TestRemadeShardKeepsWhatItDecidedSince(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("e", "llm", "other", 1)
		early := w.entries()
		w.at("d", "llm", "s", 2)
		w.remake(early, "b")
		first := w.at("e", "llm", "s", 3) // e knows nothing of it, and is first
		w.graced()
		if h := w.at("d", "llm", "s", 4); h.Backend != first.Backend || h.Epoch != first.Epoch {
			t.Errorf("it goes to %+v, agreed is %+v", h, first)
		}
	})
}

// TestEpochsGrowOverALostShard: also one that begins with nothing.
func TestEpochsGrowOverALostShard(t *testing.T) {
	m := NewMachine()
	for incarnation := uint32(2); incarnation < 5; incarnation++ {
		before := m.table.floor
		m.Reset()
		m.Remade(incarnation)
		if m.table.floor < before+remadeLeap {
			t.Errorf("incarnation %d begins with epoch %d after %d", incarnation, m.table.floor, before)
		}
	}
	m.table.sessions.put(Key{1}, spot{m.table.backends.take("b"), 1 << 31})
	m.Remade(9)
	if m.table.floor != 1<<31+remadeLeap {
		t.Errorf("floor %d", m.table.floor)
	}
	m.table.floor = 1<<32 - 5
	if m.Remade(10); m.table.floor != 1<<32-5 {
		t.Errorf("the epochs are used up, and the floor is %d", m.table.floor)
	}
}
