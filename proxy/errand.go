package proxy

import (
	"context"
	"sync"
	"time"
)

// errand is the context of a question that others are asked for a stream: it ends
// when the stream is given up. It is made only when somebody waits for it, since
// most questions are answered at once: a context costs a lock that all streams
// share. Who keeps it beyond the answer finds it ended.
type errand struct {
	stream *Stream

	mu     sync.Mutex // guards the rest
	open   bool       // the question is not answered yet
	ctx    context.Context
	cancel context.CancelFunc
}

// begin is for right before the question.
func (e *errand) begin() context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open = true
	return e
}

// begun is the context itself.
func (e *errand) begun() context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.ctx != nil:
		return e.ctx
	case !e.open:
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		return ended
	}
	s := e.stream
	e.ctx, e.cancel = s.client.dialContext()
	s.mu.Lock()
	s.cancel = e.cancel
	cut := s.cut != nil
	s.mu.Unlock()
	if cut {
		e.cancel()
	}
	s.client.conn.Watch(false) // whatever there is of a body, nobody reads it now
	return e.ctx
}

// over ends the errand, and is the failure of a stream that was given up.
func (e *errand) over() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stream
	e.open = false
	if e.ctx != nil {
		s.client.conn.Unwatch()
		e.cancel()
		e.ctx, e.cancel = nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.cancel = Placing, nil
	return s.cutError()
}

// Deadline implements context.Context.
func (e *errand) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (e *errand) Done() <-chan struct{} { return e.begun().Done() }

// Err implements context.Context.
func (e *errand) Err() error { return e.begun().Err() }

// Value implements context.Context.
func (e *errand) Value(key any) any { return e.begun().Value(key) }
