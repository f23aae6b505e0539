package load

import (
	"fmt"
	"net/netip"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller is an epoll instance of one thread.
type poller struct {
	fd    int
	ready [512]unix.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll instance: %w", err)
	}
	return &poller{fd: fd}, nil
}

// edge watches for both directions, told once per change: one call in the
// life of a descriptor.
func (p *poller) edge(fd int) error {
	return p.watch(fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET)
}

// hungUp: an end follows the bytes that are there, and will not be told again.
func hungUp(ev unix.EpollEvent) bool {
	return ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
}

// level watches a listening socket.
func (p *poller) level(fd int) error { return p.watch(fd, unix.EPOLLIN) }

func (p *poller) watch(fd int, events uint32) error {
	err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
	if err != nil {
		return fmt.Errorf("watch a socket: %w", err)
	}
	return nil
}

// wait is epoll_pwait2, which unlike epoll_wait counts in nanoseconds.
func (p *poller) wait(d time.Duration) []unix.EpollEvent {
	ts := unix.NsecToTimespec(int64(max(d, 0)))
	n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.ready[0])),
		uintptr(len(p.ready)), uintptr(unsafe.Pointer(&ts)), 0, 0)
	if errno != 0 {
		return nil // EINTR; the caller comes back
	}
	return p.ready[:n]
}

func (p *poller) close() { unix.Close(p.fd) }

// receive and send are raw system calls: the sockets do not block, and telling
// Go's scheduler of each would cost as much as the rest of the loop.
func receive(fd int, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), 0, 0, 0)
	return int(n), errno
}

// send takes EAGAIN for nothing sent.
func send(fd int, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_NOSIGNAL, 0, 0)
	if errno == unix.EAGAIN {
		return 0, 0
	}
	return int(n), errno
}

// listen opens a listening socket on a free port of 127.0.0.1.
func listen() (fd int, at netip.AddrPort, err error) {
	defer func() {
		if err != nil && fd > 0 {
			unix.Close(fd)
		}
	}()
	if fd, err = socket(); err != nil {
		return fd, at, err
	}
	if err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fd, at, fmt.Errorf("bind: %w", err)
	}
	if err = unix.Listen(fd, 4096); err != nil {
		return fd, at, fmt.Errorf("listen: %w", err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return fd, at, fmt.Errorf("read the address listened on: %w", err)
	}
	in := sa.(*unix.SockaddrInet4)
	return fd, netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port)), nil
}

func socket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a socket: %w", err)
	}
	return fd, nil
}

// dial begins to connect. source (1 to 255) is the last part of the client's
// address: one address has only some 28,000 ports.
func dial(to netip.AddrPort, source byte) (int, error) {
	fd, err := socket()
	if err != nil {
		return -1, err
	}
	noDelay(fd)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) // the port may then be shared by destination
	err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, source}})
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	}
	if err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		return -1, fmt.Errorf("connect to %s: %w", to, err)
	}
	return fd, nil
}

func noDelay(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) }
