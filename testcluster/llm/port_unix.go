//go:build linux || darwin

package llm

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// listenShared opens a listener that lets keepPort bind beside it.
func listenShared(ctx context.Context, network, address string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if ctl := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }); ctl != nil {
			return ctl
		}
		return os.NewSyscallError("setsockopt", err)
	}}
	return lc.Listen(ctx, network, address)
}

// keepPort binds a socket that never listens: connects are still refused while
// no listener is open, but nobody else on a busy machine gets the port.
func keepPort(addr net.Addr) (io.Closer, error) {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("not a TCP address: %v", addr)
	}
	domain, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: tcp.Port, Addr: [16]byte(tcp.IP.To16())})
	if ip4 := tcp.IP.To4(); ip4 != nil {
		domain, sa = unix.AF_INET, &unix.SockaddrInet4{Port: tcp.Port, Addr: [4]byte(ip4)}
	}
	syscall.ForkLock.RLock() // until the descriptor is closed on exec
	fd, err := unix.Socket(domain, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, sa); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return os.NewFile(uintptr(fd), "port "+addr.String()), nil
}
