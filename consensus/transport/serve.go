package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"
)

// Service is something that peers may ask for, besides Raft. It has Answer or
// Feed.
type Service struct {
	Open        bool          // also for nodes that have no cluster yet
	Placed      bool          // not for who is known to be at another address: it goes by who asks
	MaxQuestion int           // bytes; of a feed, of its opening message
	Concurrent  int           // calls at work at a time, or feeds open; more are refused
	MaxTime     time.Duration // a call's, whatever the caller grants; 0: 10 s

	// Answer is called for each question, side by side. Its error goes to the
	// caller as text.
	Answer func(ctx context.Context, from string, question []byte) ([]byte, error)

	// Feed is called for each feed that a peer opens, with its opening message;
	// the feed lasts until it returns.
	Feed func(ctx context.Context, from string, opening []byte, feed *Feed) error
}

type service struct {
	Service
	name  string
	slots chan struct{} // one per call at work
}

// Serve adds a service, before Start.
func (t *Transport) Serve(name string, s Service) {
	if t.listener != nil || t.services[name] != nil || (s.Answer == nil) == (s.Feed == nil) {
		panic("BUG: service " + name + " is added twice, late, or is not one of Answer and Feed")
	}
	if s.MaxTime == 0 {
		s.MaxTime = 10 * time.Second
	}
	t.services[name] = &service{Service: s, name: name, slots: make(chan struct{}, s.Concurrent)}
}

// serveCalls reads questions until the caller leaves.
func (t *Transport) serveCalls(c *conn, s *service) {
	out := newOutbox(c)
	defer func() {
		_ = c.Close()
		out.end(ErrStopped)
	}()
	if !t.start(out.writeLoop) {
		return
	}
	r := bufio.NewReader(c)
	for {
		f, err := readFrame(r, s.MaxQuestion)
		if e := (*sizeError)(nil); errors.As(err, &e) {
			_ = out.put(frame{tag: tagRefused, id: f.id, time: uint32(RefusedSize), body: []byte(e.Error())})
			_, err = r.Discard(e.size)
		} else if err == nil && f.tag != tagAsk {
			err = fmt.Errorf("a frame of tag %d where a question was due", f.tag)
		} else if err == nil {
			t.take(c, s, out, f)
		}
		if err != nil {
			return
		}
	}
}

// take starts the work on a question, if there is room.
func (t *Transport) take(c *conn, s *service, out *outbox, f frame) {
	code, text := RefusedBusy, fmt.Sprintf("%d are at work, which is the limit", s.Concurrent)
	select {
	case s.slots <- struct{}{}:
		t.mu.Lock()
		stopping := t.isStopping()
		if !stopping {
			t.serving.Go(func() { t.answer(c, s, out, f) })
		}
		t.mu.Unlock()
		if !stopping {
			return
		}
		<-s.slots
		code, text = RefusedStopping, "node "+t.Node+" is about to stop"
	default:
	}
	_ = out.put(frame{tag: tagRefused, id: f.id, time: uint32(code), body: []byte(text)}) // a full outbox: the caller's own time ends it
}

func (t *Transport) answer(c *conn, s *service, out *outbox, f frame) {
	limit := s.MaxTime
	if f.time > 0 {
		limit = min(limit, time.Duration(f.time)*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.ctx, limit)
	defer cancel()
	body, err := s.Answer(ctx, c.node, f.body)
	<-s.slots // before the answer: who has it may ask again
	a := frame{tag: tagAnswer, id: f.id, body: body}
	switch {
	case err != nil:
		a.tag, a.body = tagFailed, []byte(err.Error())
	case len(body) > maxAnswer:
		a.tag, a.body = tagFailed, fmt.Appendf(nil, "an answer of %d bytes, the limit is %d", len(body), maxAnswer)
	}
	_ = out.put(a)
	if t.isStopping() {
		out.settle() // Stop cuts the connection once nothing is at work
	}
}
