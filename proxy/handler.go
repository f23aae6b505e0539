package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// client is one client connection and the stream it carries, one at a time.
// What is not a Stream's belongs to the goroutine that serves it.
type client struct {
	server   *Server
	listener *listener
	conn     *wire.Conn
	addr     string // without port
	trusted  bool
	secure   bool // it came by TLS, to this node or to who relays it
	refused  refusal
	ousted   bool   // it had to make room; the server's mu guards it
	close    bool   // the connection ends after this exchange
	ending   ending // and how
	detached bool   // the answer goes on without this goroutine

	born   int64        // in ns since 1970
	rested atomic.Int64 // likewise, when its last stream had ended, or born while its first runs; 0: no request has come
	home   *home        // where it is counted; nil: nowhere

	stream Stream
	down   wire.Relay  // the answer's body
	events wire.Events // in the answer, where the log counts them

	*desk      // while a goroutine serves
	gist  gist // while none does
}

func newClient(s *Server, l *listener, nc net.Conn) *client {
	c := &client{server: s, listener: l, born: time.Now().UnixNano(), desk: s.sit(l)}
	c.secure = c.gate.keys != nil
	c.stream.client = c
	c.conn = wire.NewConn(s.dress(c.gate, nc), &s.stock, s.watcher, c)
	c.addr = "unknown"
	if at, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		ip := at.AddrPort().Addr().Unmap()
		c.addr, c.trusted = ip.String(), c.gate.trusts(ip)
	}
	return c
}

// Left hears from the watcher that the client closed its sending side.
func (c *client) Left() { c.stream.giveUp(backend.ClientLeft, "") }

// hangUp ends a connection that waits for another request. One that is about
// to bring its first gets a moment, to be told that it should go elsewhere.
func (c *client) hangUp() {
	if c.rested.Load() != 0 || time.Now().UnixNano()-c.born > int64(time.Second) {
		c.conn.HangUp()
	}
}

// serve carries one exchange after the other.
func (c *client) serve() {
	t := c.gate.timeouts
	c.conn.Serve(&c.req, wire.HeadLimits{Idle: t.KeepaliveIdle, Total: t.RequestHeader, Bytes: int(c.gate.cfg.MaxRequestHeader)}, c)
	if c.detached {
		c.detached = false
		c.detach()
		return
	}
	c.end()
}

// end closes the connection so that the last answer is what the client gets.
func (c *client) end() {
	switch c.ending {
	case endReset:
		c.conn.Reset()
	case endLinger:
		c.conn.Linger(2*time.Second, 16<<20)
	default:
		c.conn.Close()
	}
	c.server.clear(c.desk)
	c.desk = nil
	c.server.leave(c)
}

// ending is how a connection is closed.
type ending uint8

const (
	endClose  ending = iota
	endLinger        // the client may still be sending: a close would take the answer with it
	endReset         // the close must not look like the end of an answer
)

// Handle takes one request from its head to the last byte of its answer, and
// tells whether the connection can carry another.
func (c *client) Handle(err error) (again bool) {
	if nobody(err) {
		return false
	}
	c.gate = c.listener.gate.Load()
	c.close = err != nil || c.req.Close
	c.up, c.fields, c.bodyWait, c.told = wire.Relay{Length: c.req.Length}, nil, 0, ""
	if err == nil && c.ready() {
		return !c.close
	}
	c.rested.CompareAndSwap(0, c.born)
	c.stream.begin()
	c.identify()
	c.follow()
	if err == nil {
		err = c.carry()
	} else {
		err = headFailure(err)
	}
	if err == wire.ErrDetached {
		c.detached = true
		return false
	}
	return c.conclude(err)
}

// maxKeptOut is how much a connection holds for its next request's head, in bytes.
const maxKeptOut = 64 << 10

// conclude settles the stream and tells the client where it failed; it tells
// whether another request may follow.
func (c *client) conclude(err error) (again bool) {
	failed := c.stream.settle(err)
	c.rested.Store(time.Now().UnixNano())
	if failed == nil {
		again = c.keepsOpen()
	} else {
		again = c.refuse(failed) // the only place that knows statuses
	}
	c.record(failed)
	if cap(c.out) > maxKeptOut {
		c.out = nil
	}
	return again
}

