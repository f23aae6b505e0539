package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// ErrInterrupted ends a read or write of an End whose stream was given up by
// another goroutine.
var ErrInterrupted = errors.New("interrupted")

// ErrIdle ends a read or write that moved no byte for as long as it may.
var ErrIdle = errors.New("idle for too long")

// End is one end of a stream: a connection and what was read from it but not
// yet used. Reads and writes are bounded by the time without progress, never
// by a total.
type End struct {
	nc      net.Conn
	stock   *Buffers
	buf     []byte // nil while nothing is buffered and nobody reads
	r, w    int    // buf[r:w] is read and not yet used
	full    bool   // the last read filled the buffer: more was there
	room    int    // how large a buffer the next read should find
	byEdges bool   // waits without a failing read before; else the plain loop
	edge    *edge  // what such a wait needs; made when it begins, and dropped by a stream that detaches
	own     int32  // the descriptor, for the owner alone, who also closes it; -1: not known
	fd      int32  // where Write sends to at once: own while a wait's callback holds it; else -1
	noWait  bool   // Write keeps what the kernel does not take
	unsent  []byte
	watcher *Watcher
	ticket  ticket // with the watcher; 0: none
	bound   bound  // of the wait that is under way; its taker may change it
	readBy  int64  // the deadlines that stand, in ns since 1970; 0: none
	writeBy int64
	cut     atomic.Bool
	stop    atomic.Bool
	hup     atomic.Int32
	looked  int32 // how much of what is buffered holds no end of a head
}

func newEnd(nc net.Conn, stock *Buffers) End { return End{nc: nc, stock: stock, own: -1, fd: -1} }

// Buffered is what was read and not yet used. It is valid until the next Fill,
// Discard or Reserve.
func (e *End) Buffered() []byte { return e.buf[e.r:e.w] }

// Discard marks the first n buffered bytes as used.
func (e *End) Discard(n int) {
	e.r += n
	e.looked = 0
	if e.r == e.w {
		e.r, e.w = 0, 0
	}
}

// Reserve makes the buffer at least n bytes large, keeping what is in it.
func (e *End) Reserve(n int) {
	if len(e.buf) >= n {
		return
	}
	next := e.stock.take(n)
	e.w = copy(next, e.buf[e.r:e.w])
	e.r = 0
	e.release()
	e.buf = next
}

// Rest gives the buffer back if nothing is in it.
func (e *End) Rest() {
	if e.r == e.w {
		e.r, e.w = 0, 0
		e.release()
	}
}

func (e *End) release() {
	if e.buf != nil {
		e.stock.give(e.buf)
		e.buf = nil
	}
}

// bound is until when a read may wait: a point in time, or so long without a
// byte. The zero bound is none.
type bound struct {
	by   time.Time
	idle time.Duration
}

// taker uses what an End reads.
type taker interface {
	// take looks at what is buffered and tells whether it has all it wants.
	// Where it has not, there is room for more, or nothing is buffered.
	take() (done bool)
}

// await reads until t has what it wants. It fails with io.EOF at the end of
// the connection, ErrIdle when the bound is over, ErrInterrupted, or the
// network's error.
func (e *End) await(t taker, b bound) error {
	e.bound = b
	if e.byEdges {
		return e.awaitEdge(t)
	}
	for {
		if err := e.fill(e.bound); err != nil {
			return err
		}
		if t.take() {
			return nil
		}
	}
}

// fill reads once, so that at least one more byte is buffered. The buffer must
// have room.
func (e *End) fill(b bound) error {
	e.makeRoom()
	for {
		if !e.arm(b) {
			return ErrInterrupted
		}
		n, err := e.nc.Read(e.buf[e.w:])
		e.w += n
		e.full = e.w == len(e.buf)
		if n > 0 {
			return nil // an error comes again with the next read
		}
		if !e.woken(err) {
			return e.cause(err)
		}
	}
}

// makeRoom sees to it that a read finds a buffer with room in it.
func (e *End) makeRoom() {
	switch {
	case e.buf == nil:
		e.buf = e.stock.take(max(smallBuffer, e.room))
	case e.r > 0 && e.w == len(e.buf):
		e.w = copy(e.buf, e.buf[e.r:e.w])
		e.r = 0
	}
	if e.w == len(e.buf) {
		panic("BUG: read into a full buffer")
	}
}

// arm sets the read deadline, leaving an earlier one be where it is close
// enough: that saves setting it for every read. It fails where the End was
// interrupted.
func (e *End) arm(b bound) bool {
	by := b.by
	if by.IsZero() {
		by = deadline(b.idle)
	}
	if renew(&e.readBy, by, b.idle/8) {
		_ = e.nc.SetReadDeadline(by) // fails only on a closed connection, as the read will
	}
	return !e.cut.Load() && !e.stop.Load()
}

// woken tells whether a read ended only because the watcher saw the peer's
// close and has it tried again.
func (e *End) woken(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) || e.cut.Load() || e.stop.Load() || !e.hup.CompareAndSwap(hupSeen, hupTaken) {
		return false
	}
	e.readBy = past
	return true
}

