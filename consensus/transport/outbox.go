package transport

import (
	"errors"
	"net"
	"sync"
	"time"
)

var errFull = errors.New("too much waits to be written")

// outbox gathers frames and writes them in the background, as many as there are
// in one write, so that nobody who sends waits for the network.
type outbox struct {
	conn net.Conn
	wake chan struct{} // one place

	mu      sync.Mutex
	buf     []byte
	writing bool       // some of it is under way
	quiet   *sync.Cond // nothing waits, or it ended
	closed  error      // set once; nothing is taken any more
}

func newOutbox(c net.Conn) *outbox {
	o := &outbox{conn: c, wake: make(chan struct{}, 1)}
	o.quiet = sync.NewCond(&o.mu)
	return o
}

// put takes a frame, unless too much waits already.
func (o *outbox) put(f frame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed != nil:
		return o.closed
	case len(o.buf) > 0 && len(o.buf)+frameHead+len(f.body) > outboxBytes:
		return errFull
	}
	o.buf = f.append(o.buf)
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return nil
}

// end lets writeLoop return; what waits is not written.
func (o *outbox) end(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed == nil {
		o.closed = err
		close(o.wake)
	}
	o.buf = nil
	o.quiet.Broadcast()
}

// settle waits until all is written, or cannot be: a write has its time.
func (o *outbox) settle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.closed == nil && (o.writing || len(o.buf) > 0) {
		o.quiet.Wait()
	}
}

// writeLoop writes until end, or until a write fails; then the connection is
// closed, which is how whoever reads it learns of it.
func (o *outbox) writeLoop() {
	defer func() { _ = o.conn.Close() }()
	var spare []byte
	for range o.wake {
		out := o.next(spare[:0])
		if len(out) == 0 {
			spare = out
			continue
		}
		_ = o.conn.SetWriteDeadline(time.Now().Add(writeTime)) // a closed connection fails in Write
		if _, err := o.conn.Write(out); err != nil {
			o.end(err)
			return
		}
		o.wrote()
		if spare = out; cap(spare) > 256<<10 {
			spare = nil // a burst is over; its memory is not kept
		}
	}
}

// next swaps the buffer for an empty one.
func (o *outbox) next(empty []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.buf
	o.buf = empty
	o.writing = len(out) > 0
	return out
}

func (o *outbox) wrote() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = false
	o.quiet.Broadcast()
}
