package gossip

import (
	"errors"
	"net"
	"sync"
	"time"
)

// frameConn is a stream of which each direction carries frames: a write is one
// frame, reads give the frames' bodies one after the other.
type frameConn struct {
	inner  net.Conn
	t      *transport
	dialed string // address that we dialed; empty: the other side did
	asked  byte   // type of what we wrote first
	read   []byte // of the frame at hand
	close  func()
}

// own makes a frameConn of a connection; ok is false when the transport stops.
// done is called once, when it is closed or not taken.
func (t *transport) own(conn net.Conn, done func()) (s *frameConn, ok bool) {
	s = &frameConn{inner: conn, t: t}
	s.close = sync.OnceFunc(func() { t.open.remove(conn); done() })
	if !t.open.add(conn) {
		_ = s.Close() // it was never used
		return nil, false
	}
	return s, true
}

// Read gives what is left of the frame at hand, or of the next. For the codec,
// which reads the frames themselves, use raw.
func (s *frameConn) Read(b []byte) (int, error) {
	if len(s.read) > 0 {
		n := copy(b, s.read)
		s.read = s.read[n:]
		return n, nil
	}
	k, body, err := s.t.codec.readStream(raw{s})
	if err == nil && k != kindList {
		err = refuse(causeBroken, "a stream's answer has kind %d", k)
	}
	if err == nil {
		g := s.t.guard
		g.dialed = s.dialed
		err = g.stream(body)
	}
	if err != nil {
		return 0, s.failed(err)
	}
	if s.asked == msgPing && body[0] == msgAck && s.dialed != "" {
		s.t.onPing(s.dialed, "tcp")
	}
	n := copy(b, body)
	s.read = body[n:]
	return n, nil
}

// failed tells of a refusal, the other's or ours. An end of the stream is an
// end of the stream, as memberlist knows it.
func (s *frameConn) failed(err error) error {
	if s.dialed != "" {
		s.t.faults.keep(s.dialed, err)
	}
	var r *refusal
	if errors.As(err, &r) {
		s.t.onRefused(s.RemoteAddr().String(), s.dialed != "", err)
	}
	return err
}

// Write sends one message of memberlist's.
func (s *frameConn) Write(b []byte) (int, error) {
	if err := s.t.outgoing.stream(b); err != nil {
		return 0, err
	}
	if s.asked == 0 {
		s.asked = b[0]
	}
	return s.send(kindList, b)
}

func (s *frameConn) send(k kind, body []byte) (int, error) {
	if len(body) > maxBody {
		return 0, refuse(causeSize, "%d bytes to send, allowed are %d", len(body), maxBody)
	}
	frame := s.t.codec.stream(k, body)
	s.t.count.bytesOut.Add(uint64(len(frame)))
	if _, err := s.inner.Write(frame); err != nil {
		return 0, err
	}
	return len(body), nil
}

// raw reads the frames of a stream, and counts.
type raw struct{ s *frameConn }

func (r raw) Read(b []byte) (int, error) {
	n, err := r.s.inner.Read(b)
	if n > 0 {
		r.s.t.count.bytesIn.Add(uint64(n))
	}
	return n, err
}

func (s *frameConn) Close() error {
	s.close()
	return s.inner.Close()
}

func (s *frameConn) LocalAddr() net.Addr                { return s.inner.LocalAddr() }
func (s *frameConn) RemoteAddr() net.Addr               { return s.inner.RemoteAddr() }
func (s *frameConn) SetDeadline(t time.Time) error      { return s.inner.SetDeadline(t) }
func (s *frameConn) SetReadDeadline(t time.Time) error  { return s.inner.SetReadDeadline(t) }
func (s *frameConn) SetWriteDeadline(t time.Time) error { return s.inner.SetWriteDeadline(t) }

// openConns is the streams that a stop has to end.
type openConns struct {
	mu    sync.Mutex
	over  bool
	conns map[net.Conn]struct{}
}

func (o *openConns) add(c net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return false
	}
	if o.conns == nil {
		o.conns = make(map[net.Conn]struct{})
	}
	o.conns[c] = struct{}{}
	return true
}

func (o *openConns) remove(c net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.conns, c)
}

func (o *openConns) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	for c := range o.conns {
		_ = c.Close() // whoever uses it sees the end
	}
}
