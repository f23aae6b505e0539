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
	leaver Leaver
	ahead  ahead

	request  *Request
	limits   HeadLimits
	handler  Handler
	headBy   time.Time // when the head that has begun must be complete
	skipped  int       // empty lines before it
	within   bool      // what take does runs inside a wait: nothing can be read there
	handOver bool      // a request waits to be handled outside
	over     bool

	turn atomic.Int32
	gone atomic.Bool
	dead atomic.Bool
}

// NewConn wraps a client connection. While it is watched, l hears when the
// client leaves. watcher may be nil.
func NewConn(nc net.Conn, stock *Buffers, watcher *Watcher, l Leaver) *Conn {
	c := &Conn{End: newEnd(nc, stock), leaver: l}
	c.enroll(watcher, c)
	if c.ticket != 0 && !c.byEdges {
		c.ahead.under = socketOf(nc)
	}
	return c
}

// RemoteAddr is the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// Whose turn it is at a connection: its owner's, who handles what came, or
// nobody's, and then it may be ended.
const (
	busy   int32 = iota
	idle         // waits for the first byte of a request
	begun        // waits for the rest of a head
	hungUp       // was ended in such a wait: what comes is not looked at
)

// Idle tells whether the connection waits for the first byte of a request.
func (c *Conn) Idle() bool { return c.turn.Load() == idle }

// HangUp interrupts a connection that waits for the first byte of a request, and
// no other: one that has just come is handled.
func (c *Conn) HangUp() {
	if c.turn.CompareAndSwap(idle, hungUp) {
		c.Interrupt()
	}
}

// Waits tells whether the connection waits for a request, or the rest of a head.
func (c *Conn) Waits() bool {
	turn := c.turn.Load()
	return turn == idle || turn == begun
}

// Oust is HangUp also where part of a head has come. It tells whether the
// connection waited.
func (c *Conn) Oust() bool {
	if !c.turn.CompareAndSwap(idle, hungUp) && !c.turn.CompareAndSwap(begun, hungUp) {
		return false
	}
	c.Interrupt()
	return true
}

// claim has the owner handle what came; false where the connection was ended
// first.
func (c *Conn) claim() bool {
	return c.turn.CompareAndSwap(idle, busy) || c.turn.CompareAndSwap(begun, busy) || c.turn.Load() == busy
}

// rest is the end of what claim began.
func (c *Conn) rest() { c.turn.CompareAndSwap(busy, idle) }

// Gone tells whether the client closed its sending side while it was watched.
func (c *Conn) Gone() bool { return c.gone.Load() }

// Broken tells whether the client reset the connection while it was watched by
// a Watcher: it takes nothing any more, which a FIN does not say.
func (c *Conn) Broken() bool { return c.dead.Load() }

func (c *Conn) broke() { c.dead.Store(true) }

// Handler is what a connection's requests are for.
type Handler interface {
	// Handle answers the request that was read, or the error that came
	// instead of it: io.EOF where the client closed between requests, ErrIdle
	// where it sent nothing, ErrHeadTimeout, ErrTooLarge and the errors of a
	// malformed head, which want an answer. It tells whether another request
	// may follow. It must not close the connection.
	Handle(err error) (again bool)
}

// Serve reads one request after the other into q and has h handle each, until
// it says that none may follow.
func (c *Conn) Serve(q *Request, limits HeadLimits, h Handler) {
	c.request, c.limits, c.handler, c.over = q, limits, h, false
	q.stock = c.stock
	c.rest()
	for !c.over {
		c.within = false
		if len(c.Buffered()) == 0 || !c.take() {
			c.within = c.byEdges
			c.fail(c.await(c, c.waits()))
		}
		if c.handOver && !c.over {
			c.handOver, c.within = false, false
			c.over = !h.Handle(nil)
		}
	}
	c.request = nil // whose it is may live longer, without it
}

// fail tells the handler what came instead of a request.
func (c *Conn) fail(err error) {
	if err == nil {
		return
	}
	c.over = true
	if len(c.Buffered()) > 0 { // in the middle of a head
		switch {
		case errors.Is(err, ErrIdle):
			err = ErrHeadTimeout
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		}
	}
	c.within = false
	c.request.Clear()
	c.handler.Handle(err)
}

// waits is how long the next byte may take: the next request's first, or the
// rest of a head that has begun.
func (c *Conn) waits() bound {
	if len(c.Buffered()) == 0 {
		c.headBy = time.Time{}
		return bound{idle: c.limits.Idle}
	}
	if c.headBy.IsZero() {
		c.headBy = deadline(c.limits.Total)
	}
	return bound{by: c.headBy}
}

