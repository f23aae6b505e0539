package quorum

import (
	"context"
	"net"
	"sync"
)

// loop is the network of a node alone: it reaches itself, which a replica that
// stands for election does, and nobody else reaches it.
type loop struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newLoop() *loop { return &loop{conns: make(chan net.Conn), closed: make(chan struct{})} }

var _ net.Listener = (*loop)(nil)

func (l *loop) listen(context.Context, string, string) (net.Listener, error) { return l, nil }

func (l *loop) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements net.Listener.
func (l *loop) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *loop) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *loop) Addr() net.Addr { return nowhere{} }

type nowhere struct{}

func (nowhere) Network() string { return "loop" }
func (nowhere) String() string  { return "this node alone" }
