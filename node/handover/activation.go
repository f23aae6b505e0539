package handover

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"syscall"
)

// firstActivated is the descriptor that systemd hands sockets over from.
const firstActivated = 3

// Activated are the sockets that whoever started this process opened for it, as
// systemd's socket activation says (sd_listen_fds(3)); none where nobody did. Its
// variables are taken out of the environment.
func Activated() (*Sockets, error) {
	pid, count := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > maxSockets {
		return nil, fmt.Errorf("LISTEN_FDS is %q; want a number up to %d", count, maxSockets)
	}
	s := new(Sockets)
	for fd := firstActivated; fd < firstActivated+n; fd++ {
		syscall.CloseOnExec(fd)
		one, err := named(fd)
		if err != nil {
			return nil, fmt.Errorf("socket %d of those that were handed in: %w", fd, err)
		}
		s.all = append(s.all, one)
	}
	return s, nil
}

// named is a socket by the address that it is bound to.
func named(fd int) (Socket, error) {
	kind, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE)
	if err != nil {
		return Socket{}, os.NewSyscallError("getsockopt", err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		return Socket{}, os.NewSyscallError("getsockname", err)
	}
	s := Socket{Network: "tcp", fd: fd}
	if kind == syscall.SOCK_DGRAM {
		s.Network = "udp"
	}
	if s.Address = textOf(at); s.Address == "" {
		return Socket{}, errors.New("it is neither of IPv4 nor of IPv6; write ListenStream=HOST:PORT")
	}
	return s, nil
}

// textOf is a bound address as a configuration would write it; "" for one that none
// could.
func textOf(at syscall.Sockaddr) string {
	switch a := at.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String()
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)).String()
	}
	return ""
}
