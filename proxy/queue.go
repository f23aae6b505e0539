package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// maxWaiting bounds what queue.max_waiting may ask for: who leaves the queue is
// looked for one by one.
const maxWaiting = 10_000

// rules are what the configuration says of all the pool's backends.
func (c PoolConfig) rules() backend.Rules {
	return backend.Rules{Placement: c.placement(), Outlier: c.Outlier, Health: c.Health, MaxStreams: c.Backend.MaxStreams, MaxWaiting: c.Queue.MaxWaiting, MaxWait: c.Queue.Timeout}
}

// place takes a backend's place for the stream: its session's home, or any.
func (s *Stream) place() error {
	if s.visit != nil {
		return s.goHome()
	}
	return s.anywhere()
}

// anywhere takes a place at any backend, and waits for one while all are taken.
// Those tried before come last.
func (s *Stream) anywhere() error {
	err := s.claim(backend.Ask{Tried: s.tried, Hash: s.client.hashed})
	if errors.Is(err, backend.ErrNone) && len(s.tried) > 0 {
		err = s.claim(backend.Ask{Hash: s.client.hashed}) // no other is left: the same may have come back
	}
	return s.unplaced(err)
}

// unplaced says what it means that a stream got no place.
func (s *Stream) unplaced(err error) error {
	if err == nil {
		return nil
	}
	f := &failure{code: backend.Saturated, reason: backend.Shed, err: err}
	switch {
	case errors.Is(err, backend.ErrNone):
		f.code, f.message = backend.NoBackend, fmt.Sprintf("pool %s has no usable backend", s.pool.Name)
	case errors.Is(err, backend.ErrSaturated):
		f.message = fmt.Sprintf("every backend of pool %s is at its cap, and so is the queue", s.pool.Name)
	case errors.Is(err, backend.ErrWaited):
		f.message, f.timeout = fmt.Sprintf("no backend of pool %s had room in time", s.pool.Name), "queue"
	default:
		return err
	}
	return f
}

// claim takes a place, and notes which of two policies chose it.
func (s *Stream) claim(ask backend.Ask) error {
	err := s.take(ask)
	if err == nil {
		s.policy = chooser(s.pool.Placement(), &s.lease, ask)
	}
	return err
}

func (s *Stream) take(ask backend.Ask) (err error) {
	if s.lease, err = s.pool.Pick(time.Now(), ask); !errors.Is(err, backend.ErrFull) {
		return err
	}
	from := time.Now()
	cut := s.park(Queued, func(ctx context.Context) { s.lease, err = s.pool.Wait(ctx, ask) })
	wait := time.Since(from)
	s.queued += wait
	if !errors.Is(err, backend.ErrSaturated) {
		s.pool.shedding.waits.Observe(wait.Seconds())
	}
	if cut != nil {
		return cut // settle gives back a place that came too late
	}
	return err
}

// park waits for something that is no backend's answer, and for no longer than
// until the stream is given up, which it then fails with.
func (s *Stream) park(phase Phase, wait func(context.Context)) error {
	ctx, cancel := s.client.dialContext()
	defer cancel()
	s.mu.Lock()
	outer := s.cancel // of the question that this is a part of; nil: of none
	s.phase, s.cancel = phase, cancel
	err := s.cutError()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.client.conn.Watch(false) // whatever there is of a body, nobody reads it now
	wait(ctx)
	s.client.conn.Unwatch()
	if outer != nil {
		s.client.conn.Watch(false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.cancel = Placing, outer
	if s.cut != nil && outer != nil {
		outer()
	}
	return s.cutError()
}
