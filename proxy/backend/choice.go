package backend

import (
	"slices"
	"time"
)

// choice is one stream's question to a policy.
type choice struct {
	pool *Pool
	set  *set
	list []*Backend
	ask  Ask
	now  time.Time
}

// fits tells whether the stream can go to the backend.
func (c *choice) fits(b *Backend) bool {
	return !slices.Contains(c.ask.Tried, b) && b.admits(&c.ask, c.now) && !b.full()
}

const (
	leastShare = 0.1 // what a backend that starts slowly gets at once
	slowFactor = 2   // how many times fuller a backend counts whose checks are slow
)

// share is the backend's part beside a mean one of its pool: its weight, and in
// its slow start less.
func (c *choice) share(b *Backend) float64 {
	share := float64(b.terms.Load().Weight) / c.set.weight
	if c.set.rules.Placement.SlowStart > 0 {
		share *= c.warm(b)
	}
	return share
}

// warm is how far a backend's slow start has come, up to 1.
func (c *choice) warm(b *Backend) float64 {
	full := c.set.rules.Placement.SlowStart
	if full == 0 {
		return 1
	}
	return min(1, max(leastShare, float64(c.now.Sub(b.standing.Load().Since))/float64(full)))
}

// willing has a backend in its slow start take only a part of its turns.
func (c *choice) willing(b *Backend) bool {
	return c.set.rules.Placement.SlowStart == 0 || c.pool.float() < c.warm(b)
}

// streams is how many streams the backend would have with this one, the whole
// cluster's. Failures that are not forgiven count as streams, or a backend that
// fails at once would look idle.
func (c *choice) streams(b *Backend) float64 {
	n, e := float64(b.flights.count())+1, b.elsewhere.Load()
	failed := b.phantoms(c.now)
	if e.Stale {
		n += (n - 1) * float64(e.Nodes)
	} else {
		n += float64(e.InFlight)
		failed += e.Phantoms
	}
	if failed > 0 {
		mean := c.pool.inFlight() / float64(len(c.set.list))
		n += failed * max(1, mean*phantomWeight)
	}
	return n
}

// phantomWeight is what a failure weighs beside all streams of a mean backend:
// four make an empty one look like the rest.
const phantomWeight = 0.25

// load is the streams for a mean backend's share.
func (c *choice) load(b *Backend) float64 {
	n := c.streams(b)
	if b.Slow() {
		n *= slowFactor
	}
	return n / c.share(b)
}

// cost is what makes one backend better than another. A word and no function,
// so that a choice stays on its stack.
type cost uint8

const (
	byStep cost = iota // the predicted time between two tokens
	byLoad             // streams for its share
	byPeak             // that times the header time, slow ones remembered
	byMean             // that times the recent header time
)

// of is what the backend costs the stream.
func (k cost) of(c *choice, b *Backend) float64 {
	switch k {
	case byLoad:
		return c.load(b)
	case byPeak:
		return c.load(b) * c.header(b, &b.header.peak)
	case byMean:
		return c.load(b) * c.header(b, &b.header.mean)
	}
	return c.step(b)
}

// unheard is the header time, in seconds, of a backend that was asked and has
// never answered.
const unheard = 1e6

// header is the header time that the backend is reckoned with, by its mean or
// peak. While a stream waits for a head it does not fade, nor while failures
// count: a backend that hangs or fails would draw more with every second.
func (c *choice) header(b *Backend, v *bits) float64 {
	switch {
	case b.flights.count() <= b.answering.count() && b.phantoms(c.now) == 0:
		return b.header.now(v, c.micros())
	case b.header.at.Load() == 0:
		return unheard
	}
	return v.Load()
}

// micros is now as latency has it.
func (c *choice) micros() int64 { return int64(c.pool.micros(c.now)) + 1 }

// least takes, of all that fit, the cheapest; of equal ones the one with the
// shorter header time, else any.
func (c *choice) least(k cost) (best *Backend) {
	lowest, ties := 0.0, 1
	for _, b := range c.list {
		if !c.fits(b) {
			continue
		}
		if b.trying() {
			return b
		}
		v := k.of(c, b)
		if best != nil && v == lowest && k == byLoad {
			switch was, is := best.header.mean.Load(), b.header.mean.Load(); {
			case is > was:
				continue
			case is < was:
				best = nil
			}
		}
		switch {
		case best == nil || v < lowest:
			best, lowest, ties = b, v, 1
		case v == lowest:
			if ties++; below(c.pool.random(), ties) == 0 {
				best = b
			}
		}
	}
	return best
}

const (
	redraws  = 8 // how often drawn takes another in place of one that does not fit, before it goes over all
	MaxDraws = 8 // backends that a pick looks at where it draws, at most
)

// drawn takes the cheapest of d that are drawn evenly. In place of one that does
// not fit it draws again: going on to the next would give whoever stands behind
// an ejected backend the streams of both.
func (c *choice) drawn(d int, k cost) (best *Backend) {
	n := len(c.list)
	if n <= d {
		return c.least(k)
	}
	var taken [MaxDraws]int
	lowest, got, bits := 0.0, 0, uint64(0)
	for tries := 0; got < d && tries < d+redraws; tries++ {
		if bits >>= 32; tries%2 == 0 {
			bits = c.pool.random()
		}
		at := below(bits, n)
		if slices.Contains(taken[:got], at) {
			continue
		}
		b := c.list[at]
		if !c.fits(b) {
			continue
		}
		if b.trying() {
			return b
		}
		taken[got] = at
		got++
		if v := k.of(c, b); best == nil || v < lowest {
			best, lowest = b, v
		}
	}
	if best == nil {
		return c.least(k)
	}
	return best
}
