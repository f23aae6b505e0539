package testcluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
)

// plug is what a node's network to the other nodes hangs on. Once it is pulled,
// all breaks at once, as when a process dies: nothing more gets out.
type plug struct {
	from net.Addr // of calls; nil: any

	mu   sync.Mutex
	out  bool
	open map[io.Closer]struct{}
}

func newPlug() *plug { return &plug{open: make(map[io.Closer]struct{})} }

// hold closes c when the plug is pulled, or at once if it is.
func (p *plug) hold(c io.Closer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out {
		_ = c.Close() // it was never used
		return net.ErrClosed
	}
	p.open[c] = struct{}{}
	return nil
}

func (p *plug) forget(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

func (p *plug) pull() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = true
	for c := range p.open {
		_ = c.Close() // whoever holds it closes it too, and hears of it
	}
	clear(p.open)
}

func (p *plug) pulled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out
}

func (p *plug) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{LocalAddr: p.from}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return p.wrap(c)
}

func (p *plug) wrap(c net.Conn) (net.Conn, error) {
	if err := p.hold(c); err != nil {
		return nil, err
	}
	return &plugged{c, p}, nil
}

func (p *plug) listen(ctx context.Context, network, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &socket{l, p}, p.hold(l)
}

func (p *plug) listenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	c, err := new(net.ListenConfig).ListenPacket(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return c, p.hold(c)
}

// plugged is a connection that the plug has.
type plugged struct {
	net.Conn
	plug *plug
}

func (c *plugged) Close() error {
	c.plug.forget(c.Conn)
	return c.Conn.Close()
}

// socket is a listener whose connections the plug has.
type socket struct {
	net.Listener
	plug *plug
}

// SyscallConn is for an upgrade, which hands the socket over.
func (s *socket) SyscallConn() (syscall.RawConn, error) {
	c, ok := s.Listener.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a %T is no plain socket", s.Listener)
	}
	return c.SyscallConn()
}

func (s *socket) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return s.plug.wrap(c)
}
