package llm

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// front is one HTTP port that may be shut and opened again at the same address,
// and whose connections are known, so that they may be reset and waited for.
// One goroutine at a time calls open, shut and close.
type front struct {
	listen ListenFunc
	own    bool // listen is ours, so the port may be kept while it is shut
	srv    http.Server
	keep   io.Closer // keeps the port while no listener has it
	served chan struct{}

	mu    sync.Mutex
	addr  string
	l     net.Listener // nil while shut
	conns map[*conn]http.ConnState
	empty chan struct{} // closed by the last connection to go, once close waits
}

func newFront(s *Server, addr string, h http.Handler) *front {
	f := &front{listen: s.opts.Listen, addr: addr, conns: make(map[*conn]http.ConnState)}
	if f.listen == nil {
		f.listen, f.own = listenShared, true
	}
	f.srv = http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ConnState:         f.note,
	}
	return f
}

// open does nothing if the port is open.
func (f *front) open(ctx context.Context) error {
	if up, _ := f.state(); up {
		return nil
	}
	addr := f.address()
	first := f.own && f.keep == nil
	if first {
		// The shared listener would join another demo backend on the same port.
		alone, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
		if err != nil {
			return err // says what and where
		}
		alone.Close()
	}
	l, err := f.listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", addr, err)
	}
	if first {
		if f.keep, err = keepPort(l.Addr()); err != nil {
			l.Close()
			return fmt.Errorf("keep port %s: %w", l.Addr(), err)
		}
	}
	f.mu.Lock()
	f.l, f.addr = l, l.Addr().String()
	f.mu.Unlock()
	f.served = make(chan struct{})
	go func() { // shut waits for it
		defer close(f.served)
		f.srv.Serve(tracked{l}) // ends when shut closes l
	}()
	return nil
}

// shut lets connects be refused; connections stay.
func (f *front) shut() {
	f.mu.Lock()
	l := f.l
	f.l = nil
	f.mu.Unlock()
	if l != nil {
		l.Close()
		<-f.served
	}
}

// close lets answers under way end until ctx does.
func (f *front) close(ctx context.Context) {
	f.shut()
	if f.keep != nil {
		f.keep.Close()
	}
	f.srv.SetKeepAlivesEnabled(false) // closes idle connections, and busy ones after their answer
	empty := f.lastCall()
	select {
	case <-empty:
	case <-ctx.Done():
		f.srv.Close()
		<-empty
	}
}

// lastCall closes connections that never sent a request, which net/http would
// wait for, and tells when none is left.
func (f *front) lastCall() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.empty = make(chan struct{})
	if len(f.conns) == 0 {
		close(f.empty)
	}
	for c, state := range f.conns {
		if state == http.StateNew {
			c.Close()
		}
	}
	return f.empty
}

// note is net/http's hook; it runs before a connection's first read and as the
// last act of its goroutine.
func (f *front) note(nc net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := nc.(*conn)
	if state != http.StateClosed {
		f.conns[c] = state
		return
	}
	delete(f.conns, c)
	if f.empty != nil && len(f.conns) == 0 {
		close(f.empty)
	}
}

// resetAll cuts every connection so that its peer sees a reset.
func (f *front) resetAll() {
	f.mu.Lock()
	all := make([]*conn, 0, len(f.conns))
	for c := range f.conns {
		all = append(all, c)
	}
	f.mu.Unlock()
	for _, c := range all {
		c.reset()
	}
}

func (f *front) address() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.addr
}

func (f *front) state() (up bool, conns int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.l != nil, len(f.conns)
}

// tracked makes every connection one that can be found in a request's context.
type tracked struct{ net.Listener }

func (t tracked) Accept() (net.Conn, error) {
	c, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

type connKey struct{}

func connOf(ctx context.Context) *conn { return ctx.Value(connKey{}).(*conn) }

type conn struct {
	net.Conn
	cut atomic.Bool // by a fault of ours
}

func (c *conn) wasReset() bool { return c.cut.Load() }

// reset closes so that the peer sees a reset where the transport knows one, and
// an end without a last chunk anywhere else.
func (c *conn) reset() {
	c.cut.Store(true)
	inner := c.Conn
	for {
		u, ok := inner.(interface{ NetConn() net.Conn }) // TLS and the like
		if !ok {
			break
		}
		inner = u.NetConn()
	}
	if tcp, ok := inner.(*net.TCPConn); ok {
		tcp.SetLinger(0) // fails only on a closed connection
		tcp.Close()      // under TLS: no farewell
	}
	c.Conn.Close()
}
