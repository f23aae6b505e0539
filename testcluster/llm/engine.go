package llm

import (
	"context"
	"math"
	"sync"
	"time"
)

// engine keeps a batch at the wall clock's pace. Whoever changes the batch
// first advances it to now, so that a change counts from its own instant; the
// loop only wakes up for tokens that fall due between changes.
type engine struct {
	start time.Time
	wake  chan struct{} // the next token may be due at another time; capacity 1

	mu    sync.Mutex
	batch batch // brought up to now by every access
}

func newEngine(o Options) *engine {
	return &engine{
		start: time.Now(),
		wake:  make(chan struct{}, 1),
		batch: batch{
			prefill:   o.Prefill * o.Speed,
			decode:    o.Decode * o.Speed,
			knee:      float64(o.Knee),
			maxActive: o.MaxActive,
			maxQueue:  o.MaxQueue,
			factor:    1,
			warm:      newSessions(o.WarmSessions),
		},
	}
}

// submit takes a stream in; false if batch and queue are full.
func (e *engine) submit(j *job) (ok bool) {
	e.change(func(b *batch) { ok = b.add(j) })
	return ok
}

// cancel frees the place of a stream; nothing if it has none.
func (e *engine) cancel(j *job) { e.change(func(b *batch) { b.remove(j) }) }

// setFactor slows all streams from now on: 1 is full speed, 0 stands still.
func (e *engine) setFactor(f float64) { e.change(func(b *batch) { b.factor = f }) }

func (e *engine) forget() { e.change(func(b *batch) { b.warm.forget() }) }

func (e *engine) change(do func(*batch)) {
	e.mu.Lock()
	e.batch.advance(time.Since(e.start).Seconds())
	do(&e.batch)
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// load is what the engine holds at one moment.
type load struct {
	running, waiting, sessions int
	held                       int // tokens
	prompted, hit, generated   int64
}

func (e *engine) load() load {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := &e.batch
	b.advance(time.Since(e.start).Seconds())
	return load{
		running: len(b.active), waiting: len(b.queue), sessions: b.warm.order.Len(), held: b.held,
		prompted: b.prompted, hit: b.hit, generated: b.generated,
	}
}

func (e *engine) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-e.wake:
		}
		timer.Reset(e.step())
	}
}

// step hands out what is due and says for how long nothing will be.
func (e *engine) step() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batch.advance(time.Since(e.start).Seconds())
	wait := (e.batch.due() - e.batch.now) * float64(time.Second)
	return time.Duration(math.Ceil(min(wait, float64(time.Hour)))) // up, or it would wake before the token is due
}
