package fault

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// conn is a connection under its label's rule. Without faults every call goes
// straight to the inner one.
type conn struct {
	net.Conn // the inner one
	net      *Net
	link     *link

	gone  chan struct{} // closed when the owner or a fault ended it: calls return
	dead  chan struct{} // closed when a fault ended it: delayed writes are lost
	owner atomic.Bool   // the owner closed it
	fault atomic.Pointer[ending]
	once  struct{ gone, dead, count sync.Once }

	in  reader
	out half
	lag lag
}

// ending is what a fault made of the connection.
type ending struct{ read, write error }

// half is one direction's account; its lock orders its callers as the
// descriptor's own would.
type half struct {
	mu       sync.Mutex
	deadline deadline
	seen     *setting // the rule under which passed was counted
	passed   int64
	free     time.Time // when the rate lets the next piece begin
}

func newConn(n *Net, l *link, inner net.Conn) *conn {
	return &conn{Conn: inner, net: n, link: l, gone: make(chan struct{}), dead: make(chan struct{})}
}

// NetConn is the connection beneath, without faults.
func (c *conn) NetConn() net.Conn { return c.Conn }

// rule is the rule in force; a new one starts its byte count afresh.
func (c *conn) rule(h *half) *setting {
	s := c.link.rule.Load()
	if s != h.seen {
		h.seen, h.passed, h.free = s, 0, time.Time{}
	}
	return s
}

// fit is how many of n bytes may go as one piece.
func (h *half) fit(w Way, n int) int {
	if w.Rate > 0 {
		n = min(n, max(1, w.Rate/100)) // a hundredth of a second
	}
	if w.CutAfter > 0 {
		n = int(min(int64(n), max(0, w.CutAfter-h.passed)))
	}
	return n
}

// book takes n bytes' time from the rate and says when they are through.
func (h *half) book(w Way, n int) time.Time {
	now := time.Now()
	if w.Rate <= 0 {
		return now
	}
	if h.free.Before(now) {
		h.free = now
	}
	h.free = h.free.Add(time.Duration(n) * time.Second / time.Duration(w.Rate))
	return h.free
}

func (h *half) spent(w Way) bool { return w.CutAfter > 0 && h.passed >= w.CutAfter }

// failure is what the owner is told instead of err once a fault ended the
// connection.
func (c *conn) failure(op string, err error) error {
	if c.owner.Load() {
		err = net.ErrClosed
	} else if e := c.fault.Load(); e != nil {
		err = e.read
		if op == "write" {
			err = e.write
		}
	}
	var known *net.OpError
	if err == nil || errors.Is(err, io.EOF) || errors.As(err, &known) {
		return err
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// end is a fault's: both peers see an end of stream or a reset.
func (c *conn) end(byReset bool) {
	e := &ending{read: io.EOF, write: os.NewSyscallError("write", syscall.EPIPE)}
	if byReset {
		e.read, e.write = os.NewSyscallError("read", syscall.ECONNRESET), os.NewSyscallError("write", syscall.ECONNRESET)
	}
	c.fault.CompareAndSwap(nil, e)
	c.once.dead.Do(func() { close(c.dead) })
	c.once.gone.Do(func() { close(c.gone) })
	if byReset {
		reset(c.Conn)
		return
	}
	if inner, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		inner.CloseWrite() // or unread bytes would turn the end into a reset
	}
	c.Conn.Close()
}

// Close sends what is delayed first, in the background, as a kernel does.
func (c *conn) Close() error {
	c.once.count.Do(func() { c.net.drop(c) })
	if c.owner.Swap(true) {
		return c.failure("close", net.ErrClosed)
	}
	c.once.gone.Do(func() { close(c.gone) })
	if c.lag.then(func() { c.Conn.Close() }) {
		return c.Conn.SetReadDeadline(time.Unix(1, 0)) // wakes a reader in there
	}
	err := c.Conn.Close()
	if c.fault.Load() != nil {
		return nil // closed before, but not by the owner
	}
	return err
}

// CloseWrite ends the Write direction once what is delayed is sent.
func (c *conn) CloseWrite() error {
	inner, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return c.failure("close", fmt.Errorf("half close of a %T: %w", c.Conn, errors.ErrUnsupported))
	}
	if c.lag.then(func() { inner.CloseWrite() }) {
		return nil
	}
	return inner.CloseWrite()
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.deadline.set(t)
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.deadline.set(t)
	return c.Conn.SetWriteDeadline(t)
}

// reset closes so that the peer sees a reset, where the transport has one.
func reset(c net.Conn) {
	inner := c
	for {
		u, ok := inner.(interface{ NetConn() net.Conn }) // TLS and the like
		if !ok {
			break
		}
		inner = u.NetConn()
	}
	if tcp, ok := inner.(*net.TCPConn); ok {
		tcp.SetLinger(0) // fails only on a closed connection
		tcp.Close()      // under TLS: no farewell
	}
	c.Close()
}
