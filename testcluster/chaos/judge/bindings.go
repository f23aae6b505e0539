package judge

import (
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// agree is P1. One backend of each session and epoch; a turn by a detour, which
// names the epoch that it goes around, is an exception that only `available` has.
func agree(t *trial, f *finding) {
	said, detours := 0, 0
	for _, session := range t.sessions() {
		home := map[uint64]saying{} // the first word of each epoch that is no repin
		all := t.said[session]
		for _, s := range all {
			if _, known := home[s.epoch]; s.epoch > 0 && !known && s.lookup != "repin" {
				home[s.epoch] = s
			}
		}
		for _, s := range all {
			was, known := home[s.epoch]
			said++
			switch {
			case s.epoch == 0 || !known || was.backend == s.backend:
			case s.lookup == "repin" && s.stale && !t.strict():
				detours++
			case s.lookup == "" && t.lost(s.id):
				detours++ // its node died with what it knew
			default:
				f.breach(where{at: s.to, session: session}, "session %s at epoch %d: %s says %s, %s said %s", session, s.epoch, s.who, s.backend, was.who, was.backend)
			}
		}
		backwards(t, f, session, all)
	}
	f.looked(said)
	f.number("%d sessions, %d sayings, %d detours", len(t.said), said, detours)
}

// lost says whether a turn's node was hurt while it ran.
func (t *trial) lost(id string) bool {
	turn := t.turns[id]
	return turn != nil && t.hurt(turn.Node, turn.Began, turn.Ended)
}

// backwards looks for an epoch that is lower than one that was known: to the same
// node, for a lease to anybody.
func backwards(t *trial, f *finding, session string, all []saying) {
	for i, s := range all {
		if s.epoch == 0 || s.lookup == "" {
			continue
		}
		for _, was := range all[:i] {
			knew := was.who == s.who && was.to.Before(s.from) && was.lookup != "read"
			late := s.lookup != "fallback" && s.lookup != "repin" && was.to.Add(lease+spread).Before(s.from)
			if was.epoch > s.epoch && was.lookup != "" && (late || knew && !t.reborn(s.who, was.to, s.from)) {
				f.breach(where{at: s.from, session: session}, "session %s goes by epoch %d at %s, %.3fs after %s had epoch %d", session, s.epoch, s.who, s.from.Sub(was.to).Seconds(), was.who, was.epoch)
				return
			}
		}
	}
}

// reborn says whether a node lost its memory in between. What another process knew that
// becomes the node begins empty.
func (t *trial) reborn(node string, from, to time.Time) bool {
	is := kinds(history.Kill, history.Restart, history.Upgrade, history.Move, history.Wipe, history.Bootstrap)
	return t.succeeded(node, from, to) || t.any(from, to, func(f history.Fault) bool { return is(f) && aims(f, node) })
}

// keep is P2. A binding that somebody was told stays: nobody binds the session
// again as one that has none, and at the end it is there, at that epoch or a
// later one.
func keep(t *trial, f *finding) {
	bound, fresh := 0, 0
	excused := t.lostMajority()
	for _, session := range t.sessions() {
		var last saying
		for _, s := range t.said[session] {
			again := s.lookup == "new" || s.lookup == "lost"
			if again {
				fresh++
			}
			if again && last.epoch > 0 && last.to.Before(s.from) && !excused {
				f.breach(where{at: s.from, session: session}, "session %s is bound anew at %s (%s, epoch %d), though it was bound at %s, epoch %d", session, s.backend, s.lookup, s.epoch, last.backend, last.epoch)
			}
			if s.epoch > last.epoch && s.lookup != "repin" {
				last = s
			}
		}
		if last.epoch > 0 {
			bound++
		}
		if last.epoch > 0 && t.whole[session] && !excused {
			forgotten(t, f, session, last)
		}
	}
	f.looked(bound)
	f.number("%d sessions bound, %d of them by a turn that was seen", bound, fresh)
}

// forgotten looks at the dumps of the end. Nodes were asked there for the sessions of
// which a turn was answered whole.
func forgotten(t *trial, f *finding, session string, last saying) {
	for _, d := range t.Last {
		if d.Sessions == nil {
			continue
		}
		now, ok := d.Sessions[session]
		switch {
		case !ok:
			f.breach(where{session: session}, "at the end %s knows no binding of session %s, which was at %s, epoch %d", d.Node, session, last.backend, last.epoch)
		case now.Epoch < last.epoch:
			f.breach(where{session: session}, "at the end %s has session %s at epoch %d, and epoch %d was told", d.Node, session, now.Epoch, last.epoch)
		}
	}
}

// lostMajority says whether more disks were lost than a shard can lose: what only
// they knew was not promised. Nodes that leave hand over what they have first, unless
// they failed to.
func (t *trial) lostMajority() bool {
	gone := map[string]bool{}
	for _, f := range t.Faults {
		if f.Kind == history.Wipe || f.Kind == history.Leave && strings.HasPrefix(f.Detail, "failed") {
			for _, n := range f.Target {
				gone[n] = true
			}
		}
	}
	return len(gone) > 1
}

// stay is P5. A move that no fault of the backend that was left explains must be a
// planned one, which the nodes count: to even load out, or by an operator.
func stay(t *trial, f *finding) {
	moves, planned := 0, t.total("starling_moves_total", "result", "done")
	var unexplained []move
	for _, session := range t.sessions() {
		left := map[int]int{} // by fault: how often the session left a backend that it hurt
		for _, m := range t.moves(session) {
			moves++
			why := t.whyMove(m)
			if why == nil || t.any(m.from.from, m.to.to, kinds(history.Operate)) { // an operator moves it as often as he likes
				unexplained = append(unexplained, m)
				continue
			}
			if left[why.ID]++; left[why.ID] > 2 { // once, and once more where it went meets the same
				f.breach(where{at: m.to.to, session: session}, "session %s left %s: the %d. time for one fault", session, m.from.backend, left[why.ID])
			}
		}
	}
	f.looked(len(t.said))
	f.number("%d moves, %d of them off backends in order, %.0f planned", moves, len(unexplained), planned)
	if m := len(unexplained); float64(m) > planned && !t.forgetful() {
		last := unexplained[m-1]
		f.breach(where{at: last.to.to, session: last.to.session}, "session %s moved from %s to %s, and nothing had happened to %s", last.to.session, last.from.backend, last.to.backend, last.from.backend)
	}
}

// move is a session's change of backend.
type move struct{ from, to saying }

func (t *trial) moves(session string) (all []move) {
	var last saying
	for _, s := range t.said[session] {
		if s.epoch <= last.epoch {
			continue
		}
		if last.epoch > 0 && last.backend != s.backend {
			all = append(all, move{last, s})
		}
		last = s
	}
	return all
}

// whyMove finds what hurt the backend that was left, or took it out.
func (t *trial) whyMove(m move) *history.Fault {
	for i, f := range t.Faults {
		if aims(f, m.from.backend) && overlaps(f, m.from.from.Add(-ejection), m.to.to) {
			return &t.Faults[i]
		}
	}
	return nil
}

// ejection is for how long at most what hurt a backend keeps it out of use.
const ejection = time.Minute

// forgetful says whether a node lost its counters.
func (t *trial) forgetful() bool {
	is := kinds(history.Kill, history.Restart, history.Upgrade, history.HandOver, history.Move, history.Wipe, history.Leave, history.Bootstrap)
	return slices.ContainsFunc(t.Faults, is)
}
