package wire

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// sock is a client's TCP connection that is not with Go's poller before it has
// to wait for something. A connection of one request finds that there when it
// is accepted, so it never is: that saves most of what a connection costs. All
// but deadlines are its owner's.
type sock struct {
	fd   int32
	peer netip.AddrPort

	mu      sync.Mutex // guards what follows
	file    *os.File   // once it had to wait; then the descriptor is this one's
	closed  bool
	readBy  time.Time // deadlines set before that
	writeBy time.Time
}

// wait is the connection as one that can be waited for.
func (s *sock) wait() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	if s.file == nil {
		s.file = os.NewFile(uintptr(s.fd), "tcp") // it does not block, so Go's poller takes it
		if err := errors.Join(s.file.SetReadDeadline(s.readBy), s.file.SetWriteDeadline(s.writeBy)); err != nil {
			return nil, s.fault("wait", err)
		}
	}
	return s.file, nil
}

// waited tells whether it is with Go's poller.
func (s *sock) waited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file != nil
}

// fault says of an error what package net would.
func (s *sock) fault(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	if errors.Is(err, os.ErrClosed) {
		err = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: "tcp", Addr: s.RemoteAddr(), Err: err}
}

// Read implements net.Conn.
func (s *sock) Read(p []byte) (int, error) {
	f, err := s.wait()
	if err != nil {
		return 0, s.fault("read", err)
	}
	n, err := f.Read(p)
	return n, s.fault("read", err)
}

// Write implements net.Conn.
func (s *sock) Write(p []byte) (int, error) {
	f, err := s.wait()
	if err != nil {
		return 0, s.fault("write", err)
	}
	n, err := f.Write(p)
	return n, s.fault("write", err)
}

// Close implements net.Conn.
func (s *sock) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return s.fault("close", net.ErrClosed)
	case s.file != nil:
		s.closed = true
		return s.fault("close", s.file.Close())
	}
	s.closed = true
	return s.fault("close", syscall.Close(int(s.fd)))
}

// SyscallConn implements syscall.Conn.
func (s *sock) SyscallConn() (syscall.RawConn, error) {
	f, err := s.wait()
	if err != nil {
		return nil, err
	}
	return f.SyscallConn()
}

// CloseWrite is net.TCPConn's.
func (s *sock) CloseWrite() error {
	return s.fault("close", os.NewSyscallError("shutdown", syscall.Shutdown(int(s.fd), syscall.SHUT_WR)))
}

// SetLinger is net.TCPConn's.
func (s *sock) SetLinger(seconds int) error {
	l := syscall.Linger{Onoff: 1, Linger: int32(seconds)}
	if seconds < 0 {
		l = syscall.Linger{}
	}
	return s.fault("set", os.NewSyscallError("setsockopt", syscall.SetsockoptLinger(int(s.fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &l)))
}

// LocalAddr implements net.Conn.
func (s *sock) LocalAddr() net.Addr {
	at, _ := syscall.Getsockname(int(s.fd))
	return net.TCPAddrFromAddrPort(addrOf(at))
}

// RemoteAddr implements net.Conn.
func (s *sock) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(s.peer) }

// SetDeadline implements net.Conn.
func (s *sock) SetDeadline(t time.Time) error { return s.setDeadlines(&t, &t) }

// SetReadDeadline implements net.Conn.
func (s *sock) SetReadDeadline(t time.Time) error { return s.setDeadlines(&t, nil) }

// SetWriteDeadline implements net.Conn.
func (s *sock) SetWriteDeadline(t time.Time) error { return s.setDeadlines(nil, &t) }

func (s *sock) setDeadlines(read, write *time.Time) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return net.ErrClosed
	case s.file == nil:
		if read != nil {
			s.readBy = *read
		}
		if write != nil {
			s.writeBy = *write
		}
		return nil
	}
	if read != nil {
		err = s.file.SetReadDeadline(*read)
	}
	if write != nil {
		err = errors.Join(err, s.file.SetWriteDeadline(*write))
	}
	return err
}

func addrOf(at syscall.Sockaddr) netip.AddrPort {
	switch a := at.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// acceptor is a TCP listener whose connections are socks. One goroutine may
// accept.
type acceptor struct {
	file   *os.File
	raw    syscall.RawConn
	addr   net.Addr
	next   func(fd uintptr) bool // made once
	closed atomic.Bool

	fd   int
	peer syscall.Sockaddr
	err  error
}

// Quick makes a listener whose connections cost less where they are short; l
// itself where that cannot be. It takes l over.
func Quick(l net.Listener) net.Listener {
	t, ok := l.(*net.TCPListener)
	if !ok {
		return l
	}
	file, err := t.File()
	if err != nil {
		return l
	}
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return l
	}
	a := &acceptor{file: file, raw: raw, addr: t.Addr()}
	a.next = a.accept
	inheritedOptions(raw)
	_ = t.Close() // the socket itself stays open
	return a
}

// inheritedOptions has connections begin with what package net sets for each.
func inheritedOptions(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		for _, o := range [][3]int{
			{syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1}, {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 15}, {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 15}, {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 9},
		} {
			_ = syscall.SetsockoptInt(int(fd), o[0], o[1], o[2])
		}
	})
}

// unsentMost is how much that a client has no room for the kernel takes from us, in
// bytes. By itself it takes 4 MiB, and some hundred clients who read nothing fill
// what it has for all connections of the machine.
const unsentMost = 256 << 10

// Bound has the kernel take no more than unsentMost for a client of the listener, and
// end a connection whose client leaves what it was sent unanswered for so long, or has
// no room for more (0: as the kernel likes, some 15 minutes): one that vanished says
// nothing, and writes to it succeed until much is unsent. Connections that come later
// have it; not those that Go's listeners of multipath TCP accept.
func Bound(l net.Listener, silent time.Duration) {
	t, ok := l.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	const notsentLowat, userTimeout = 25, 18 // TCP_NOTSENT_LOWAT, TCP_USER_TIMEOUT
	ms := int(min(silent/time.Millisecond, 1<<30))
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, notsentLowat, unsentMost)
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout, ms)
	})
}

// Accept implements net.Listener.
func (a *acceptor) Accept() (net.Conn, error) {
	err := a.raw.Read(a.next)
	if a.closed.Load() {
		if err == nil && a.err == nil {
			_ = syscall.Close(a.fd)
		}
		return nil, net.ErrClosed
	}
	if err == nil {
		err = a.err
	}
	if err != nil {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: a.addr, Err: err}
	}
	return &sock{fd: int32(a.fd), peer: addrOf(a.peer)}, nil
}

func (a *acceptor) accept(fd uintptr) bool {
	for {
		a.fd, a.peer, a.err = syscall.Accept4(int(fd), syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
		switch a.err {
		case syscall.EINTR, syscall.ECONNABORTED:
			continue
		case syscall.EAGAIN:
			return false
		case nil:
			return true
		}
		a.err = os.NewSyscallError("accept4", a.err)
		return true
	}
}

// Close implements net.Listener.
func (a *acceptor) Close() error {
	a.closed.Store(true)
	return a.file.Close()
}

// Addr implements net.Listener.
func (a *acceptor) Addr() net.Addr { return a.addr }

// SetDeadline is net.TCPListener's: Accept ends at that time, and drops nobody.
func (a *acceptor) SetDeadline(t time.Time) error { return a.file.SetReadDeadline(t) }

// SyscallConn implements syscall.Conn.
func (a *acceptor) SyscallConn() (syscall.RawConn, error) { return a.raw, nil }
