package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// fakeNet is a network in memory for virtual time: packets and streams between
// addresses, each pair of which may be cut, per direction and protocol. A dead
// node blocks nobody.
type fakeNet struct {
	mu      sync.Mutex
	packets map[string]*fakePacketConn
	streams map[string]*fakeListener
	rule    func(from, to netip.Addr, protocol string) (lost bool)
	tap     func(from, to netip.AddrPort, data []byte) // hears of every packet
	latency time.Duration
}

func newFakeNet() *fakeNet {
	return &fakeNet{packets: map[string]*fakePacketConn{}, streams: map[string]*fakeListener{}, latency: time.Millisecond}
}

// set changes what is lost; nil is a good network.
func (n *fakeNet) set(rule func(from, to netip.Addr, protocol string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rule = rule
}

func (n *fakeNet) lost(from, to netip.Addr, protocol string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rule != nil && n.rule(from, to, protocol)
}

// host is one node's view of the network.
type host struct {
	net  *fakeNet
	addr netip.Addr
}

func (h host) use(opt *Options) {
	opt.Listen, opt.ListenPacket, opt.Dial = h.listen, h.listenPacket, h.dial
	opt.Resolve = func(_ context.Context, name string) ([]netip.Addr, error) {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
}

func (h host) listen(_ context.Context, _, address string) (net.Listener, error) {
	l := &fakeListener{net: h.net, addr: tcpAddr(address), conns: make(chan net.Conn, 128), done: make(chan struct{})}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.net.streams[address] != nil {
		return nil, syscall.EADDRINUSE
	}
	h.net.streams[address] = l
	return l, nil
}

func (h host) listenPacket(_ context.Context, _, address string) (net.PacketConn, error) {
	c := &fakePacketConn{net: h.net, addr: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)), in: make(chan fakePacket, 1024), done: make(chan struct{})}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.net.packets[address] != nil {
		return nil, syscall.EADDRINUSE
	}
	h.net.packets[address] = c
	return c, nil
}

func (h host) dial(ctx context.Context, network, address string) (net.Conn, error) {
	to := netip.MustParseAddrPort(address).Addr()
	wait := h.net.latency
	if h.net.lost(h.addr, to, "tcp") || h.net.lost(to, h.addr, "tcp") {
		wait = time.Hour // nothing comes back
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
	h.net.mu.Lock()
	l := h.net.streams[address]
	h.net.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	near, far := net.Pipe()
	select {
	case l.conns <- pipeEnd{far, l.addr, tcpAddr(netip.AddrPortFrom(h.addr, 40000).String())}:
		return pipeEnd{near, tcpAddr(netip.AddrPortFrom(h.addr, 40000).String()), l.addr}, nil
	case <-l.done:
	case <-ctx.Done():
	}
	return nil, errors.Join(fmt.Errorf("dial %s: closed", address), near.Close(), far.Close())
}

func tcpAddr(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }

type pipeEnd struct {
	net.Conn
	local, remote net.Addr
}

func (p pipeEnd) LocalAddr() net.Addr  { return p.local }
func (p pipeEnd) RemoteAddr() net.Addr { return p.remote }

type fakeListener struct {
	net   *fakeNet
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *fakeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *fakeListener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		delete(l.net.streams, l.addr.String())
		for {
			select {
			case c := <-l.conns:
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (l *fakeListener) Addr() net.Addr { return l.addr }

type fakePacket struct {
	data []byte
	from net.Addr
}

type fakePacketConn struct {
	net  *fakeNet
	addr *net.UDPAddr
	in   chan fakePacket
	done chan struct{}
	once sync.Once
}

func (c *fakePacketConn) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case p := <-c.in:
		return copy(b, p.data), p.from, nil
	case <-c.done:
		return 0, nil, net.ErrClosed
	}
}

func (c *fakePacketConn) WriteTo(b []byte, to net.Addr) (int, error) {
	at := to.(*net.UDPAddr).AddrPort()
	if c.net.lost(c.addr.AddrPort().Addr(), at.Addr(), "udp") {
		return len(b), nil
	}
	data := append([]byte(nil), b...)
	c.net.mu.Lock()
	if c.net.tap != nil {
		c.net.tap(c.addr.AddrPort(), at, data)
	}
	c.net.mu.Unlock()
	time.AfterFunc(c.net.latency, func() {
		c.net.mu.Lock()
		far := c.net.packets[at.String()]
		c.net.mu.Unlock()
		if far == nil {
			return
		}
		select {
		case far.in <- fakePacket{data, c.addr}:
		default: // its buffer is full
		}
	})
	return len(b), nil
}

func (c *fakePacketConn) Close() error {
	c.once.Do(func() {
		close(c.done)
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		delete(c.net.packets, c.addr.AddrPort().String())
	})
	return nil
}

func (c *fakePacketConn) LocalAddr() net.Addr              { return c.addr }
func (c *fakePacketConn) SetDeadline(time.Time) error      { return nil }
func (c *fakePacketConn) SetReadDeadline(time.Time) error  { return nil }
func (c *fakePacketConn) SetWriteDeadline(time.Time) error { return nil }
