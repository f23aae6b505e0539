package judge

import (
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// handedOver is about the moments in which another process becomes a node, and
// nothing else happens: who comes in is let in and served, and no session moves. The
// process before ends when it carries nothing more. That the streams of before go on is
// P6's, which excuses none.
func handedOver(t *trial, f *finding) {
	times, across := 0, 0
	for _, h := range t.Faults {
		other := func(o history.Fault) bool { return o.Kind != history.HandOver }
		if h.Kind != history.HandOver || len(h.Target) != 1 || h.Ended.IsZero() || t.any(h.Began, h.Ended, other) {
			continue
		}
		times++
		across += t.across(f, h)
		for _, session := range t.sessions() {
			for _, m := range t.moves(session) {
				if m.from.from.Before(h.Ended) && m.to.to.After(h.Began) && !t.Spread && t.whyMove(m) == nil {
					f.breach(where{at: m.to.to, session: session}, "session %s moved from %s to %s while another process became %s", session, m.from.backend, m.to.backend, nameOf(h))
				}
			}
		}
	}
	for _, d := range t.Last {
		for _, e := range d.Status.Elders {
			f.breach(where{at: d.At, node: d.Node}, "at the end process %d, which was %s before another, has not ended", e.PID, d.Node)
		}
	}
	f.looked(times)
	f.number("%d hand-overs with nothing else, %d turns at those nodes meanwhile", times, across)
}

// across looks at the turns that a node had while it was handed over.
func (t *trial) across(f *finding, h history.Fault) (n int) {
	for i := range t.Turns {
		turn := &t.Turns[i]
		if !aims(h, turn.Node) || turn.Began.After(h.Ended) || turn.Ended.Before(h.Began) {
			continue
		}
		n++
		refused := turn.End == "refused" && turn.Code != "" && turn.Code != "saturated" || turn.End == "unreachable"
		if refused && turn.Ended.Before(h.Ended.Add(time.Second)) {
			f.breach(where{at: turn.Ended, session: turn.Session, turns: []string{turn.ID}}, "turn %s was not let in while another process became %s: %s %s %s", turn.ID, turn.Node, turn.End, turn.Code, turn.Note)
		}
	}
	return n
}
