package backend

import (
	"cmp"
	"errors"
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

	Random func() uint64 // chance; nil: the runtime's. Set before the first pick

	// Tight hears that a stream took or gave back one of the last places at a
	// backend whose cap counts over the cluster: other nodes should know soon. It
	// is called by streams, so it must not wait; nil: nobody is told. Set before
	// the first pick.
	Tight func()

	hooks     Hooks
	now       atomic.Pointer[set]
	queue     queue
	turn      atomic.Uint64 // of the policies that go by turns
	flights   atomic.Uint64 // streams at the backends in the low countBits bits; in the others, how many there ever were
	elsewhere bits          // streams of other nodes at the backends
	lately    bits          // streams a second that begin at this node
	others    bits          // and at the other nodes, as they say
	unit      bits          // events a second of a stream alone at a median backend, or answers; 0: not known yet
	fewer     atomic.Int64  // than mostDraws are drawn
	made      time.Time     // the moment 0 of the signals
	mood

	hearing sync.Mutex // guards what follows; nothing else is locked before it
	said    map[string]Elsewhere
	carried map[string]Elder

	expecting atomic.Bool // older processes have not told yet what they carry

	mu       sync.Mutex // held while backends join, leave or change state, and by Sample; never by a pick. Taken before the queue's
	chosen   *Placement // the operator's policies, which beat the rules'; nil: none
	sampled  time.Time
	started  uint64  // streams that there ever were, at the last sample
	arrivals float64 // streams a second, at this node
	usual    usual
	scratch  []float64
}

// oneStart is one stream more that there ever was, in Pool.flights.
const oneStart = 1 << countBits

// set is a pool's backends and rules at one moment, and what is made of them for
// the picks. It never changes.
type set struct {
	rules     Rules
	list      []*Backend // in the order of the configuration
	named     map[string]*Backend
	placement Placement // the rules', or the operator's
	policy    policy
	second    policy  // nil: none
	weight    float64 // of a mean backend
	knee      float64
	hashes    string // the policy that goes by a key; empty: none
}

// adopt publishes a list and rules, with the policies made for them. mu is
// held, or nobody else has the pool yet.
func (p *Pool) adopt(list []*Backend, rules Rules) {
	s := &set{rules: rules, list: list, named: make(map[string]*Backend, len(list)), placement: rules.Placement, weight: 1}
	if p.chosen != nil {
		s.placement.Policy = p.chosen.Policy
		if p.chosen.Second != "" {
			s.placement.Second, s.placement.Share = p.chosen.Second, p.chosen.Share
		}
	}
	s.placement.Policy = cmp.Or(s.placement.Policy, rules.Placement.Policy, StepTime)
	s.knee = float64(cmp.Or(rules.Placement.Knee, usualKnee))
	sum := 0
	for _, b := range list {
		sum += b.terms.Load().Weight
		s.named[b.ID] = b
	}
	if sum > 0 {
		s.weight = float64(sum) / float64(len(list))
	}
	for _, name := range []string{s.placement.Second, s.placement.Policy} {
		if name == ConsistentHash || name == IPHash {
			s.hashes = name
		}
	}
	s.policy = newPolicy(s.placement.Policy, s)
	if s.placement.Second != "" && s.placement.Share > 0 {
		s.second = newPolicy(s.placement.Second, s)
	}
	p.now.Store(s)
}

// usualKnee is the knee where nobody says: a factor of four either way costs
// less than 2 % of the slowest streams' time.
const usualKnee = 32

// Hooks tell others of changes, one at a time. They must not block, and not
// call back into the Pool.
type Hooks struct {
	Joined  func(*Backend) any                               // before the first pick; the answer becomes Backend.Beside. nil: nobody asks
	Changed func(*Backend, Standing)                         // after each change of state. nil: nobody asks
	Told    func(Event)                                      // likewise, and when a panic begins or ends. nil: nobody asks
	Drained func(b *Backend, took time.Duration, left int64) // a drain is over, with so many streams left. nil: nobody asks
	Left    func(*Backend)                                   // once it is removed and its last stream has ended. nil: nobody asks
}

// Rules hold for all backends of a pool.
type Rules struct {
	Outlier    OutlierConfig
	Health     HealthConfig
	Placement  Placement
	MaxStreams int           // of a backend that names no cap of its own; 0: none
	MaxWaiting int           // streams that wait for a place; 0: none may
	MaxWait    time.Duration // for a place; 0: no limit
}

// NewPool makes a pool of valid configurations.
func NewPool(name string, configs []Config, rules Rules, hooks Hooks, now time.Time) (*Pool, error) {
	p := &Pool{Name: name, hooks: hooks, made: now, sampled: now}
	p.queue.pool = p
	p.adopt(nil, rules)
	return p, p.Update(configs, rules, now)
}

// Backends are the pool's backends now, in the order of the configuration. The
// slice is the pool's.
func (p *Pool) Backends() []*Backend { return p.now.Load().list }

// Ask is what a stream asks of a pick.
type Ask struct {
	Tried []*Backend // pass these over
	Only  *Backend   // take this one; nil: any
	Bound bool       // it goes to Only although that drains: what is bound there stays until it is moved
	Hash  uint64     // of the key that policies which hash go by; 0: it has none
}

// Pick chooses a backend by the pool's policy. The stream is counted at once,
// and never over a cap that was configured. It fails with ErrNone or ErrFull,
// and takes no lock.
func (p *Pool) Pick(now time.Time, ask Ask) (Lease, error) {
	if p.queue.open.Load() > 0 && p.mayServe(now, ask) {
		return Lease{}, ErrFull // a place that became free is somebody else's
	}
	return p.pick(now, ask)
}

// pick is Pick without respect for those who wait.
func (p *Pool) pick(now time.Time, ask Ask) (Lease, error) {
	s := p.now.Load()
	c := choice{pool: p, set: s, list: s.list, ask: ask, now: now}
	second := s.second != nil && p.float() < s.placement.Share
	for {
		b := c.take(second)
		if b == nil {
			break
		}
		ok, trial := b.takes(&ask, now)
		if !ok {
			continue // it was, a moment ago
		}
		if l, ok := b.claim(now, trial); ok {
			if second {
				l.word |= isSecond
			}
			return l, nil
		}
	}
	if p.mayServe(now, ask) {
		return Lease{}, ErrFull
	}
	return Lease{}, ErrNone
}

// take is the backend that the stream should go to; nil where none fits.
func (c *choice) take(second bool) *Backend {
	switch {
	case c.ask.Only != nil:
		if c.fits(c.ask.Only) {
			return c.ask.Only
		}
		return nil
	case len(c.list) == 0:
		return nil
	}
	if b := c.overdue(); b != nil {
		return b
	}
	if second {
		return c.set.second.choose(*c)
	}
	return c.set.policy.choose(*c)
}

// mayServe tells whether the pool has a backend for the stream, be it full.
func (p *Pool) mayServe(now time.Time, ask Ask) bool {
	if ask.Only != nil {
		return !slices.Contains(ask.Tried, ask.Only) && ask.Only.admits(&ask, now)
	}
	for _, b := range p.Backends() {
		if !slices.Contains(ask.Tried, b) && b.open(now) {
			return true
		}
	}
	return false
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