// take handles the requests that are buffered, one after the other; true ends
// the reading: no other may follow, or one whose body is still to be read has
// to be handled elsewhere than here, where nothing can be read.
func (c *Conn) take() bool {
	if !c.claim() {
		c.request.Clear()
		c.over = !c.handle(ErrInterrupted)
		return true
	}
	for {
		n, err := c.nextHead()
		if n == 0 && err == nil {
			if len(c.Buffered()) == 0 {
				c.rest()
			} else {
				c.turn.CompareAndSwap(busy, begun)
			}
			c.bound = c.waits()
			return false
		}
		c.headBy = time.Time{} // the next head has its own time
		if err == nil {
			err = c.request.parse(c.Buffered()[:n])
			c.Discard(n)
		} else {
			c.request.Clear()
		}
		if err == nil && c.within && c.readsOn() {
			if c.grab(c.request.Length); c.readsOn() {
				c.handOver = true
				return true
			}
		}
		c.Rest() // a stream that waits holds no buffer
		again := c.handle(err)
		if !again {
			c.over = true
			return true
		}
	}
}

// handle calls the handler; meanwhile writes go to the descriptor directly,
// where a wait's callback holds it.
func (c *Conn) handle(err error) (again bool) {
	if c.within {
		c.fd = c.own
		defer func() { c.fd = -1 }()
	}
	return c.handler.Handle(err)
}

// readsOn tells whether handling the request takes more than what is buffered.
func (c *Conn) readsOn() bool {
	q := c.request
	return q.Upgrade != nil || q.Length == Chunked || q.Length > int64(len(c.Buffered()))
}

// nextHead is the length of the head that is buffered, 0 while it is not
// complete. Empty lines before it are skipped (RFC 9112 section 2.2), two of
// them.
func (c *Conn) nextHead() (int, error) {
	for b := c.Buffered(); len(b) > 0 && (b[0] == '\r' || b[0] == '\n'); b = c.Buffered() {
		if string(b) == "\r" {
			return 0, nil
		}
		if c.skipped++; c.skipped > 2 || b[0] != '\r' || b[1] != '\n' {
			return 0, ErrMalformed
		}
		c.Discard(2)
	}
	if len(c.Buffered()) == 0 {
		c.Rest()
		return 0, nil
	}
	n, err := c.head(c.limits.Bytes)
	if n > 0 || err != nil {
		c.skipped = 0
	}
	return n, err
}

// head is the length of the head at the start of the buffer, 0 while it is not
// complete; then the buffer has room for more.
func (e *End) head(limit int) (int, error) {
	b := e.Buffered()
	n := headEnd(b, min(int(e.looked), len(b)))
	if e.looked = 0; n > 0 && n <= limit {
		return n, nil
	} else if n > limit || len(b) >= limit {
		return 0, ErrTooLarge
	}
	e.looked = int32(len(b))
	if e.Full() {
		e.Reserve(2 * len(e.buf))
	}
	return 0, nil
}

// More reads once more of a body that is not wholly buffered, waiting until by.
// The buffer grows up to limit; ErrBodyTooLarge says that it is full. It must not be
// called where nothing can be read: while a request with a wholly buffered body
// is handled.
func (c *Conn) More(by time.Time, limit int) error {
	if c.within {
		panic("BUG: a read inside of a wait")
	}
	if c.Full() {
		if len(c.buf) >= limit {
			return ErrBodyTooLarge
		}
		c.Reserve(min(4*len(c.buf), limit))
	}
	return c.fill(bound{by: by})
}

// ReadRequest reads one head into q.
func (c *Conn) ReadRequest(q *Request, limits HeadLimits) error {
	one := &single{}
	c.Serve(q, limits, one)
	return one.err
}

// single is a handler of one request.
type single struct{ err error }

func (s *single) Handle(err error) bool {
	s.err = err
	return false
}

// Close closes the connection.
func (c *Conn) Close() {
	c.Unwatch()
	c.End.Close()
}

// Reset closes the connection with a reset.
func (c *Conn) Reset() {
	c.Unwatch()
	c.End.Reset()
}

// Linger closes a connection whose client may still be sending: it says that
// no more will come and reads on for a while, since a close with unread bytes
// would reset the connection and take the answer with it (RFC 9112 section
// 9.6).
func (c *Conn) Linger(limit time.Duration, bytes int) {
	c.Unwatch()
	if c.CloseWrite() == nil {
		by := time.Now().Add(limit)
		for bytes > 0 {
			c.r, c.w = 0, 0
			if c.fill(bound{by: by}) != nil {
				break
			}
			bytes -= c.w
		}
	}
	c.Close()
}
