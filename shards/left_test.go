package shards

import (
	"context"
	"slices"
	"testing"
	"time"
)

// shrink takes a backend out of the pool llm, for all nodes.
func (w *world) shrink(revision uint64, backend string) {
	w.set(func() {
		s := &w.sets[0]
		s.Revision = revision
		s.Backends = slices.DeleteFunc(slices.Clone(s.Backends), func(b Backend) bool { return b.ID == backend })
		w.bad[backend] = true
	})
	w.until("the log has the set", func() bool {
		var leader string
		w.get(func() { leader = w.leader })
		s, _ := w.node(leader).machine.Set("llm")
		return s.Revision == revision
	})
}

// TestALeftBackendKeepsItsPool: a backend leaves its pool, and then the process that
// leads is one that has never seen it, as after an upgrade. Its sessions are still the
// strict pool's: none gets another home beneath its turn, those that are idle move, and
// once nobody lives there it is forgotten.
func TestALeftBackendKeepsItsPool(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		running := w.must("d", "llm", "s", 1)
		busy := w.must("e", "llm", "idle", 1)
		w.at("e", "llm", "s", 1)
		if running.Look() != nil || busy.Look() != nil {
			t.Fatal("they do not run")
		}
		w.graced()
		w.shrink(2, "llm-b1")
		w.set(func() { w.unknown["llm-b1"] = true })
		w.lead("b")
		w.until("e has a lease again", func() bool { w.starts("e", "s", ""); return w.leased("e") })
		asking := w.must("e", "llm", "s", 1)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if h, _ := asking.Rebind(ctx, asking.Home(), "removed", func() string { return "llm-b2" }); h.Backend == "llm-b2" {
			t.Errorf("%+v, beside a turn at llm-b1", h)
		}
		asking.End()
		w.graced()
		w.shrink(3, "llm-b4")
		home := func(session string) string {
			b, _ := w.node("b").machine.Get(w.key("llm", session))
			return b.Backend
		}
		if home("s") != "llm-b1" || home("idle") != "llm-b1" {
			t.Errorf("they live at %s and %s, and turns of both run", home("s"), home("idle"))
		}
		if n := w.node("b").router.Sessions()["llm"]; n != 2 {
			t.Errorf("the pool has %d sessions, want 2", n)
		}
		busy.End()
		w.until("the idle one has moved", func() bool { return home("idle") != "llm-b1" })
		running.End()
		w.until("the other one, too", func() bool { return home("s") != "llm-b1" })
		w.shrink(4, "llm-b4")
		if s, _ := w.node("b").machine.Set("llm"); s.index("llm-b1") >= 0 || len(s.Backends) != 2 {
			t.Errorf("nobody lives there, and the set is %+v", s)
		}
	})
}

// TestLeftSessionsCount: those who live at a backend that has left are among the
// sessions that a pool may have.
func TestLeftSessionsCount(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.shrink(1, "none")
		w.populate("llm", 8, 4)
		w.shrink(2, "llm-b1")
		w.node("a").machine.View(func(table *Table, _ Position) {
			if n := table.crowd("llm"); n != 8 {
				t.Errorf("%d sessions are counted, want 8", n)
			}
		})
	})
}

// TestLeftBeforeTheNodeKnows: what has left by the set that is agreed on is left at
// once, also where the leader's own pool still has it for a moment.
func TestLeftBeforeTheNodeKnows(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.populate("llm", 8, 4)
		w.graced()
		began := w.now()
		w.set(func() { w.sets[0].Revision, w.sets[0].Backends = 2, slices.Clone(w.sets[0].Backends[1:]) })
		w.until("all have moved", func() bool {
			return !slices.ContainsFunc(w.bindings("llm", 8), func(b Binding) bool { return b.Backend == "llm-b1" })
		})
		if took := w.now() - began; took > 700*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}
