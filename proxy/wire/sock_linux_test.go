package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

func option(t *testing.T, s *sock, level, name int) int {
	t.Helper()
	v, err := syscall.GetsockoptInt(int(s.fd), level, name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A connection has what package net would have set for it.
func TestQuickOptions(t *testing.T) {
	near, far := taken(t)
	s := near.(*sock)
	for name, got := range map[string]int{
		"TCP_NODELAY": option(t, s, syscall.IPPROTO_TCP, syscall.TCP_NODELAY), "SO_KEEPALIVE": option(t, s, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE),
		"TCP_KEEPIDLE": option(t, s, syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE) - 14,
	} {
		if got != 1 {
			t.Errorf("%s is %d", name, got)
		}
	}
	if s.RemoteAddr().String() != far.LocalAddr().String() || s.LocalAddr().String() != far.RemoteAddr().String() {
		t.Errorf("is %v to %v, and the peer says %v to %v", s.LocalAddr(), s.RemoteAddr(), far.RemoteAddr(), far.LocalAddr())
	}
}

// One request on a connection of its own is read, answered and closed without
// Go's poller.
func TestQuickNeedsNoPoller(t *testing.T) {
	near, far := taken(t)
	send(t, far, head("GET / HTTP/1.1", "Host: h"))
	c := NewConn(near, &Buffers{}, newWatcher(t), newLeaver())
	c.Serve(&Request{}, HeadLimits{Bytes: 1 << 10}, lastAnswer{c})
	if near.(*sock).waited() {
		t.Error("it waited")
	}
	c.Close()
	receive(t, far, "HTTP/1.1 204 No Content\r\n\r\n")
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("then %v", err)
	}
}

// lastAnswer ends the connection with its first answer.
type lastAnswer struct{ c *Conn }

func (a lastAnswer) Handle(err error) bool {
	if err == nil {
		_ = a.c.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"), time.Second)
	}
	return false
}

// Deadlines hold whether they were set before the first wait or in it.
func TestQuickDeadlines(t *testing.T) {
	near, _ := taken(t)
	if err := near.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := near.Read(make([]byte, 1))
	var network net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &network) || !network.Timeout() {
		t.Errorf("set before: %v", err)
	}
	_ = near.SetReadDeadline(time.Time{})
	done := async(func() error { _, err := near.Read(make([]byte, 1)); return err })
	_ = near.SetDeadline(longAgo())
	if err := await(t, done, "the read"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("set in it: %v", err)
	}
}

func TestQuickCloses(t *testing.T) {
	near, far := taken(t)
	s := near.(*sock)
	if err := s.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("half closed: %v", err)
	}
	if err := errors.Join(s.SetLinger(0), s.Close()); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"close": s.Close(), "deadline": s.SetDeadline(time.Now()), "read": second(s.Read(make([]byte, 1))), "write": second(s.Write([]byte("x"))),
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after the close: %v", name, err)
		}
	}
}

func second(_ int, err error) error { return err }

func TestQuickListenerCloses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = Quick(l)
	done := async(func() error { _, err := l.Accept(); return err })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := await(t, done, "the accept"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		c.Close()
		t.Error("it still listens")
	}
}

// What was closed before it was watched is not, though another has its
// descriptor.
func TestLateWatchMeetsNobodyElse(t *testing.T) {
	w := newWatcher(t)
	gone, other := newLeaver(), newLeaver()
	near, _ := taken(t)
	fd := near.(*sock).fd
	c := NewConn(near, &Buffers{}, w, gone)
	c.Close()
	near, far := taken(t)
	if near.(*sock).fd != fd {
		t.Logf("descriptor %d was not used again", fd)
	}
	c = NewConn(near, &Buffers{}, w, other)
	defer c.Close()
	far.Close()
	eventually(t, "the second one's leaving is told", func() bool { return other.times.Load() == 1 })
	if gone.times.Load() != 0 {
		t.Error("so is the first one's")
	}
}

// What a client does not read stays with us, and not with the kernel; and one that has
// no room for so long is gone.
func TestBound(t *testing.T) {
	for name, dress := range map[string]func(net.Listener) net.Listener{"quick": Quick, "plain": func(l net.Listener) net.Listener { return l }} {
		var plain net.ListenConfig
		plain.SetMultipathTCP(false)
		l, err := plain.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l = dress(l)
		defer l.Close()
		Bound(l, time.Second)
		narrow := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		}}
		far, err := narrow.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		near, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		if err := near.SetDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := near.Write(make([]byte, 16<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || n > 2*unsentMost {
			t.Errorf("%s: the kernel took %d KiB for a client that reads nothing, %v; want at most %d", name, n>>10, err, 2*unsentMost>>10)
		}
		if err := near.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ETIMEDOUT) {
			t.Errorf("%s: the connection of a client without room ends by %v", name, err)
		}
	}
}