// nobody tells whether there is no request, and so nobody to answer.
func nobody(err error) bool {
	if err == nil {
		return false
	}
	var network net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, wire.ErrIdle) ||
		errors.Is(err, wire.ErrInterrupted) || errors.As(err, &network)
}

// carry is the road of a request.
func (c *client) carry() error {
	p, err := c.admit()
	if err != nil {
		return err
	}
	if c.req.LastHop() {
		return c.lastHop()
	}
	if err := c.prepare(p); err != nil {
		return err
	}
	if err := c.stream.open(); err != nil { // up to the head of the answer
		return err
	}
	return c.stream.relay() // from here nothing can be tried again
}

// admit finds the pool, or says why the request is not taken in.
func (c *client) admit() (*pool, error) {
	switch {
	case c.refused != stays:
		c.close = true
		return nil, &failure{code: backend.TooManyConnections, reason: backend.Shed, message: c.refused.String()}
	case c.server.Draining():
		c.close = true
		return nil, &failure{code: backend.CodeDraining, reason: backend.Shed, message: "this node is draining; try another"}
	}
	p, err := c.route()
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, &failure{code: backend.NoRoute, reason: backend.Refused, message: "no route matches this host, path and method"}
	}
	if limit := p.cfg.Limits.MaxRequestBody; limit > 0 && c.req.Length > limit {
		c.stream.enter(p)
		return nil, tooLarge(limit)
	}
	return p, nil
}

// prepare finds what the stream is placed by, and writes down what is sent to a
// backend first: the head, and what of the body has come with it.
func (c *client) prepare(p *pool) error {
	c.stream.enter(p)
	c.adopt(p.cfg.Headers.RequestID)
	if err := c.stream.keyed(); err != nil {
		return err
	}
	t := p.cfg.Timeouts
	c.up = wire.Relay{
		Ours: &p.ours,
		From: &c.conn.End, Length: c.req.Length, Limit: p.cfg.Limits.MaxRequestBody,
		ReadIdle: t.RequestBodyIdle, WriteIdle: t.StreamIdle, Sent: &c.stream.in, Read: &c.stream.read,
	}
	c.out = c.appendHead(c.out[:0], "")
	c.body = len(c.out)
	var err error
	if c.out, err = c.up.Take(c.out); err != nil {
		return bodyFailure(err, p)
	}
	c.conn.Rest()
	c.stream.in.Store(int64(len(c.out) - c.body))
	return nil
}

func (c *client) appendHead(dst []byte, hostname string) []byte {
	p := c.stream.pool
	return c.req.AppendForward(dst, wire.Forwarding{
		Client: c.addr, TLS: c.secure, Trusted: c.trusted, Host: hostname, IDName: p.cfg.Headers.RequestID, RequestID: c.id,
		Trace: c.hop, NewTrace: c.parent == [8]byte{}, EpochName: p.epochHeader, Epoch: c.stream.epoch(),
	})
}

// ready answers the listener's ready_path.
func (c *client) ready() bool {
	if path := c.gate.cfg.ReadyPath; path == "" || string(c.req.Target) != path {
		return false
	}
	if c.close = c.close || c.leaves() || c.req.Length != 0; c.close && (c.req.Length != 0 || len(c.conn.Buffered()) > 0) {
		c.ending = endLinger // nobody reads the body, and a close would take the answer with it
	}
	status, text := "200 OK", "ready\n"
	if err := c.server.opt.Ready(); err != nil {
		status, text = "503 Service Unavailable", err.Error()+"\n"
	}
	if c.conn.Write(c.answer(status, "text/plain; charset=utf-8", "", text), c.gate.timeouts.WriteIdle) != nil {
		c.close = true
	}
	return true
}

// keepsOpen tells whether another request may follow a whole answer; where not,
// the connection is ended so that the answer is not lost.
func (c *client) keepsOpen() bool {
	if !c.close {
		return true
	}
	if !c.bodyRead() || len(c.conn.Buffered()) > 0 {
		c.ending = endLinger
	}
	return false
}

// bodyRead tells whether nothing of the request is left on the connection.
func (c *client) bodyRead() bool { return c.req.Length == 0 || c.stream.read.Load() }

// dialContext is the context of a connect: it ends when the stream is given up.
func (c *client) dialContext() (context.Context, context.CancelFunc) {
	return context.WithCancel(c.server.ctx)
}
