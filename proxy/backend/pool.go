package backend

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrNone says that a pool has no backend that may take a stream.
	ErrNone = errors.New("no usable backend")
	// ErrFull says that every backend that may take the stream has as many as
	// it may, or that others wait for a place already: the stream can Wait.
	ErrFull = errors.New("every usable backend is full")
)

// Pool is the backends for one kind of work. A pick loads what is agreed of
// them now, and takes no lock; control publishes it anew with every change.
type Pool struct {
	Name string

	hooks Hooks
	now   atomic.Pointer[set]
	queue queue
	mu    sync.Mutex // held while backends join, leave or change state; never by a pick. Taken before the queue's
}

// set is a pool's backends and rules at one moment. It never changes.
type set struct {
	rules Rules
	list  []*Backend // in the order of the configuration
}

// Hooks tell others of changes, one at a time. They must not block, and not
// call back into the Pool.
type Hooks struct {
	Joined  func(*Backend) any       // before the first pick; the answer becomes Backend.Beside. nil: nobody asks
	Changed func(*Backend, Standing) // after each change of state. nil: nobody asks
	Left    func(*Backend)           // once it is removed and its last stream has ended. nil: nobody asks
}

// Rules hold for all backends of a pool.
type Rules struct {
	Outlier    OutlierConfig
	MaxStreams int           // of a backend that names no cap of its own; 0: none
	MaxWaiting int           // streams that wait for a place; 0: none may
	MaxWait    time.Duration // for a place; 0: no limit
}

// NewPool makes a pool of valid configurations.
func NewPool(name string, configs []Config, rules Rules, hooks Hooks) (*Pool, error) {
	p := &Pool{Name: name, hooks: hooks}
	p.queue.pool = p
	p.now.Store(&set{})
	return p, p.Update(configs, rules, time.Now())
}

// Backends are the pool's backends now, in the order of the configuration. The
// slice is the pool's.
func (p *Pool) Backends() []*Backend { return p.now.Load().list }

// Ask is what a stream asks of a pick.
type Ask struct {
	Tried []*Backend // pass these over
	Only  *Backend   // take this one; nil: any
}

// Pick chooses a backend by power of two choices: of two that are drawn, the
// one with fewer streams for its weight (Mitzenmacher 2001). The stream is
// counted at once, and never over a backend's cap. It fails with ErrNone or
// ErrFull, and takes no lock.
func (p *Pool) Pick(now time.Time, ask Ask) (Lease, error) {
	if p.queue.open.Load() > 0 && p.mayServe(now, ask) {
		return Lease{}, ErrFull // a place that became free is somebody else's
	}
	return p.pick(now, ask)
}

// pick is Pick without respect for those who wait.
func (p *Pool) pick(now time.Time, ask Ask) (Lease, error) {
	for {
		b, trial := p.choose(now, ask)
		if b == nil {
			break
		}
		if l, ok := b.claim(trial); ok {
			return l, nil
		}
	}
	if p.mayServe(now, ask) {
		return Lease{}, ErrFull
	}
	return Lease{}, ErrNone
}

// choose takes the better of two draws; nil where none has room.
func (p *Pool) choose(now time.Time, ask Ask) (b *Backend, trial bool) {
	first, trial := p.draw(now, ask, nil)
	if first == nil || trial || len(p.among(ask)) == 1 {
		return first, trial
	}
	second, trial := p.draw(now, ask, first)
	if second != nil && (trial || second.load() < first.load()) {
		return second, trial
	}
	return first, false
}

// mayServe tells whether the pool has a backend for the stream, be it full.
func (p *Pool) mayServe(now time.Time, ask Ask) bool {
	for _, b := range p.among(ask) {
		if !slices.Contains(ask.Tried, b) && b.open(now) {
			return true
		}
	}
	return false
}

// among are the backends that the stream may go to, those it tried included.
func (p *Pool) among(ask Ask) []*Backend {
	if ask.Only == nil {
		return p.Backends()
	}
	return ask.Only.alone
}

// load is what the next stream would make of the backend: streams per weight.
func (b *Backend) load() float64 {
	return float64(b.inFlight.Load()+1) / float64(b.terms.Load().Weight)
}

// redraws is how often draw takes one at random before it goes over all.
const redraws = 8

// draw takes a backend that may be used, has room and is not drawn yet. In
// place of one that may not be used it draws again: going on to the next would
// give whoever stands behind an ejected backend the streams of both.
func (p *Pool) draw(now time.Time, ask Ask, drawn *Backend) (b *Backend, trial bool) {
	list := p.among(ask)
	n := len(list)
	if n == 0 {
		return nil, false
	}
	start := rand.IntN(n)
	for i := range redraws + n {
		at := (start + i) % n
		if i < redraws {
			at = rand.IntN(n)
		}
		b := list[at]
		if b == drawn || slices.Contains(ask.Tried, b) || b.full() {
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
	for _, b := range p.Backends() {
		if b.standing.Load().State == Active {
			n++
		}
	}
	return n
}
