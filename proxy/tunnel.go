package proxy

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// tunnel is what an exchange becomes by a change of protocol: bytes both ways
// until both directions have ended. The end of one is passed on as it came, for
// a peer that closed its sending side may still be told something. A reset by
// either side, and silence of both, end all of it, with a reset of what is
// open: an end that looks orderly has to be one.
//
// A client that is gone need not be told from one that closed its sending side
// only. Its FIN goes on to the backend, which mostly ends the tunnel by that.
// If it sends instead, the first bytes that reach a client which is gone are
// answered by a reset, and that ends the tunnel; if it keeps silent too,
// tunnel_idle does.
type tunnel struct {
	stream *Stream
	link   *wire.Link
	up     wire.Relay
	down   *wire.Relay
	idle   time.Duration
	ended  atomic.Bool // the backend's direction, in order

	once  sync.Once
	first error // what broke the tunnel, nil while nothing did
}

// tunnel carries a change of protocol to its end.
func (s *Stream) tunnel() error {
	s.client.conn.Unwatch()
	s.client.close = true
	t := s.newTunnel()
	l, err := s.answer(Tunnelling)
	if err != nil {
		return err
	}
	return t.run(l)
}

func (s *Stream) newTunnel() *tunnel {
	c, idle := s.client, s.pool.cfg.Timeouts.TunnelIdle
	t := &tunnel{stream: s, idle: idle, down: &c.down}
	look := max(idle/8, min(idle, 1)) // how often a silent direction looks at the other one
	t.up = wire.Relay{Length: wire.UntilClose, From: &c.conn.End, ReadIdle: look, WriteIdle: idle, Sent: &s.in}
	c.down = wire.Relay{Length: wire.UntilClose, To: &c.conn.End, ReadIdle: look, WriteIdle: c.gate.timeouts.WriteIdle, Sent: &s.out}
	if v, _ := c.resp.Field("upgrade"); bytes.EqualFold(v, []byte("websocket")) {
		t.up.Frames, t.down.Frames = &wire.Frames{}, &wire.Frames{}
		s.mu.Lock()
		s.framed = true
		s.mu.Unlock()
	}
	return t
}

func (t *tunnel) run(l *wire.Link) error {
	s, c := t.stream, t.stream.client
	t.link, t.up.To, t.down.From = l, &l.End, &l.End
	var upErr error
	var up sync.WaitGroup
	up.Go(func() { upErr = t.carry(&t.up, nil, upFailure) })
	c.out = c.resp.AppendAnswer(c.out[:0], wire.Answering{Cookie: s.cookie()})
	downErr := t.carry(t.down, c.out, downFailure)
	up.Wait()
	switch {
	case downErr != nil:
		c.ending = endReset
	case upErr != nil:
		c.ending = endLinger // what the backend sent last may still be on its way
	}
	if s.letGo() != nil {
		if upErr != nil {
			l.Reset()
		}
		s.pool.drop(s.lease.Backend(), l)
	}
	if _, parted := s.parting(); parted {
		return s.partFailure()
	}
	return t.first
}

// carry passes one direction on to its end, and the end with it; means says
// what its failure is.
func (t *tunnel) carry(r *wire.Relay, head []byte, means func(error) error) error {
	err := t.pass(r, head)
	var source *wire.SourceError
	if by, parts := t.stream.parting(); parts && errors.As(err, &source) && errors.Is(err, wire.ErrInterrupted) {
		return part(r, by, t.stream.client.server.partTime, r == &t.up)
	}
	if err == nil {
		if err = r.To.CloseWrite(); err != nil {
			err = &wire.SinkError{Err: err}
		}
	}
	switch {
	case err == nil:
		if r == t.down {
			t.ended.Store(true)
		}
	case t.ended.Load() && !errors.As(err, &source): // a backend that has said all may stop listening
	default:
		t.once.Do(func() {
			t.first = means(err)
			t.link.Interrupt()
			t.stream.client.conn.Interrupt()
		})
	}
	return err
}

// pass passes on what comes. A direction may be silent for as long as the other
// one is not.
func (t *tunnel) pass(r *wire.Relay, head []byte) error {
	moved, since := t.moved(), time.Now()
	for {
		err := r.Run(head)
		var source *wire.SourceError
		if !errors.Is(err, wire.ErrIdle) || !errors.As(err, &source) {
			return err
		}
		head = nil
		if now := t.moved(); now != moved {
			moved, since = now, time.Now()
		} else if time.Since(since) >= t.idle {
			return err
		}
	}
}

// moved is how many bytes have passed, either way.
func (t *tunnel) moved() int64 { return t.stream.in.Load() + t.stream.out.Load() }

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
