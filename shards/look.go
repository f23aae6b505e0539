package shards

import (
	"math"
	"time"
)

// A turn is let go by two looks. The first finds where its session lives, and may be by
// a clock that is cheap and now and then late (glance): nothing is written by its word.
// The last one, right before the first byte, asks again for all that the first has
// seen, reads the leases' clock when all else is said, and alone lets the turn write.

// state is what a node knows of a session's binding at a moment.
type state uint8

const (
	current  state = iota // it stands, and this turn is counted
	leaseGap              // there is no lease
	isHeld                // a change is on its way
	absent                // it is not known, or last known
	unused                // it stands, but had no turn for a TTL
)

// enter counts the turn, and only then looks: a hold that comes before the count
// is seen, one that comes later sees the count. Where the binding does not stand
// the turn is not counted: it has to wait, and while it waits it does not run.
func (t *Turn) enter(now time.Duration) (state, <-chan struct{}) {
	p := t.s.stripe(t.session)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.alive(t.session)
	l.turns++
	c, what := t.look(l, now)
	if what != current {
		l.turns--
		over := l.over
		p.tidy(t.session, l)
		return what, over
	}
	if t.r.lacks(cureCount) {
		l.uncounted()
	}
	t.home.Backend, t.home.Epoch, t.counted, t.l, t.looked = c.Backend, c.Epoch, true, l, now
	if t.home.Lookup == "" {
		t.home.Lookup = LookupHit
	}
	return current, nil
}

// look says what is known, and notes the use of what stands; the stripe's mu is held.
func (t *Turn) look(l *live, now time.Duration) (Cached, state) {
	if l.held != 0 && now < l.since+heldFor {
		return Cached{}, isHeld
	}
	if !t.s.leased(now) {
		return Cached{}, leaseGap
	}
	if l.held != 0 {
		return Cached{}, absent
	}
	rest := time.Duration(math.MaxInt64)
	if l.turns == 1 {
		rest = t.r.rest(t.pool, now)
	}
	section := t.s.head.Load().gen
	c, used := t.r.cache.Take(t.session, section, now, rest)
	switch {
	case c.Backend == "" || c.Backend == nowhere || c.Section != section:
		return c, absent
	case !used:
		return c, unused
	}
	return c, current
}

// rest is after how long without a turn a binding does not stand by itself: its pool's
// TTL, but no idleness counts from before the clock's last jump.
func (r *Router) rest(pool string, now time.Duration) time.Duration {
	ttl := r.Rules.Pool(pool).TTL
	if ttl <= 0 || now-time.Duration(r.jumped.Load()) < ttl {
		return math.MaxInt64
	}
	return ttl
}

// Look is for the moment right before the first byte is written to the backend.
func (t *Turn) Look() error {
	if t.r.lacks(cureLook) {
		return nil
	}
	seen, until := t.stands()
	switch {
	case seen > t.home.Epoch:
		return ErrAgain // by a lower epoch than it has seen no node goes
	case t.home.Provisional || t.home.Stale:
		t.sent = true
		return nil
	}
	now := t.r.Now() // the last word: what the look took, or waited for, is in it
	if now >= until {
		t.r.notice(now) // or the next turn would take the lease for lasting, too
		return ErrAgain
	}
	if t.looked, t.sent = now, true; t.r.lacks(cureCount) {
		t.countLate()
	}
	return nil
}

// stands says until when the turn's home does, by the lease that was there as it
// looked: 0 where it does not. The turn is counted, so no hold that comes later
// changes that. seen is the highest epoch that is known.
func (t *Turn) stands() (seen Epoch, until time.Duration) {
	p := t.s.stripe(t.session)
	p.mu.Lock()
	defer p.mu.Unlock()
	until = time.Duration(t.s.until.Load()) // before the section: a later one's lease says nothing of this one's bindings
	c, _ := t.r.cache.Peek(t.session, 0)
	same := c.Epoch == t.home.Epoch && c.Backend == t.home.Backend
	if !same || c.Backend == "" || c.Backend == nowhere || c.Section != t.s.head.Load().gen || t.l.held != 0 {
		until = 0
	}
	return c.Epoch, until
}
