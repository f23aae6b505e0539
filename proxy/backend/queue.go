package backend

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrSaturated says that as many streams wait as may.
	ErrSaturated = errors.New("the queue is full")
	// ErrWaited says that no place came free in time.
	ErrWaited = errors.New("waited too long for a place")
)

// queue holds the streams that wait for a place at a pool's backends, first
// come, first served among those that a backend may serve. A place that is
// given back while a stream waits for it is handed over, never free in between:
// nobody who comes later can take it, and one waiter wakes, with its place.
//
// Where nobody waits, picks and releases touch nothing here but two counts.
type queue struct {
	pool *Pool

	length atomic.Int64 // changes under mu
	open   atomic.Int64 // of them, those that any backend may serve

	mu      sync.Mutex // guards the rest; no other lock is taken under it
	waiters []*waiter
	again   *time.Timer // looks at the queue when an ejection ends; nil where none does, or nobody waits
}

// waiter is one stream in the queue.
type waiter struct {
	ask   Ask
	ready chan struct{} // closed once it left the queue with what follows
	lease Lease
	err   error
}

// Wait is Pick for those whom it told ErrFull. It fails with ErrSaturated,
// ErrWaited, ErrNone where no backend is left that might serve the stream, or
// ctx's error. It may succeed although ctx has ended.
func (p *Pool) Wait(ctx context.Context, ask Ask) (Lease, error) {
	q := &p.queue
	w, err := q.join(ask)
	if err != nil {
		return Lease{}, err
	}
	var over <-chan time.Time
	if most := p.now.Load().rules.MaxWait; most > 0 {
		timer := time.NewTimer(most)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-w.ready:
	case <-over:
		q.leave(w, ErrWaited)
	case <-ctx.Done():
		q.leave(w, ctx.Err())
	}
	return w.lease, w.err // no other goroutine has w now
}

// Waiting is the number of this node's streams that wait for a place.
func (p *Pool) Waiting() int64 { return p.queue.length.Load() }

// MaxWaiting is how many may.
func (p *Pool) MaxWaiting() int { return p.now.Load().rules.MaxWaiting }

// join appends a stream to the queue and serves whom it can, which may be that
// stream.
func (q *queue) join(ask Ask) (*waiter, error) {
	w := &waiter{ask: ask, ready: make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	// Counted before the look for a place: whoever gives one back and does not
	// see the stream in the queue has done so before that look.
	q.waiters = append(q.waiters, w)
	q.count(w, 1)
	q.match()
	if n := len(q.waiters); n > q.pool.now.Load().rules.MaxWaiting && q.waiters[n-1] == w {
		q.end(w, Lease{}, ErrSaturated)
		return nil, ErrSaturated
	}
	return w, nil
}

// leave takes a stream out of the queue, if it is still in it.
func (q *queue) leave(w *waiter, why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Contains(q.waiters, w) {
		q.end(w, Lease{}, why)
	}
}

// pass makes a stream's place at b that of the first who may have it; false
// where nobody may, or where b has more than its cap by now and the place is
// none, or is left to other nodes: handed on, it would be kept for as long as
// anybody waits.
func (q *queue) pass(b *Backend, now time.Time) bool {
	if room := b.room(); room >= 0 && b.flights.count() > room || b.yield() {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.waiters {
		if w.ask.Only != nil && w.ask.Only != b || slices.Contains(w.ask.Tried, b) {
			continue
		}
		if ok, trial := b.takes(&w.ask, now); ok {
			q.end(w, b.hand(now, trial), nil)
			return true
		}
	}
	return false
}

// review serves whom it can after something changed.
func (q *queue) review() {
	if q.length.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.match()
}

// match gives every place that is free to the first who may have it, and ends
// the wait of those for whom no backend is left. mu is held.
func (q *queue) match() {
	now, full := time.Now(), false
	for i := 0; i < len(q.waiters); {
		w := q.waiters[i]
		if full && !w.ask.Bound {
			i++
			continue
		}
		l, err := q.pool.pick(now, w.ask)
		if err != ErrFull {
			q.end(w, l, err)
			continue
		}
		if w.ask.Only == nil && len(w.ask.Tried) == 0 {
			full = true // there is no place for anybody, but one that drains for who is bound there
		}
		i++
	}
	q.wakeAt(q.pool.nextTrial(now), now)
}

// wakeAt has the queue looked at again at a moment; zero: never. mu is held.
func (q *queue) wakeAt(at, now time.Time) {
	if q.again != nil {
		q.again.Stop()
		q.again = nil
	}
	if !at.IsZero() && len(q.waiters) > 0 {
		q.again = time.AfterFunc(at.Sub(now)+1, q.review) // an ejection is over after its last instant
	}
}

// end takes a stream out of the queue and tells it what came of its wait. mu is
// held.
func (q *queue) end(w *waiter, l Lease, err error) {
	i := slices.Index(q.waiters, w)
	q.waiters = slices.Delete(q.waiters, i, i+1)
	q.count(w, -1)
	if len(q.waiters) == 0 {
		q.wakeAt(time.Time{}, time.Time{})
	}
	w.lease, w.err = l, err
	close(w.ready)
}

func (q *queue) count(w *waiter, by int64) {
	q.length.Add(by)
	if b := w.ask.Only; b != nil {
		b.waiting.Add(by)
	} else {
		q.open.Add(by)
	}
}
