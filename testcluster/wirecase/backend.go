package wirecase

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Backend is a raw TCP server: what happens on a connection is up to serve,
// and the connection is closed when that returns.
type Backend struct {
	serve    func(*Conn)
	listener net.Listener
	ctx      context.Context // ends when Stop begins
	cancel   context.CancelFunc
	tasks    sync.WaitGroup

	mu       sync.Mutex // guards what follows
	open     map[*Conn]bool
	accepted int
}

// NewBackend makes a backend that is not listening yet.
func NewBackend(serve func(*Conn)) *Backend {
	return &Backend{serve: serve, open: map[*Conn]bool{}}
}

// Start listens on a free port of 127.0.0.1.
func (b *Backend) Start(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for a raw backend: %w", err)
	}
	b.listener = l
	b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	b.tasks.Go(b.acceptLoop)
	return nil
}

// Addr is where it listens.
func (b *Backend) Addr() string { return b.listener.Addr().String() }

// Stop closes everything and waits until no serve runs.
func (b *Backend) Stop(context.Context) error {
	if b.listener == nil {
		return nil
	}
	b.cancel()
	err := b.listener.Close()
	b.mu.Lock()
	for c := range b.open {
		_ = c.conn.Close() // its serve will close it again
	}
	b.mu.Unlock()
	b.tasks.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Conns counts connections: accepted in all, and open now.
func (b *Backend) Conns() (accepted, open int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.accepted, len(b.open)
}

func (b *Backend) acceptLoop() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		c := &Conn{conn: conn, ctx: b.ctx, tap: &tap{conn: conn}}
		c.r = bufio.NewReader(c.tap)
		b.mu.Lock()
		b.accepted++
		b.open[c] = true
		b.mu.Unlock()
		b.tasks.Go(func() { b.run(c) })
	}
}

func (b *Backend) run(c *Conn) {
	stop := context.AfterFunc(b.ctx, func() { _ = c.conn.Close() })
	defer stop()
	b.serve(c)
	_ = c.conn.Close() // often closed already, by script or peer
	b.mu.Lock()
	delete(b.open, c)
	b.mu.Unlock()
}

// Conn is one connection from the proxy to a backend. Its methods block; one
// goroutine reads and one writes.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader
	tap  *tap
	ctx  context.Context
}

// ReadRequest reads the next request's head.
func (c *Conn) ReadRequest() (*Message, framing, error) {
	ahead, _ := c.r.Peek(c.r.Buffered())
	c.tap.restart(ahead)
	m, err := readHead(c.r)
	if err != nil {
		return m, framing{}, err
	}
	return m, m.asRequest(), nil
}

// ReadBody hands on each piece of the body as it comes and notes on m how it
// ended.
func (c *Conn) ReadBody(m *Message, f framing) error {
	b := bodyReader{r: c.r, piece: m.take}
	err := b.read(f)
	m.end(&b, err)
	return err
}

// Next reads the next complete request.
func (c *Conn) Next() (*Message, error) {
	m, f, err := c.ReadRequest()
	if err != nil {
		return m, err
	}
	return m, c.ReadBody(m, f)
}

// Send writes all of it.
func (c *Conn) Send(s string) error {
	_, err := io.WriteString(c.conn, s)
	return err
}

// Pause waits; false if the backend was stopped meanwhile.
func (c *Conn) Pause(d time.Duration) bool { return pause(c.ctx, d) }

// Fin says that no more bytes come from here; reading goes on.
func (c *Conn) Fin() error { return c.conn.(*net.TCPConn).CloseWrite() }

// Reset ends the connection with a RST.
func (c *Conn) Reset() error { return reset(c.conn) }

// Gone reads and drops until the proxy has ended the connection, and tells
// how: Fin, Reset, or "" if the backend was stopped first.
func (c *Conn) Gone() string {
	_, _ = io.Copy(io.Discard, c.r) // the tap saw how it ended
	_, ended := c.tap.seen()
	return ended
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
