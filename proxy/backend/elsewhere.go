package backend

import "time"

// Elsewhere is what the other nodes' last reports say of one backend, summed
// when it was made. It never changes: who hears something newer makes another.
type Elsewhere struct {
	Nodes    int     // live proxies that it was made of, this one not among them
	InFlight int     // their streams at the backend
	Running  int     // of them, those whose answer has begun
	Phantoms float64 // recent failures that still count as streams
	Speed    float64 // their reading of its speed, the freshest; 0: none has one
	Wanting  int     // of the nodes, those where streams wait that the backend may serve
	Stale    bool    // the reports are too old to add: reckon by own counts and Nodes
}

// Hear publishes what the other nodes say of the pool's backends, by id. A
// backend without an entry is unknown to them. Streams that wait may get places
// that became free elsewhere.
func (p *Pool) Hear(said map[string]Elsewhere) {
	p.hearing.Lock()
	defer p.hearing.Unlock()
	p.said = said
	p.hear()
}

// Elder is what older processes of this node still carry to a backend: streams that
// began before an upgrade. They count as this node's for all others, and as another
// node's where this one picks.
type Elder struct{ InFlight, Running int }

// Expect says that older processes may carry streams of which nothing is known yet:
// until Inherit no drain is over. It comes before the first Drain.
func (p *Pool) Expect() { p.expecting.Store(true) }

// Inherit publishes what they carry, by id, as Hear does.
func (p *Pool) Inherit(carried map[string]Elder) {
	p.hearing.Lock()
	p.carried = carried
	p.hear()
	p.hearing.Unlock()
	p.expecting.Store(false)
	now := time.Now()
	for _, b := range p.Backends() {
		if b.Standing().State == Draining {
			p.emptied(b, now)
		}
	}
}

// hear publishes both; hearing is held.
func (p *Pool) hear() {
	all := 0
	for _, b := range p.Backends() {
		e, elder := p.said[b.ID], p.carried[b.ID]
		b.elder.Store(&elder)
		e.InFlight += elder.InFlight
		e.Running += elder.Running
		b.elsewhere.Store(&e)
		all += e.InFlight
	}
	p.elsewhere.Store(float64(all))
	p.queue.review()
}

// Elder is what older processes of this node carry to the backend.
func (b *Backend) Elder() Elder { return *b.elder.Load() }

// Running is the number of this process's streams at the backend whose answer has
// begun.
func (b *Backend) Running() int64 { return b.flowing.count() }

// Carried is the number of this node's streams at the backend, with those of its
// older processes, which are as exact as their last word: some 20 ms old.
func (b *Backend) Carried() int64 { return b.InFlight() + int64(b.Elder().InFlight) }

// Report is what this node says of one backend to the others.
type Report struct {
	ID       string
	InFlight int
	Running  int
	Phantoms float64
	Speed    float64 // 0: no own reading
	Wanting  bool    // streams wait here that the backend may serve
	Draining bool
	Looks    []Look // the last health checks from here, newest first; at most MaxLooks
	Heard    int64  // when a byte came from it last, in ns since 1970 by this node's clock; 0: never
}
