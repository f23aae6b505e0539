package wire

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// ErrHeadTimeout ends a head that began but did not come to its end in time.
var ErrHeadTimeout = errors.New("head took too long")

// HeadLimits bound the reading of a head.
type HeadLimits struct {
	Idle  time.Duration // until its first byte; 0: no limit
	Total time.Duration // from its first byte to its end; 0: no limit
	Bytes int           // at most this long
}

// Leaver hears that the peer of a watched connection has left. Left is called
// on a goroutine that many connections share: it must not block.
type Leaver interface{ Left() }

// Conn is one client connection.
type Conn struct {
	End
	leaver  Leaver
	watcher *Watcher
	ticket  ticket
	ahead   chan struct{} // closed when the portable watch has ended; nil: none runs
	idle    atomic.Bool
	gone    atomic.Bool
}

// NewConn wraps a client connection. While it is watched, l hears when the
// client leaves. watcher may be nil.
func NewConn(nc net.Conn, stock *Buffers, watcher *Watcher, l Leaver) *Conn {
	return &Conn{End: newEnd(nc, stock), watcher: watcher, leaver: l}
}

// RemoteAddr is the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// Idle tells whether the connection waits for the first byte of a request.
func (c *Conn) Idle() bool { return c.idle.Load() }

// Gone tells whether the client closed its sending side while it was watched.
func (c *Conn) Gone() bool { return c.gone.Load() }

// ReadRequest reads the next head into q. It fails with io.EOF where the
// client closed between requests, ErrIdle where it sent nothing, or
// ErrHeadTimeout, ErrTooLarge and the errors of a malformed head, which want
// an answer.
func (c *Conn) ReadRequest(q *Request, limits HeadLimits) error {
	c.idle.Store(true)
	err := c.awaitRequest(limits.Idle)
	c.idle.Store(false)
	if err != nil {
		return err
	}
	head, err := c.readHead(limits)
	if err != nil {
		return err
	}
	err = q.parse(head)
	c.Discard(len(head))
	return err
}

// awaitRequest waits for the first byte of a head. Empty lines before it are
// skipped (RFC 9112 section 2.2), a few of them.
func (c *Conn) awaitRequest(idle time.Duration) error {
	for skipped := 0; ; {
		for b := c.Buffered(); len(b) > 0; b = c.Buffered() {
			if b[0] != '\r' && b[0] != '\n' {
				return nil
			}
			if skipped++; skipped > 4 {
				return ErrMalformed
			}
			c.Discard(1)
		}
		c.Rest()
		if err := c.Fill(idle); err != nil {
			return err
		}
	}
}

// readHead returns the bytes of a head whose first byte is buffered; they stay
// buffered.
func (e *End) readHead(limits HeadLimits) ([]byte, error) {
	by := deadline(limits.Total)
	for searched := 0; ; {
		if n := headEnd(e.Buffered(), searched); n > 0 {
			if n > limits.Bytes {
				return nil, ErrTooLarge
			}
			return e.Buffered()[:n], nil
		}
		searched = e.w - e.r
		if searched >= limits.Bytes {
			return nil, ErrTooLarge
		}
		if e.Full() {
			e.Reserve(2 * len(e.buf))
		}
		switch err := e.fillBy(by, 0); {
		case errors.Is(err, ErrIdle):
			return nil, ErrHeadTimeout
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
	}
}

// Watch begins to look out for the client's leaving, until Unwatch. unread
// says that the request's body is still being read, by another goroutine: it
// will see the end itself where the connection cannot be watched otherwise.
//
// A FIN counts as leaving, although a client may have closed its sending side
// only: the two look the same, and a backend must not work for nobody.
func (c *Conn) Watch(unread bool) {
	if c.watcher != nil && c.ticket == 0 {
		c.ticket = c.watcher.add(c)
	}
	if c.ticket != 0 {
		if c.gone.Load() {
			c.leaver.Left()
		}
	} else if !unread && c.ahead == nil {
		c.readAhead()
	}
}

// Unwatch ends what Watch began.
func (c *Conn) Unwatch() {
	if c.ahead != nil {
		c.readBy = time.Unix(1, 0)
		_ = c.nc.SetReadDeadline(c.readBy)
		<-c.ahead
		c.ahead = nil
	}
}

func (c *Conn) left() {
	c.gone.Store(true)
	c.leaver.Left()
}

// readAhead watches a connection without a descriptor: it reads what may be
// the next request until the buffer is full, which ends the watch.
func (c *Conn) readAhead() {
	if c.buf == nil {
		c.buf = c.stock.take(smallBuffer)
	}
	c.w = copy(c.buf, c.Buffered())
	c.r = 0
	c.readBy = time.Time{}
	_ = c.nc.SetReadDeadline(c.readBy)
	done := make(chan struct{})
	c.ahead = done
	go func() {
		defer close(done)
		for c.w < len(c.buf) {
			n, err := c.nc.Read(c.buf[c.w:])
			c.w += n
			if err != nil {
				if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
					c.left()
				}
				return
			}
		}
	}()
}

// Close closes the connection.
func (c *Conn) Close() {
	c.Unwatch()
	c.forget()
	c.End.Close()
}

// Reset closes the connection with a reset.
func (c *Conn) Reset() {
	c.Unwatch()
	c.forget()
	c.End.Reset()
}

func (c *Conn) forget() {
	if c.ticket != 0 {
		c.watcher.remove(c.ticket)
		c.ticket = 0
	}
}

// Linger closes a connection whose client may still be sending: it says that
// no more will come and reads on for a while, since a close with unread bytes
// would reset the connection and take the answer with it (RFC 9112 section
// 9.6).
func (c *Conn) Linger(limit time.Duration, bytes int) {
	c.Unwatch()
	if c.CloseWrite() == nil {
		by := time.Now().Add(limit)
		for bytes > 0 && !c.gone.Load() {
			c.r, c.w = 0, 0
			if c.fillBy(by, 0) != nil {
				break
			}
			bytes -= c.w
		}
	}
	c.Close()
}
