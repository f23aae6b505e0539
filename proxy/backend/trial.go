package backend

import "time"

// A backend whose ejection is over gets the next stream, whatever the policy
// would say: of many backends a pick looks at few, and where streams are rare it
// would be long until it looks at this one.

// await notes when the first ejection ends whose trial is not under way. Two who
// note it at once may note an old word; then the policy finds the backend.
func (p *Pool) await() {
	first := int64(0)
	for _, b := range p.Backends() {
		if s := b.standing.Load(); s.State == Ejected && !b.trial.Load() && (first == 0 || s.Until.UnixNano() < first) {
			first = s.Until.UnixNano()
		}
	}
	p.trials.Store(first)
}

// trialPause is how long nobody looks again where the backend that should be
// tried takes nothing: it is full of older streams.
const trialPause = 100 * time.Millisecond

// overdue is the backend that should be tried now; nil where there is none. A
// stream with a key belongs elsewhere.
func (c *choice) overdue() *Backend {
	first, now := c.pool.trials.Load(), c.now
	if first == 0 || now.UnixNano() <= first || c.ask.Hash != 0 {
		return nil
	}
	for _, b := range c.list {
		if b.trying() && c.fits(b) {
			return b
		}
	}
	c.pool.trials.CompareAndSwap(first, now.Add(trialPause).UnixNano())
	return nil
}
