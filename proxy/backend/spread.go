package backend

import (
	"math"
	"time"
)

// Rate is how many events a second one stream alone would get from the backend,
// or answers where they come whole; 0: not known yet.
func (b *Backend) Rate() float64 { return b.Speed() * b.pool.unit.Load() }

// StepTime is the predicted time between two events of the next stream at the
// backend, in seconds, or to an answer where they come whole; 0: not known yet.
func (b *Backend) StepTime(now time.Time) float64 {
	rate := b.Rate()
	if rate == 0 {
		return 0
	}
	s := b.pool.now.Load()
	c := choice{pool: b.pool, set: s, list: s.list, now: now}
	return (s.knee + c.load(b)) / (s.knee * rate)
}

// Spread is how unlike the usable backends are in their predicted step times and
// in their streams: each the standard deviation over the mean. Step times are
// what p2c makes alike; with backends of unlike speed the streams should differ.
func (p *Pool) Spread(now time.Time) (stepTime, inFlight float64) {
	s := p.now.Load()
	c := choice{pool: p, set: s, list: s.list, now: now}
	var steps, streams moments
	for _, b := range s.list {
		if b.standing.Load().State != Active {
			continue
		}
		steps.add((s.knee + c.load(b)) / b.Speed())
		streams.add(float64(b.InFlight() + int64(b.elsewhere.Load().InFlight)))
	}
	return steps.variation(), streams.variation()
}

// moments of some values.
type moments struct{ n, sum, squares float64 }

func (m *moments) add(v float64) {
	m.n++
	m.sum += v
	m.squares += v * v
}

// variation is the standard deviation over the mean; 0 where there is none.
func (m *moments) variation() float64 {
	if m.sum == 0 {
		return 0
	}
	mean := m.sum / m.n
	return math.Sqrt(max(0, m.squares/m.n-mean*mean)) / mean
}
