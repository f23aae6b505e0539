package handover

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
)

// Socket is a listening socket, by what the configuration calls its address.
type Socket struct {
	Network string `json:"network"` // tcp or udp
	Address string `json:"address"`

	fd int
}

// Share makes another descriptor of a socket that is open; whoever has it closes it
// by itself. It is never given to Go's poller here: one that is would be woken for
// every connection that another takes.
func Share(network, address string, of any) (Socket, error) {
	s := Socket{Network: network, Address: address, fd: -1}
	c, ok := of.(syscall.Conn)
	if !ok {
		return s, fmt.Errorf("socket %s: it is no plain one (%T)", address, of)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return s, fmt.Errorf("socket %s: %w", address, err)
	}
	shared := error(nil)
	err = raw.Control(func(fd uintptr) { s.fd, shared = shareFD(int(fd)) })
	if err == nil {
		err = shared
	}
	if err != nil {
		return s, fmt.Errorf("socket %s: %w", address, err)
	}
	return s, nil
}

func shareFD(fd int) (int, error) {
	syscall.ForkLock.RLock() // no child shall have it by chance
	defer syscall.ForkLock.RUnlock()
	shared, err := syscall.Dup(fd)
	if err == nil {
		syscall.CloseOnExec(shared)
	}
	return shared, os.NewSyscallError("dup", err)
}

func (s Socket) close() { _ = syscall.Close(s.fd) }

// Sockets are those that nobody has taken yet.
type Sockets struct {
	mu  sync.Mutex
	all []Socket
}

// NewSockets takes them over.
func NewSockets(all []Socket) *Sockets { return &Sockets{all: all} }

// Listen gives a socket out that somebody wants to listen at; false: there is none
// for the address.
func (s *Sockets) Listen(_ context.Context, network, address string) (net.Listener, bool, error) {
	f := s.take(network, address)
	if f == nil {
		return nil, false, nil
	}
	defer f.Close()
	l, err := net.FileListener(f) // of another descriptor
	return l, true, err
}

// ListenPacket is Listen for packets.
func (s *Sockets) ListenPacket(_ context.Context, network, address string) (net.PacketConn, bool, error) {
	f := s.take(network, address)
	if f == nil {
		return nil, false, nil
	}
	defer f.Close()
	c, err := net.FilePacketConn(f)
	return c, true, err
}

func (s *Sockets) take(network, address string) *os.File {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, have := range s.all {
		if have.Network == network && same(have.Address, address) {
			s.all = slices.Delete(s.all, i, i+1)
			return os.NewFile(uintptr(have.fd), have.Address)
		}
	}
	return nil
}

// same tells whether two texts name one address. A wildcard is a wildcard, however
// it is written.
func same(a, b string) bool {
	if a == b {
		return true
	}
	x, okX := addrPort(a)
	y, okY := addrPort(b)
	return okX && okY && x == y && x.Port() != 0
}

func addrPort(text string) (netip.AddrPort, bool) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return netip.AddrPort{}, false
	}
	if host == "" {
		host = "::"
	}
	at, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return at, false
	}
	ip := at.Addr().Unmap()
	if ip.IsUnspecified() {
		ip = netip.IPv6Unspecified()
	}
	return netip.AddrPortFrom(ip, at.Port()), true
}

// Close closes those that nobody took, and names them.
func (s *Sockets) Close() (names []string) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, left := range s.all {
		left.close()
		names = append(names, left.Network+" "+left.Address)
	}
	s.all = nil
	return names
}
