package wire

import (
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// SourceError is a body that could not be read to its end.
type SourceError struct{ Err error }

// Error says that the source failed.
func (e *SourceError) Error() string { return "read body: " + e.Err.Error() }

// Unwrap is the cause.
func (e *SourceError) Unwrap() error { return e.Err }

// SinkError is a body whose receiver failed.
type SinkError struct{ Err error }

// Error says that the receiver failed.
func (e *SinkError) Error() string { return "send body: " + e.Err.Error() }

// Unwrap is the cause.
func (e *SinkError) Unwrap() error { return e.Err }

// ErrDetached says that a body's relay goes on by events, once Detach is called.
var ErrDetached = errors.New("the relay goes on by events")

// Resumer hears that a relay that went on by events needs a goroutine, which is
// to call Continue. Resume itself must not block.
type Resumer interface{ Resume() }

// Pace hears of each piece of a body, a chunk or what one read brought, before
// it is sent on.
type Pace interface{ Came(bytes int) }

// Relay carries one body from an End to another: what came in goes out at
// once, one write per read, and nothing is read while the receiver takes
// nothing. The end of the body is what its framing says; Relay makes up none.
type Relay struct {
	From, To  *End
	Length    int64 // bytes, Chunked or UntilClose
	Plain     bool  // a chunked body goes out without its framing
	Limit     int64 // bytes of body data at most; 0: no limit
	ReadIdle  time.Duration
	WriteIdle time.Duration
	Sent      *atomic.Int64 // bytes sent on, for those who watch
	Read      *atomic.Bool  // set once the whole body was read; may be nil
	Kept      *Replay       // keeps what is sent; nil: nobody wants it again
	Events    *Events       // looks at the body's data; nil: nobody counts
	Pace      Pace          // hears of the body's data as it comes; nil: nobody
	Later     Resumer       // where the relay may go on by events; may be nil
	Frames    *Frames       // of a WebSocket, so that Finish can end it between two; nil: none
	Ours      *[2]string    // names of fields that no trailer may have; nil or empty: none

	chunks   Chunks
	trailers []byte // so far
	data     int64  // bytes of body data so far
	over     bool   // more than Limit: the rest was left unread
	err      error  // why take ended

	detaches bool      // it goes on by events when it has been silent for a while
	moved    time.Time // when it last did, while it goes on by events
	broke    error     // why it cannot
}

// Run carries the body. head, which may be empty, goes out in front of it, in
// the same write where both are small.
func (r *Relay) Run(head []byte) error {
	if len(head) > 0 {
		done, err := r.first(head)
		if done || err != nil {
			return err
		}
	}
	r.err = nil
	if r.Ended() || len(r.From.Buffered()) > 0 && r.take() {
		return r.err
	}
	r.fit()
	if r.detaches = r.detachable(); !r.detaches {
		return r.outcome(r.From.await(r, bound{idle: r.ReadIdle}))
	}
	err := r.From.await(r, bound{idle: firstPatience})
	if err == ErrIdle && r.detachable() {
		return ErrDetached
	}
	return r.outcome(err)
}

// Continue goes on where the events left off, like Run.
func (r *Relay) Continue() error {
	broke := r.broke
	r.broke = nil
	if unsent := r.To.unsent; len(unsent) > 0 {
		r.To.unsent = nil
		if err := r.To.Write(unsent, r.WriteIdle); err != nil {
			return &SinkError{err}
		}
	}
	if broke == nil && r.err == nil && !r.Ended() {
		return r.Run(nil)
	}
	return r.outcome(broke)
}

// outcome is what the end of the reading means for the body.
func (r *Relay) outcome(err error) error {
	switch {
	case err == nil:
		return r.err
	case err == io.EOF && r.Length == UntilClose:
		return nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return &SourceError{err}
}

// take passes on what was read.
func (r *Relay) take() bool {
	r.err = r.pass()
	if r.err != nil || r.Ended() {
		r.From.room = r.nextRoom()
		return true
	}
	if r.detaches {
		r.From.bound.idle = patience
	}
	r.fit()
	return false
}

// Take cuts what is buffered of the body off the source and appends it to dst,
// for a first write together with something else.
func (r *Relay) Take(dst []byte) ([]byte, error) {
	p := r.From.Buffered()
	n, err := r.scan(p)
	dst = append(dst, p[:n]...)
	r.From.Discard(n)
	if err == nil && n < len(p) && !r.Ended() {
		return r.trailer(dst)
	}
	return dst, err
}

// first sends the head, and with it what of the body is there already.
func (r *Relay) first(head []byte) (done bool, err error) {
	body := r.From.Buffered()
	if r.Ended() || len(body) == 0 || r.Plain || r.Kept != nil {
		return r.Ended(), r.send(head)
	}
	n, bad := r.scan(body)
	err = r.To.WriteBoth(head, body[:n], r.WriteIdle)
	r.From.Discard(n)
	if err != nil {
		return false, &SinkError{err}
	}
	r.Sent.Add(int64(len(head) + n))
	if r.Ended() {
		r.From.room = r.nextRoom()
	}
	return r.Ended(), bad
}

// Ended tells whether the whole body was read.
func (r *Relay) Ended() bool {
	switch {
	case r.over, r.Length == UntilClose:
		return false
	case r.Length == Chunked:
		return r.chunks.Done()
	}
	return r.data >= r.Length
}

// nextRoom is how large a buffer the next answer on the connection should find:
// what comes there mostly resembles what came before. On the plain loop a
// buffer waits with its reader, so it is kept small; so it is for requests,
// since what of a body comes with its head is copied.
func (r *Relay) nextRoom() int {
	const head = 1 << 10
	switch all := r.data + head; {
	case !r.From.byEdges || r.Read != nil || all <= smallBuffer:
		return 0
	case all <= bodyBuffer:
		return bodyBuffer
	}
	return largeBuffer
}

// fit chooses a buffer that fits what is to come.
func (r *Relay) fit() {
	e, left := r.From, r.Length-r.data
	switch {
	case r.Length >= 0 && left > bodyBuffer:
		e.room = largeBuffer
	case r.Length >= 0 && left > smallBuffer, e.full:
		e.room = bodyBuffer
	default:
		e.room = min(e.room, bodyBuffer) // the largest is for what is known to need it
	}
	if len(e.buf) < e.room && len(e.Buffered()) == 0 {
		e.release() // the next read takes the larger one
	}
}

// pass sends on what is buffered, up to the end of the body.
func (r *Relay) pass() error {
	p := r.From.Buffered()
	if r.Plain {
		return r.passPlain(p)
	}
	n, bad := r.scan(p)
	err := r.send(p[:n])
	r.From.Discard(n) // sent or not, it was read: left there, it would be taken for what follows
	if err != nil {
		return err
	}
	if bad == nil && n < len(p) && !r.Ended() {
		var out []byte
		if out, bad = r.trailer(nil); bad == nil {
			return r.send(out)
		}
	}
	return bad
}

// trailer takes what is buffered of the trailers; when they are complete, they
// are appended to dst, less those that would say how or where the message goes
// (RFC 9110 section 6.5.1), and those that only starling may write.
func (r *Relay) trailer(dst []byte) ([]byte, error) {
	n, done, err := r.chunks.Scan(r.From.Buffered())
	r.trailers = append(r.trailers, r.From.Buffered()[:n]...)
	r.From.Discard(n)
	if err != nil || !done {
		return dst, wrapSource(err)
	}
	fields, err := scanFields(r.trailers, nil)
	if err != nil {
		return dst, wrapSource(err)
	}
	for i := range fields {
		if f := &fields[i]; (f.kind == plain || f.kind == date) && !r.isOurs(f.name) {
			dst = append(dst, f.line...)
		}
	}
	r.note()
	return append(dst, "\r\n"...), nil
}

func (r *Relay) isOurs(name []byte) bool {
	if r.Ours == nil {
		return false
	}
	for _, ours := range r.Ours {
		if ours != "" && len(name) == len(ours) && looksLike(name, ours) {
			return true
		}
	}
	return false
}

func wrapSource(err error) error {
	if err == nil {
		return nil
	}
	return &SourceError{err}
}

// scan finds how much of p belongs to the body.
func (r *Relay) scan(p []byte) (n int, err error) {
	switch r.Length {
	case Chunked:
		for n < len(p) && !r.chunks.Done() && err == nil {
			if len(r.trailers) > 0 || r.chunks.atTrailers() && p[n] != '\r' {
				break // trailers are looked through before they go out
			}
			var data []byte
			var used int
			data, used, err = r.chunks.Next(p[n:])
			n += used
			r.count(data)
		}
		if err != nil {
			err = &SourceError{err}
		}
	case UntilClose:
		n = len(p)
		r.count(p)
	default:
		n = int(min(int64(len(p)), r.Length-r.data))
		r.count(p[:n])
	}
	if r.Limit > 0 && r.data > r.Limit {
		r.over = true
		return 0, &SourceError{ErrBodyTooLarge} // nothing of this piece goes out: the end may be in it
	}
	if err == nil {
		r.note()
	}
	return n, err
}

func (r *Relay) count(data []byte) {
	r.data += int64(len(data))
	if r.Pace != nil && len(data) > 0 {
		r.Pace.Came(len(data))
	}
	if r.Events != nil {
		r.Events.Scan(data)
	}
	if r.Frames != nil {
		_ = r.Frames.Pass(data) // what is broken passes: it only has no boundary any more
	}
}

func (r *Relay) note() {
	if r.Read != nil && r.Ended() {
		r.Read.Store(true)
	}
}

func (r *Relay) passPlain(p []byte) error {
	for len(p) > 0 && !r.chunks.Done() {
		data, used, err := r.chunks.Next(p)
		if err == nil && len(data) > 0 {
			err = r.send(data)
		} else if err != nil {
			err = &SourceError{err}
		}
		if err != nil {
			return err
		}
		r.count(data)
		r.From.Discard(used)
		p = p[used:]
	}
	return nil
}

func (r *Relay) send(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if r.Kept != nil {
		r.Kept.add(p)
	}
	if err := r.To.Write(p, r.WriteIdle); err != nil {
		return &SinkError{err}
	}
	r.Sent.Add(int64(len(p)))
	return nil
}
