package backend

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Standing is a backend's state, and why and since when it has it.
type Standing struct {
	State  State
	Reason string
	Since  time.Time
	Until  time.Time // end of an ejection, deadline of a drain; zero otherwise
	Times  int       // ejections in a row

	anyway bool // the pool is in panic: it takes streams, however it stands
}

// Standing is the backend's state now.
func (b *Backend) Standing() Standing { return *b.standing.Load() }

// Slow tells whether health checks find the backend alive and slow. It weighs
// in the pick, and puts no backend out.
func (b *Backend) Slow() bool { return b.slow.Load() }

// vitals are how a backend is.
type vitals struct {
	standing  atomic.Pointer[Standing]
	condition condition     // that standing is made from
	trial     atomic.Bool   // an ejected backend's one trial stream is under way
	lent      time.Time     // until when the trial may be another process's; zero: it is not. Pool.mu guards it
	back      atomic.Uint64 // when it was let in again last, in microseconds since the pool was made; 0: it was not
	slow      atomic.Bool

	failures atomic.Int64             // in a row, before the first byte
	breaks   atomic.Int64             // in a row, of answers that had begun
	haunted  atomic.Pointer[phantoms] // nil: by none
	heard    atomic.Int64             // when a byte was known to have come last, in ns since 1970
	pulsed   atomic.Uint64            // what Listen saw of the streams last
	holding  atomic.Uint64            // stream that held a drain up last
}

// mood is how a pool is.
type mood struct {
	panics atomic.Bool
	trials atomic.Int64 // when the first ejection ends, in ns since 1970; 0: none that waits for its trial
	part   bits         // of all weights, that of the backends that take streams; 0: none does
	mean   atomic.Int64 // of how long streams last, in ns; 0: none has ended
}

// condition is what decides over a backend's state. Each part comes from
// somewhere else, and is kept while a stronger one hides it. The pool's mu
// guards it.
type condition struct {
	removed bool
	drain   *drain // nil: nobody asked for one
	verdict Verdict
	out     ejection

	looks  []Look    // from here, newest first; at most MaxLooks
	others []Witness // the other nodes' word
	alive  int       // nodes that check it and live, this one among them; 0 and 1: this one is alone
}

// standing is the state that the condition makes; because is why, where nothing
// speaks against the backend. The strongest comes first: whom nobody wants, whom
// the operator took out, who does not answer, who asks for patience, who failed
// on real streams.
func (c *condition) standing(because string) Standing {
	switch {
	case c.removed:
		return Standing{State: Removed, Reason: because}
	case c.drain != nil:
		return c.drain.standing()
	case c.verdict.Down:
		return Standing{State: Unhealthy, Reason: c.verdict.Reason}
	case c.verdict.NotReady:
		return Standing{State: Warming, Reason: c.verdict.Reason}
	case c.out.on:
		return Standing{State: Ejected, Reason: c.out.reason, Until: c.out.until, Times: c.out.times}
	}
	return Standing{State: Active, Reason: because}
}

// settle publishes the state that b's condition makes, if it is another; because
// as above. mu is held.
func (p *Pool) settle(b *Backend, now time.Time, because string) {
	next, old := b.condition.standing(because), b.standing.Load()
	if next.State != old.State || !next.Until.Equal(old.Until) {
		p.publishState(b, now, next)
	}
}

// publishState makes a state known, and has everybody think again. mu is held.
func (p *Pool) publishState(b *Backend, now time.Time, next Standing) {
	old := b.standing.Load()
	next.Since = now
	b.standing.Store(&next)
	if p.hooks.Changed != nil {
		p.hooks.Changed(b, next)
	}
	p.tell(Event{At: now, Pool: p.Name, Backend: b.ID, From: old.State, To: next.State, Reason: next.Reason})
	p.weigh(now)
	p.queue.review()
}

// Panic tells whether so few backends are usable that their health is ignored:
// the few would fall under the load of the rest.
func (p *Pool) Panic() bool { return p.panics.Load() }

// weigh finds out whether the pool is in panic. Backends that drain or start are
// out by their own or the operator's word, and count for neither side. mu is
// held.
func (p *Pool) weigh(now time.Time) {
	set := p.now.Load()
	usable, all, weights, taking := 0, 0, 0.0, 0.0
	for _, b := range set.list {
		switch b.standing.Load().State {
		case Active:
			usable, all = usable+1, all+1
		case Unhealthy, Ejected:
			all++
		}
	}
	panics := usable > 0 && usable*100 < set.rules.Outlier.PanicPercent*all
	for _, b := range set.list {
		s := *b.standing.Load()
		if anyway := panics && (s.State == Unhealthy || s.State == Ejected); s.anyway != anyway {
			s.anyway = anyway
			b.standing.Store(&s)
		}
		weight := float64(b.terms.Load().Weight)
		if weights += weight; s.State == Active || s.anyway {
			taking += weight
		}
	}
	p.part.Store(taking / max(1, weights))
	p.await()
	if p.panics.Swap(panics) == panics {
		return
	}
	reason := fmt.Sprintf("%d of %d backends are usable; below %d%% the health of the others is ignored", usable, all, set.rules.Outlier.PanicPercent)
	p.tell(Event{At: now, Pool: p.Name, Panic: panics, Reason: reason})
}

// open tells whether the backend takes streams, were it not for its cap.
func (b *Backend) open(now time.Time) bool {
	s := b.standing.Load()
	return s.State == Active || s.anyway || s.State == Ejected && now.After(s.Until) && !b.trial.Load()
}

// trying tells whether the next stream at the backend, which is open, decides
// over it.
func (b *Backend) trying() bool {
	s := b.standing.Load()
	return s.State == Ejected && !s.anyway
}

// usable tells whether the backend may take a stream now; trial says that the
// stream is the one that decides over an ejected backend. In a panic it takes
// others beside.
func (b *Backend) usable(now time.Time) (ok, trial bool) {
	s := b.standing.Load()
	switch {
	case s.State == Active:
		return true, false
	case s.State != Ejected || !now.After(s.Until) || !b.trial.CompareAndSwap(false, true):
		return s.anyway, false
	case b.standing.Load() == s:
		return true, true
	}
	b.trial.Store(false) // another trial has decided meanwhile
	return false, false
}
