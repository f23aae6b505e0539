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

// heavier is how many times slower a bound stream has to be at its backend than
// elsewhere before it is worth to leave: twice, as simulated, and a quarter for
// what the backend keeps of it, which is read again elsewhere.
const heavier = 2.5

const crowd = 2 // streams, the one that comes among them, that no backend is too full for

// Heavy tells whether a stream that is bound to a backend would be served so much
// faster elsewhere that it had better leave. It is by predicted steps, so only
// where the pool goes by these, and by what is known for certain: not in a panic,
// nor by old reports, nor by the speed of a backend that has little to do, which is
// read from few streams.
func (p *Pool) Heavy(b *Backend, now time.Time) bool {
	s := p.now.Load()
	if s.placement.Policy != StepTime || p.panics.Load() || b.standing.Load().State != Active || b.elsewhere.Load().Stale {
		return false
	}
	c := choice{pool: p, set: s, list: s.list, ask: Ask{Tried: []*Backend{b}}, now: now}
	if c.streams(b) < crowd+s.knee/8 {
		return false
	}
	other := c.drawn(p.drawing(s), byStep)
	return other != nil && c.pace(b) > heavier*c.pace(other)
}

// pace is step without regard to caps: they order picks, and say nothing of how
// long a stream takes.
func (c *choice) pace(b *Backend) float64 {
	speed := b.Speed()
	if c.streams(b) == 1 {
		speed = max(speed, 1) // as for step: little is known of it
	}
	return (c.set.knee + c.load(b)) / (c.set.knee * speed)
}
