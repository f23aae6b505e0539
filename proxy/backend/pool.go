package backend

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// ErrNone says that a pool has no backend that may take a stream.
var ErrNone = errors.New("no usable backend")

// Pool is the backends for one kind of work. The list is fixed when the pool
// is made.
type Pool struct {
	Name     string
	Backends []*Backend

	outlier OutlierConfig
	onState func(*Backend, Standing)
	mu      sync.Mutex // held while a state changes; never by a pick
}

// NewPool makes a pool of valid configurations. onState hears of every change
// of a backend's state, one at a time; it must not block.
func NewPool(name string, configs []Config, outlier OutlierConfig, onState func(*Backend, Standing)) (*Pool, error) {
	p := &Pool{Name: name, outlier: outlier, onState: onState}
	for i, c := range configs {
		addr, err := ParseURL(c.URL)
		if err != nil {
			return nil, fmt.Errorf("backend %q of pool %q: %w", c.ID, name, err)
		}
		id := c.ID
		if id == "" {
			id = addr.Dial
		}
		b := &Backend{ID: id, URL: c.URL, Addr: addr, Weight: c.Weight, Slot: i}
		b.standing.Store(&Standing{State: Active, Reason: "configured", Since: time.Now()})
		p.Backends = append(p.Backends, b)
	}
	return p, nil
}

// Pick chooses a backend by power of two choices: of two that are drawn, the
// one with fewer streams for its weight (Mitzenmacher 2001). The stream is
// counted at once. Backends in tried are passed over while there is another;
// it fails with ErrNone.
func (p *Pool) Pick(now time.Time, tried []*Backend) (Lease, error) {
	if len(p.Backends) == 0 {
		return Lease{}, ErrNone
	}
	first, trial := p.draw(now, tried, nil)
	switch {
	case first == nil:
		return Lease{}, ErrNone
	case trial || len(p.Backends) == 1:
		return first.claim(trial), nil
	}
	second, trial := p.draw(now, tried, first)
	if second != nil && (trial || second.load() < first.load()) {
		return second.claim(trial), nil
	}
	return first.claim(false), nil
}

// load is what the next stream would make of the backend: streams per weight.
func (b *Backend) load() float64 { return float64(b.inFlight.Load()+1) / float64(b.Weight) }

// redraws is how often draw takes one at random before it goes over all.
const redraws = 8

// draw takes a backend that may be used and is not drawn yet. In place of one
// that may not be used it draws again: going on to the next would give whoever
// stands behind an ejected backend the streams of both.
func (p *Pool) draw(now time.Time, tried []*Backend, drawn *Backend) (b *Backend, trial bool) {
	n := len(p.Backends)
	start := rand.IntN(n)
	for i := range redraws + n {
		at := (start + i) % n
		if i < redraws {
			at = rand.IntN(n)
		}
		b := p.Backends[at]
		if b == drawn || slices.Contains(tried, b) {
			continue
		}
		if ok, trial := b.usable(now); ok {
			return b, trial
		}
	}
	return nil, false
}

// Usable counts the backends that take streams.
func (p *Pool) Usable() int {
	n := 0
	for _, b := range p.Backends {
		if b.standing.Load().State == Active {
			n++
		}
	}
	return n
}
