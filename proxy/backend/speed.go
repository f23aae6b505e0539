package backend

import (
	"math"
	"slices"
	"time"
)

// How fast a backend is, is read from what its streams get while they run: the
// time between two tokens hardly depends on the size of a request, unlike any
// latency. Where answers come whole, the time to their heads has to do. Either
// is a rate of things per second of waiting for them, with the waiting that
// has brought nothing yet counted too, so that a backend that froze shows.

const (
	window      = 2 * time.Second  // of a reading, where enough comes in that time
	enough      = 64               // things in a window; where they take longer, so does the window
	memory      = 30 * time.Second // of a reading where nothing runs
	doubt       = 8                // events that a reading has to bring to count as much as the pool's median
	doubtHeads  = 20               // the same of heads, whose times are less alike
	few         = 4                // things that a backend has to bring for what is usual
	least       = 1.0              // events a second and stream: a pool with fewer is one of streams that idle
	fastest     = 8.0              // beside the median
	slowest     = 1.0 / 256
	lateness    = 4.0  // times a mean head's that one may take before it says more than its stream's tokens
	alike       = 1.25 // speeds that differ by less may be the same: readings of little traffic are that rough
	shortSample = time.Millisecond
)

// reading is what came in the time of a window, older things weighing less.
type reading struct {
	amount float64 // bytes or heads, as they would have come to a stream alone at the backend
	came   float64 // the same as they came
	things float64 // events or heads
	time   float64 // that streams spent waiting for them, in seconds
}

// fold takes in a sample of dt seconds. usual is how many things come in a
// second of waiting at the pool's backends; 0: unknown.
func (r *reading) fold(sample reading, dt, usual float64) {
	age := dt / window.Seconds() * min(1, sample.time/dt)
	if usual > 0 {
		age = min(dt/window.Seconds(), usual*sample.time/enough)
	}
	keep := math.Exp(-age - dt/memory.Seconds())
	r.amount = r.amount*keep + sample.amount
	r.came = r.came*keep + sample.came
	r.things = r.things*keep + sample.things
	r.time = r.time*keep + sample.time
}

// speed is the reading drawn towards what is expected, as if that had been seen
// for a time.
func (r *reading) speed(expected, time float64) float64 {
	return (r.amount + time*expected) / (r.time + time)
}

func (r *reading) add(o *reading) {
	r.amount += o.amount
	r.came += o.came
	r.things += o.things
	r.time += o.time
}

// pace is what Sample knows of a backend. Pool.mu guards it.
type pace struct {
	flown, answered, flowed, got, came uint64 // the signals at the last sample

	tokens  reading
	answers reading
	empty   float64 // seconds since a stream was there
	slots   slots
}

// vacant notes whether streams were there. What froze brought next to nothing,
// and when its streams have left nothing would say for minutes that it is well
// again: after a while it counts as unknown.
func (p *pace) vacant(yes bool, dt float64) {
	if p.empty += dt; !yes {
		p.empty = 0
	}
	for _, r := range []*reading{&p.tokens, &p.answers} {
		if p.empty > memory.Seconds() && r.things < few {
			*r = reading{}
		}
	}
}

// sample reads the signals since the last one, dt seconds ago.
func (b *Backend) sample(at uint64, dt float64) {
	flown, answered, flowed := b.flights.spent(at), b.answering.spent(at), b.flowing.spent(at)
	got, came := b.made.Load(), b.heads.Load()
	p, others, pool := &b.pace, b.elsewhere.Load(), b.pool
	inside, running := since(flown, p.flown), since(flowed, p.flowed)
	waiting := max(0, inside-since(answered, p.answered))
	events := float64((got - p.got) & countMask)
	bytes := float64(got>>countBits - p.got>>countBits)
	heads := float64(came - p.came)
	p.flown, p.answered, p.flowed, p.got, p.came = flown, answered, flowed, got, came
	p.vacant(inside == 0, dt)
	// With b streams at a backend each runs at 1/(1+(b-1)/knee) of the speed of
	// one alone, since they are batched: those that flow, and those whose first
	// token is being made, who are the rest up to the backend's cap.
	knee := pool.now.Load().knee
	alone := func(b float64) float64 { return 1 + max(0, b-1)/knee }
	batch := running/dt + float64(others.Running)
	p.slots.count(batch, inside/dt+float64(others.InFlight)-batch, dt)
	if slots := b.terms.Load().Cap; slots > 0 {
		batch = max(batch, min(float64(slots), inside/dt+float64(others.InFlight)))
	}
	p.tokens.fold(reading{bytes * alone(batch), bytes, events, running}, dt, pool.usual.tokens)
	p.answers.fold(reading{heads * alone(waiting/dt+float64(others.InFlight-others.Running)), heads, heads, waiting}, dt, pool.usual.answers)
}

