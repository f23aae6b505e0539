package proxy

import (
	"bytes"
	"errors"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// relay passes the answer on to its last byte; an event stream may be handed on
// before, with wire.ErrDetached.
func (s *Stream) relay() error {
	c := s.client
	if c.resp.Status == 101 {
		return s.tunnel()
	}
	plain := c.resp.Length == wire.Chunked && c.req.HTTP10
	c.close = c.close || plain || c.resp.Length == wire.UntilClose || c.leaves() || !c.bodyRead()
	l, err := s.answer(Streaming)
	if err != nil {
		return err
	}
	c.down = wire.Relay{
		From: &l.End, To: &c.conn.End, Length: c.resp.Length, Plain: plain,
		ReadIdle: s.pool.cfg.Timeouts.StreamIdle, WriteIdle: c.gate.timeouts.WriteIdle, Sent: &s.out, Later: s.later(),
		Events: c.counted(), Pace: s.pace(),
	}
	if err = s.down(); err == wire.ErrDetached {
		return err
	}
	return s.finish(err)
}

// finish ends the exchange after the answer, whose relay ended with err. The
// link goes back to its pool where both sides ended cleanly.
func (s *Stream) finish(err error) error {
	c := s.client
	err = s.broken(err)
	whole := s.endUpload() && err == nil
	l := s.letGo()
	if l == nil {
		return err
	}
	if b := s.lease.Backend(); whole && !c.resp.Close && len(l.Buffered()) == 0 {
		s.pool.keep(b, l)
	} else {
		s.pool.drop(b, l)
	}
	return err
}

// answer says that the answer begins: from here the client can be told nothing
// else.
func (s *Stream) answer(phase Phase) (*wire.Link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cutError(); err != nil {
		return s.link, err
	}
	s.answered, s.phase = true, phase
	return s.link, nil
}

func (s *Stream) down() error {
	c := s.client
	a := wire.Answering{HTTP10: c.req.HTTP10, Close: c.close, Cookie: s.cookie()}
	if s.pool.cfg.Headers.ExposeBackend {
		a.Backend = s.lease.Backend().ID
	}
	c.out = c.resp.AppendAnswer(c.out[:0], a)
	return c.down.Run(c.out)
}

// broken says what the failure of an answer under way means. The client sees
// it by a missing end; where the end is the connection's own, by a reset.
func (s *Stream) broken(err error) error {
	if err == nil {
		return nil
	}
	if c := s.client; c.down.Length == wire.UntilClose || c.down.Plain {
		c.ending = endReset
	}
	var source *wire.SourceError
	if errors.As(err, &source) {
		return sourceFailure(source.Err)
	}
	return sinkFailure(err)
}

func sourceFailure(err error) error {
	if errors.Is(err, wire.ErrIdle) {
		return &failure{reason: backend.Idle, message: "the backend sent nothing for too long", timeout: "stream_idle", err: err}
	}
	return &failure{reason: backend.BackendBroke, message: "the backend broke off its answer", err: err}
}

func sinkFailure(err error) error {
	if errors.Is(err, wire.ErrIdle) {
		return &failure{reason: backend.ClientSlow, message: "the client took nothing for too long", timeout: "write_idle", err: err}
	}
	return &failure{reason: backend.ClientLeft, message: "the client closed its connection", err: err}
}

// upload sends the rest of the body while the answer is awaited.
func (s *Stream) upload(l *wire.Link) {
	s.keep()
	s.begun = true
	c := s.client
	c.up.To = &l.End
	done := make(chan struct{})
	s.uploaded = done
	go func() {
		defer close(done)
		if s.upErr = c.up.Run(nil); s.upErr == nil {
			s.sentAt.Store(time.Now().UnixNano())
			c.conn.Watch(false) // nobody reads from the client any more
			s.expectHead()
			return
		}
		var source *wire.SourceError
		if errors.As(s.upErr, &source) && !errors.Is(s.upErr, wire.ErrInterrupted) {
			s.abandon(bodyFailure(source, s.pool))
		}
		var sink *wire.SinkError
		if errors.As(s.upErr, &sink) {
			s.deaf(sink.Err)
		}
	}()
}

// pour sends a request that is at hand as a whole, and larger than the kernel
// may take at once, while the answer is awaited.
func (s *Stream) pour(l *wire.Link) {
	rest := bytes.Clone(l.Begin(s.client.out)) // an early answer's head is written where it stands
	if len(rest) == 0 {
		return
	}
	done := make(chan struct{})
	s.uploaded = done
	go func() {
		defer close(done)
		if s.upErr = l.Write(rest, s.pool.cfg.Timeouts.StreamIdle); s.upErr == nil {
			s.sentAt.Store(time.Now().UnixNano())
			s.expectHead()
			return
		}
		s.deaf(s.upErr)
	}()
}

// deaf gives up a stream whose backend took nothing of the request for too long.
// One that has answered already, or closed, is for the reader of the answer to
// tell.
func (s *Stream) deaf(err error) {
	s.mu.Lock()
	waits, id := s.live && !s.answered && s.phase == Waiting, s.id
	s.mu.Unlock()
	if waits && errors.Is(err, wire.ErrIdle) {
		f := tookNothing(err)
		f.of = id
		s.abandon(f)
	}
}

// sent tells whether the whole request was sent.
func (s *Stream) sent() bool {
	if s.uploaded == nil {
		return s.client.up.Ended() && s.upErr == nil
	}
	select {
	case <-s.uploaded:
		return s.upErr == nil
	default:
		return false
	}
}

// lastWrite waits a moment for a body that was read to its end: its last write
// is done, or blocked by a backend that has answered without reading it.
func (s *Stream) lastWrite() bool {
	if !s.read.Load() {
		return false
	}
	moment := time.NewTimer(50 * time.Millisecond)
	defer moment.Stop()
	select {
	case <-s.uploaded:
		return true
	case <-moment.C:
		return false
	}
}

// endUpload waits for the goroutine that sends the body, having it stop where
// it has not ended. It tells whether the whole body was sent.
func (s *Stream) endUpload() bool {
	if s.uploaded == nil {
		return s.sent()
	}
	if !s.sent() && !s.lastWrite() {
		s.mu.Lock()
		if s.link != nil {
			s.link.Interrupt()
		}
		s.mu.Unlock()
		s.client.conn.StopReading()
		<-s.uploaded
		s.client.conn.ResumeReading()
	}
	s.uploaded = nil
	s.headCame()
	return s.upErr == nil
}
