package backend

import "time"

// A stream that is bound to a backend goes there, or nowhere in this pool. It
// stays there while the backend drains: whoever bound it says when it leaves.

// Named is the pool's backend of that id; nil where it has none.
func (p *Pool) Named(id string) *Backend { return p.now.Load().named[id] }

// admits tells whether the backend takes the stream that asks, were it not for
// its cap.
func (b *Backend) admits(ask *Ask, now time.Time) bool {
	return b.open(now) || ask.Bound && b.standing.Load().State == Draining
}

// takes is usable for the stream that asks.
func (b *Backend) takes(ask *Ask, now time.Time) (ok, trial bool) {
	if ok, trial = b.usable(now); ok {
		return ok, trial
	}
	return ask.Bound && b.standing.Load().State == Draining, false
}