// wake has a read that waits look again: the peer has closed, and the news may
// have come together with bytes that were read.
func (e *End) wake() {
	e.hup.Store(hupSeen)
	_ = e.nc.SetReadDeadline(longAgo())
}

// The news of a peer's close, on its way from the watcher to the reader.
const (
	hupNone int32 = iota
	hupSeen
	hupTaken
)

// past is a deadline that is over.
const past = int64(time.Second)

func longAgo() time.Time { return time.Unix(0, past) }

// Full tells whether Fill has no room left.
func (e *End) Full() bool { return e.buf != nil && e.w-e.r == len(e.buf) }

// Write sends all of p: at once what the kernel takes, where the descriptor is
// at hand, and the rest as it takes it. It gives up with ErrIdle when the peer takes no byte
// for idle (0: no limit).
func (e *End) Write(p []byte, idle time.Duration) error {
	if e.fd >= 0 && len(p) > 0 && !e.cut.Load() {
		p = p[sendNow(int(e.fd), p):]
	}
	if e.noWait {
		e.unsent = append(e.unsent, p...)
		return nil
	}
	for len(p) > 0 {
		by := deadline(idle)
		if renew(&e.writeBy, by, idle/8) {
			_ = e.nc.SetWriteDeadline(by)
		}
		if e.cut.Load() {
			return ErrInterrupted
		}
		n, err := e.nc.Write(piece(e.nc, p))
		p = p[n:]
		if err != nil && (n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) || e.cut.Load()) {
			return e.cause(err)
		}
	}
	return nil
}

// joined is how many bytes are copied to make one write of two.
const joined = 4 << 10

// WriteBoth is Write for p and then q, in one piece where that can be had.
func (e *End) WriteBoth(p, q []byte, idle time.Duration) error {
	switch n := len(p) + len(q); {
	case n <= joined || n <= smallBuffer && e.fd < 0:
		both := e.stock.take(n)
		defer e.stock.give(both)
		return e.Write(append(append(both[:0], p...), q...), idle)
	case e.fd >= 0 && !e.cut.Load():
		sent := sendBoth(int(e.fd), p, q)
		if sent >= len(p) {
			p, q = nil, q[sent-len(p):]
		} else {
			p = p[sent:]
		}
	}
	if len(p) > 0 {
		if err := e.Write(p, idle); err != nil {
			return err
		}
	}
	if len(q) > 0 {
		return e.Write(q, idle)
	}
	return nil
}

func (e *End) cause(err error) error {
	switch {
	case e.cut.Load(), e.stop.Load():
		return ErrInterrupted
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrIdle
	case err == nil:
		return io.ErrNoProgress
	}
	return err
}

// Interrupt makes every read and write of this end fail from now on, also one
// that is under way. The connection stays open until its owner closes it.
func (e *End) Interrupt() {
	// The owner looks at cut after it has set a deadline, and here the
	// deadline is set after cut: whatever the order, the past one stands.
	e.cut.Store(true)
	_ = e.nc.SetDeadline(longAgo())
}

// StopReading makes the read that is under way, and those to come, fail with
// ErrInterrupted, until the read side's owner calls ResumeReading.
func (e *End) StopReading() {
	e.stop.Store(true)
	_ = e.nc.SetReadDeadline(longAgo())
}

// ResumeReading undoes StopReading.
func (e *End) ResumeReading() {
	if e.stop.Swap(false) {
		e.readBy = past
	}
}

// Close closes the connection and gives the buffer back.
func (e *End) Close() {
	if e.ticket != 0 {
		e.watcher.remove(e.ticket)
		e.ticket = 0
	}
	takeLeave(e.nc)
	e.r, e.w = 0, 0
	e.release()
}

// Reset closes the connection so that the peer sees a reset instead of an
// orderly end; what it has not read yet is lost.
func (e *End) Reset() {
	if t, ok := socket(e.nc).(interface{ SetLinger(int) error }); ok {
		_ = t.SetLinger(0)
	}
	silence(e.nc)
	e.Close()
}

// CloseWrite says to the peer that nothing more will come.
func (e *End) CloseWrite() error {
	if err := endTLS(e.nc); err != nil {
		return err
	}
	if t, ok := socket(e.nc).(interface{ CloseWrite() error }); ok {
		return t.CloseWrite()
	}
	return errors.ErrUnsupported
}

func deadline(idle time.Duration) time.Time {
	if idle <= 0 {
		return time.Time{}
	}
	return time.Now().Add(idle)
}

// renew tells whether the deadline that stands is too far from the wanted one
// to be left as it is; then the wanted one does.
func renew(stands *int64, want time.Time, slack time.Duration) bool {
	by := int64(0)
	if !want.IsZero() {
		by = want.UnixNano()
	}
	early := by - *stands
	if by == *stands || by != 0 && *stands != 0 && early >= 0 && early <= int64(slack) {
		return false
	}
	*stands = by
	return true
}
