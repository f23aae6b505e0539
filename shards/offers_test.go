package shards

import "testing"

// TestANodeStandsByItsChoice: the first turn that comes when a leader is back binds its
// session to where this node had chosen, and turns may still run, not to what another
// pick would be by now; but for a choice that can serve nobody any more.
func TestANodeStandsByItsChoice(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.lead("")
		w.wait(lease)
		for _, tt := range []struct {
			session string
			gone    bool // its choice cannot be used by then
		}{{"stays", false}, {"leaves", true}} {
			w.lead("")
			w.wait(lease)
			running := w.must("d", "chat", tt.session, 1)
			chosen := running.Home().Backend
			pick := 1
			if chosen == "chat-b1" {
				pick = 2
			}
			w.set(func() { w.bad[chosen] = tt.gone })
			w.lead("c")
			var h Home
			w.until("a turn is agreed on", func() bool { h = w.at("d", "chat", tt.session, pick); return !h.Provisional })
			if (h.Backend == chosen) == tt.gone || h.Epoch != 1 {
				t.Errorf("%s: it was at %s, and the first turn beside the leader goes to %+v", tt.session, chosen, h)
			}
			running.End()
			w.set(func() { delete(w.bad, chosen) })
			if n := w.node("d").router.Counts().Provisional; n != 0 {
				t.Errorf("%s: %d choices are not agreed on", tt.session, n)
			}
		}
	})
}
