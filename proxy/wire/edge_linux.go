package wire

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// edge is the faster way to wait, for TCP on Linux. A read of a net.Conn that
// finds nothing costs a system call before the goroutine parks, and holds its
// buffer meanwhile. Here one RawConn.Read spans many reads: its callback reads
// when the descriptor became readable, has the bytes used, and returns to wait
// for the next edge, without a buffer and without a read that fails.
//
// Two things make that sound. The runtime forgets an edge when RawConn.Read
// begins, and only then: so the callback begins with a read, or with the
// request that the awaited bytes are the answer to. And the edge of a peer's
// close may be one with that of its last bytes: so every such connection is
// with the Watcher, which wakes the reader.
type edge struct {
	raw     syscall.RawConn
	ready   func(fd uintptr) bool // made once
	t       taker
	err     error
	pending []byte        // sent before the first wait
	idle    time.Duration // how long that may take without a byte
	asked   error         // how it ended
}

// edgeFD is the descriptor of a connection that can be waited for by edges,
// which stays valid until it is closed; else -1.
func edgeFD(nc net.Conn) int32 {
	switch t := nc.(type) { // not TLS: what is read is not what comes
	case *sock:
		return t.fd
	case *net.TCPConn:
		if raw, err := t.SyscallConn(); err == nil {
			return int32(fdOf(raw))
		}
	}
	return -1
}

// fdOf is the descriptor, which stays valid while nobody closes it.
func fdOf(raw syscall.RawConn) int {
	n := -1
	_ = raw.Control(func(fd uintptr) { n = int(fd) })
	return n
}

// waiting is the End's edge.
func (e *End) waiting() *edge {
	if e.edge == nil {
		e.edge = &edge{ready: e.onEdge}
	}
	return e.edge
}

// early looks whether t has what it wants before anything is waited for, where
// the connection has not waited yet.
func (e *End) early() (done bool, err error) {
	if s, ok := e.nc.(*sock); ok && e.edge.raw == nil && !s.waited() {
		if !e.arm(e.bound) {
			return true, ErrInterrupted
		}
		if e.onEdge(uintptr(s.fd)) {
			return true, e.edge.err
		}
	}
	if e.edge.raw == nil {
		if e.edge.raw, err = e.nc.(syscall.Conn).SyscallConn(); err != nil {
			return true, e.cause(err)
		}
	}
	return false, nil
}

func (e *End) awaitEdge(t taker) error {
	w := e.waiting()
	w.t, w.err, w.asked = t, nil, nil
	if done, err := e.early(); done {
		return err
	}
	for {
		if !e.arm(e.bound) {
			return ErrInterrupted
		}
		err := w.raw.Read(w.ready)
		if err == nil {
			return w.err
		}
		if !e.woken(err) {
			return e.cause(err)
		}
	}
}

// onEdge is called when there may be something to read; true ends the await.
func (e *End) onEdge(fd uintptr) bool {
	w := e.edge
	if len(w.pending) > 0 {
		p := w.pending
		w.pending = nil
		if w.asked = e.ask(int(fd), p); w.asked == nil && e.hup.Load() == hupNone {
			return false
		}
	}
	for {
		e.makeRoom()
		n, errno := recv(fd, e.buf[e.w:])
		switch {
		case errno == syscall.EAGAIN && w.asked != nil:
			w.err = w.asked
			return true
		case errno == syscall.EAGAIN:
			e.Rest()
			return false
		case errno == syscall.EINTR:
			continue
		case errno != 0:
			w.err = e.cause(os.NewSyscallError("read", errno))
			return true
		case n == 0:
			w.err = e.cause(io.EOF)
			return true
		}
		e.w += n
		e.full = e.w == len(e.buf)
		switch {
		case w.t.take():
			return true
		case !e.arm(e.bound):
			w.err = ErrInterrupted
			return true
		case !e.full && e.hup.Load() == hupNone:
			e.Rest()
			return false
		}
	}
}

// grab reads on while there is more, without waiting, until n bytes are
// buffered: a small body that came with its head needs no other goroutine.
func (e *End) grab(n int64) {
	if !e.full || n <= 0 || n > bodyBuffer {
		return
	}
	e.Reserve(int(n))
	for int64(e.w-e.r) < n {
		e.makeRoom()
		got, errno := recv(uintptr(e.own), e.buf[e.w:])
		if errno != 0 || got == 0 {
			return // the next read meets it again
		}
		e.w += got
	}
}

// ask sends what the awaited bytes answer. Where that fails there may be
// something to read all the same: a peer may have answered before it closed.
func (e *End) ask(fd int, p []byte) error {
	return e.Write(p[sendNow(fd, p):], e.edge.idle)
}

// Idle peers are what these two are for: neither blocks, so the scheduler need
// not know.

func recv(fd uintptr, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), syscall.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// silent tells whether there is nothing to read, not even the peer's close.
func silent(fd int) bool {
	var b [1]byte
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), 1, syscall.MSG_DONTWAIT|syscall.MSG_PEEK, 0, 0)
	return errno == syscall.EAGAIN || errno == syscall.EINTR
}

// sendNow sends what the kernel takes at once; 0 is nothing, for whatever
// reason.
func sendNow(fd int, p []byte) int {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// sendBoth is sendNow for p with q behind it; neither is empty.
func sendBoth(fd int, p, q []byte) int {
	iov := [2]syscall.Iovec{{Base: &p[0], Len: uint64(len(p))}, {Base: &q[0], Len: uint64(len(q))}}
	m := syscall.Msghdr{Iov: &iov[0], Iovlen: 2}
	n, _, errno := syscall.RawSyscall(syscall.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
	if errno != 0 {
		return 0
	}
	return int(n)
}
