package shards

import "time"

// stale says whether another turn of the session may have run elsewhere while this
// one did: it had no agreed home, or its session was bound to its home at once,
// beside whatever ran; its node lost its lease since the turn looked; or the session
// was bound elsewhere beneath it (outlived: one of these two). Each is one of the
// stated exceptions, and counted.
func (t *Turn) stale(outlived bool) bool {
	switch {
	case !t.sent:
		return false // it never ran at a backend
	case t.home.Provisional || t.home.Stale:
		return true // counted when it began
	case t.alone:
		t.r.counts.rebound.Add(1)
		return true
	case t.home.Epoch > 0 && outlived:
		t.r.counts.outlived.Add(1)
		return true
	}
	return false
}

// lapsed says whether the lease was not there all the time since a turn looked,
// whichever sections it was of. Its end is read first, as it is set last: one that is
// granted after a gap shows the gap.
func (s *section) lapsed(t *Turn, now time.Duration) bool {
	return int64(now) >= s.lasts.Load() || s.since.Load() > int64(t.looked)
}

// lengthen notes a grant; it is called with mu held.
func (s *section) lengthen(until, now int64) {
	if now >= s.lasts.Load() {
		s.since.Store(now)
	}
	s.lasts.Store(max(until, s.lasts.Load()))
	if until > s.until.Load() {
		s.until.Store(until)
	}
}
