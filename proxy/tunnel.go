package proxy

import (
	"errors"
	"sync"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// tunnel passes bytes both ways after a change of protocol, until both
// directions have ended. The end of one is passed on as it came: a peer that
// closed its sending side may still be told something.
func (s *Stream) tunnel() error {
	c := s.client
	c.conn.Unwatch()
	c.close = true
	l, err := s.answer(Tunnelling)
	if err != nil {
		return err
	}
	idle := s.pool.cfg.Timeouts.TunnelIdle
	up := wire.Relay{From: &c.conn.End, To: &l.End, Length: wire.UntilClose, ReadIdle: idle, WriteIdle: idle, Sent: &s.in}
	c.down = wire.Relay{From: &l.End, To: &c.conn.End, Length: wire.UntilClose, ReadIdle: idle, WriteIdle: c.server.cfg.Timeouts.WriteIdle, Sent: &s.out}

	var once sync.Once
	var first error
	fail := func(err error) {
		once.Do(func() {
			first = err
			l.Interrupt()
			c.conn.Interrupt()
		})
	}
	var both sync.WaitGroup
	both.Go(func() {
		if err := s.oneWay(&up, nil); err != nil {
			fail(upFailure(err))
		} else if err := l.CloseWrite(); err != nil {
			fail(upFailure(&wire.SinkError{Err: err}))
		}
	})
	c.out = c.resp.AppendAnswer(c.out[:0], wire.Answering{})
	if err := s.oneWay(&c.down, c.out); err != nil {
		fail(downFailure(err))
	} else {
		_ = c.conn.CloseWrite() // a client that is gone shows in the other direction
	}
	both.Wait()
	if s.letGo() != nil {
		s.pool.drop(s.lease.Backend(), l)
	}
	return first
}

// oneWay passes one direction on to its end. It may be silent for as long as
// the other one is not.
func (s *Stream) oneWay(r *wire.Relay, head []byte) error {
	for {
		before := s.in.Load() + s.out.Load()
		err := r.Run(head)
		var source *wire.SourceError
		if !errors.As(err, &source) || !errors.Is(err, wire.ErrIdle) || s.in.Load()+s.out.Load() == before {
			return err
		}
		head = nil
	}
}

func upFailure(err error) error {
	var source *wire.SourceError
	switch {
	case errors.Is(err, wire.ErrIdle):
		return &failure{reason: backend.Idle, message: "the tunnel was silent for too long", timeout: "tunnel_idle", err: err}
	case errors.As(err, &source):
		return &failure{reason: backend.ClientLeft, message: "the client broke off the tunnel", err: err}
	}
	return &failure{reason: backend.BackendBroke, message: "the backend broke off the tunnel", err: err}
}

func downFailure(err error) error {
	var source *wire.SourceError
	switch {
	case errors.As(err, &source) && errors.Is(err, wire.ErrIdle):
		return &failure{reason: backend.Idle, message: "the tunnel was silent for too long", timeout: "tunnel_idle", err: err}
	case errors.As(err, &source):
		return &failure{reason: backend.BackendBroke, message: "the backend broke off the tunnel", err: err}
	}
	return sinkFailure(err)
}
