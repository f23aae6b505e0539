package wire

import (
	"errors"
	"os"
	"sync"
	"time"
)

// ahead is how a connection is watched whose end cannot be seen from below it,
// or not alone: by reading what may be the next request.
//
// Without a descriptor a goroutine does so all the while. Under TLS the Watcher
// sees a peer that closes, but not one that only says so (close_notify): there
// the goroutine starts when something comes.
type ahead struct {
	under int // the descriptor below TLS; 0: none

	mu    sync.Mutex    // guards the rest, which the Watcher looks at
	waits bool          // for something to come
	done  chan struct{} // closed when the goroutine has ended; nil: none runs
}

// Watch begins to look out for the client's leaving, until Unwatch. unread
// says that the request's body is still being read, by another goroutine: it
// will see the end itself where the connection cannot be watched otherwise.
//
// A FIN counts as leaving, although a client may have closed its sending side
// only: the two look the same, and a backend must not work for nobody. So does
// its like in TLS.
func (c *Conn) Watch(unread bool) {
	switch {
	case c.ticket != 0 && c.gone.Load():
		c.leaver.Left()
	case unread, c.ticket != 0 && c.ahead.under == 0:
	case c.ticket != 0:
		c.listen()
	default:
		c.ahead.mu.Lock()
		defer c.ahead.mu.Unlock()
		if c.ahead.done == nil {
			c.readAhead()
		}
	}
}

// Unwatch ends what Watch began.
func (c *Conn) Unwatch() {
	a := &c.ahead
	a.mu.Lock()
	if a.waits {
		a.waits = false
		c.watcher.hear(a.under, c.ticket, false)
	}
	done := a.done
	a.done = nil
	a.mu.Unlock()
	if done != nil {
		c.readBy = past
		_ = c.nc.SetReadDeadline(longAgo())
		<-done
	}
}

func (c *Conn) left() {
	c.gone.Store(true)
	if c.byEdges {
		c.wake()
	}
	c.leaver.Left()
}

// listen has the Watcher tell when something comes, after a look at what TLS
// has read already: it may hold a whole record that nobody asked for yet.
func (c *Conn) listen() {
	a := &c.ahead
	a.mu.Lock()
	watched := a.waits || a.done != nil
	a.mu.Unlock()
	if watched {
		return
	}
	c.readBy = past
	_ = c.nc.SetReadDeadline(longAgo())
	open := c.readOn() // without the lock: TLS may have to write, and the Watcher waits for nobody
	c.Rest()
	if !open {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waits = true
	c.watcher.hear(a.under, c.ticket, true)
}

// arrived hears from the Watcher that something came.
func (c *Conn) arrived() {
	a := &c.ahead
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waits {
		a.waits = false
		c.readAhead()
	}
}

// readAhead reads in a goroutine of its own, until Unwatch, the end of the
// connection or a full buffer. ahead.mu is held.
func (c *Conn) readAhead() {
	_ = c.nc.SetReadDeadline(time.Time{}) // readBy is the owner's: Unwatch sets it
	done := make(chan struct{})
	c.ahead.done = done
	go func() {
		defer close(done)
		c.readOn()
	}()
}

// readOn reads what may be the next request until a deadline; false says that
// there is no use in going on: the connection has ended, or the buffer is full.
func (c *Conn) readOn() bool {
	if c.buf == nil {
		c.buf = c.stock.take(smallBuffer)
	}
	c.w = copy(c.buf, c.Buffered())
	c.r = 0
	for c.w < len(c.buf) {
		n, err := c.nc.Read(c.buf[c.w:])
		c.w += n
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return true
		case err != nil:
			c.left()
			return false
		}
	}
	return false
}