// usual is what is usual at a pool's backends, so that one can be told from it.
type usual struct {
	tokens, answers float64 // things in a second of waiting, at a median backend; 0: too few came to tell
	streaming       bool    // answers come as they are made: tokens tell the speed
	median          float64 // speed; 0: unknown
	heads           float64 // mean speed of answers
	size            float64 // of an event in bytes; of an answer, 1
}

// Sample makes readings of the signals since the last call: speeds, learned
// caps, how many to draw. It is called every 100 ms or so; what a pick reads is
// as old as that.
func (p *Pool) Sample(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	dt := now.Sub(p.sampled)
	if dt < shortSample {
		return
	}
	p.sampled = now
	s, at := p.now.Load(), p.micros(now)
	review := false
	for _, b := range s.list {
		b.sample(at, dt.Seconds())
		review = b.elapse() || review
	}
	p.compare(s.list)
	p.publish(s.list)
	p.learnCaps(s.list, now, dt)
	p.adapt(s, dt)
	p.overdueLoans(now)
	if review {
		p.queue.review()
	}
}

// compare reads off the backends' readings what is usual. mu is held.
func (p *Pool) compare(list []*Backend) {
	var tokens, answers reading
	for _, b := range list {
		tokens.add(&b.tokens)
		answers.add(&b.answers)
	}
	u := &p.usual
	u.tokens = p.rate(list, tokens.things, func(b *Backend) *reading { return &b.tokens })
	u.answers = p.rate(list, answers.things, func(b *Backend) *reading { return &b.answers })
	u.streaming = u.tokens >= least
	u.heads, u.size = answers.amount/max(answers.time, 1e-9), 1
	if u.streaming {
		u.size = tokens.came / tokens.things
	}
}

// rate is how many things come in a second of waiting at a median backend; 0
// where too few came at all.
func (p *Pool) rate(list []*Backend, things float64, of func(*Backend) *reading) float64 {
	if things < doubt {
		return 0
	}
	rates := p.scratch[:0]
	for _, b := range list {
		if r := of(b); r.things >= few && r.time > 0 {
			rates = append(rates, r.things/r.time)
		}
	}
	p.scratch = rates
	return median(rates)
}

// reading is what tells the backend's speed, what is usual of it, and for how
// much of a time a median backend's is believed beside it. elsewhere is what
// other nodes read, 0 where they did not.
func (u *usual) reading(b *Backend) (r *reading, usual, prior, elsewhere float64) {
	if u.streaming {
		return &b.tokens, u.tokens, doubt / u.tokens, b.elsewhere.Load().Speed
	}
	return &b.answers, u.answers, doubtHeads / max(u.answers, 1e-9), 0 // each node has enough of these
}

// publish gives every backend its speed beside the pool's median. mu is held.
func (p *Pool) publish(list []*Backend) {
	u, speeds := &p.usual, p.scratch[:0]
	for _, b := range list {
		r, usual, prior, elsewhere := u.reading(b)
		tells := usual > 0 && r.time >= prior // by itself
		b.reading.Store(0)
		if tells && u.streaming {
			b.reading.Store(r.amount / r.time)
		}
		if tells {
			speeds = append(speeds, r.amount/r.time)
		} else if elsewhere > 0 {
			speeds = append(speeds, elsewhere)
		}
	}
	u.median, p.scratch = median(speeds), speeds
	p.unit.Store(u.median / u.size)
	for _, b := range list {
		v := min(fastest, max(slowest, u.speed(b)))
		b.speed.Store(v)
		b.coarse.Store(math.Pow(alike, math.Round(math.Log(v)/math.Log(alike))))
	}
}

// speed is the backend's beside the median; 1 where nothing is known. Where a
// backend has streams wait for its heads much longer than usual, that counts: it
// may hang before the first token.
func (u *usual) speed(b *Backend) float64 {
	r, usual, prior, expected := u.reading(b)
	if u.median == 0 || usual == 0 {
		return 1
	}
	if expected == 0 {
		expected = u.median
	}
	v := r.speed(expected, prior) / u.median
	if u.streaming && u.answers > 0 {
		v = min(v, lateness*b.answers.speed(u.heads, doubtHeads/u.answers)/u.heads)
	}
	return v
}

// median is the middle of the values, which it sorts; 0 where there are none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Reading is the backend's speed by what this node's own streams got there, in
// bytes a second of a stream alone, for other nodes to hear; 0: too few ran.
func (b *Backend) Reading() float64 { return b.reading.Load() }

// Speed is the backend's beside the median of its pool, by the last sample; 1
// where nothing is known.
func (b *Backend) Speed() float64 {
	if s := b.speed.Load(); s > 0 {
		return s
	}
	return 1
}
