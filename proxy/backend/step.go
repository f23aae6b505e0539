package backend

import (
	"cmp"
	"time"
)

// step is the default: of a few backends drawn evenly, the one where the next
// stream's step, the time between two of its tokens, is predicted to be
// shortest. docs/balance.md has the measurements behind it.
type step struct{}

func (step) choose(c choice) *Backend {
	b := c.drawn(c.pool.drawing(c.set), byStep)
	if b == nil || !c.slotless(b) {
		return b
	}
	return c.further(b) // all that were drawn are full
}

// overCap is how much more a step counts at a backend without a slot: those with
// one come before.
const overCap = 1e4

// step is the predicted step at the backend, where a mean one's alone is 1. Of
// those where nothing runs, the ones of about the same speed are alike: else one
// of them would get every stream that comes alone, and of the others nothing
// would be known any more.
func (c *choice) step(b *Backend) float64 {
	n, speed, knee := c.load(b), b.Speed(), c.set.knee
	if c.streams(b) == 1 {
		speed = b.coarse.Load()
		if speed == 0 {
			speed = 1
		}
	}
	if c.slotless(b) {
		return overCap * n / (float64(b.terms.Load().Cap) * speed)
	}
	return (knee + n) / (knee * speed)
}

// slotless tells whether the stream would be over the backend's cap.
func (c *choice) slotless(b *Backend) bool {
	slots := b.terms.Load().Cap
	if slots == 0 {
		return false
	}
	return c.streams(b) > float64(slots)
}

// further goes on to the others, from anywhere, until as many with a slot are
// seen as a pick draws.
func (c *choice) further(instead *Backend) *Backend {
	best, lowest, seen := instead, c.step(instead), 0
	n := len(c.list)
	from := below(c.pool.random(), n)
	for i := range n {
		b := c.list[(from+i)%n]
		if !c.fits(b) || c.slotless(b) {
			continue
		}
		if v := c.step(b); v < lowest {
			best, lowest = b, v
		}
		if seen++; seen == c.pool.drawing(c.set) {
			break
		}
	}
	return best
}

// drawing is how many backends p2c looks at.
func (p *Pool) drawing(s *set) int {
	if d := s.rules.Placement.Draws; d > 0 {
		return min(d, MaxDraws)
	}
	return mostDraws - int(p.fewer.Load())
}

const (
	mostDraws = 4                      // more find no better ones
	reportAge = 200 * time.Millisecond // where nobody says
)

// adapt sees how many streams arrive per backend within a report's age. What
// is not in the reports yet misleads those who look at many: all find the same
// backend. mu is held.
func (p *Pool) adapt(s *set, dt time.Duration) {
	starts := p.flights.Load() / oneStart
	rate := float64(starts-p.started) / dt.Seconds()
	p.started = starts
	p.arrivals += (rate - p.arrivals) * (1 - faded(dt, window))
	p.lately.Store(p.lately.Load() + (rate-p.lately.Load())*(1-faded(dt, paceWindow)))
	nodes := 0
	for _, b := range s.list {
		nodes = max(nodes, b.elsewhere.Load().Nodes)
	}
	if nodes == 0 {
		p.fewer.Store(0)
		return
	}
	age := cmp.Or(s.rules.Placement.ReportAge, reportAge)
	switch a := p.arrivals * float64(nodes+1) * age.Seconds() / float64(len(s.list)); {
	case a < 3:
		p.fewer.Store(0)
	case a < 12:
		p.fewer.Store(1)
	default:
		p.fewer.Store(2)
	}
}
