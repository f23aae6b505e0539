package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

const patience = 40 * time.Second // no wait is longer

// rig is a data plane with one backend, whose connections the test holds.
type rig struct {
	t        *testing.T
	server   *proxy.Server
	registry *prometheus.Registry
	plain    bool                            // on the portable loop
	listens  func(net.Listener) net.Listener // what clients come by; nil: the listener itself
	arrivals chan *caller                    // requests at the backend
}

// caller is one end of an exchange in the test's hands.
type caller struct {
	*net.TCPConn
	t    *testing.T
	in   *bufio.Reader
	head string // what came first
}

// onEachLoop runs a test by edges and on the portable loop.
func onEachLoop(t *testing.T, edit func(*proxy.PoolConfig), test func(*rig)) {
	t.Parallel()
	for name, plain := range map[string]bool{"edges": false, "portable": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newRig(t, plain, edit))
		})
	}
}

func newRig(t *testing.T, plain bool, edit func(*proxy.PoolConfig)) *rig {
	return newRigDialing(t, plain, nil, edit)
}

// newRigDialing is a rig whose connections to backends are dial's; nil: real
// ones.
func newRigDialing(t *testing.T, plain bool, dial proxy.Dialer, edit func(*proxy.PoolConfig)) *rig {
	return (&rig{plain: plain}).build(t, dial, edit)
}

func (r *rig) build(t *testing.T, dial proxy.Dialer, edit func(*proxy.PoolConfig)) *rig {
	r.t, r.registry, r.arrivals = t, prometheus.NewRegistry(), make(chan *caller, 16)
	entry := backend.DefaultConfig()
	entry.ID, entry.URL = "b1", "http://"+r.listen()
	pool := proxy.DefaultPool()
	pool.Backends = []backend.Config{entry}
	sessions := proxy.DefaultSession() // whatever a stream comes to, its session's turn ends once
	sessions.Key = []string{"client_ip"}
	pool.Sticky = &sessions
	turns := newBook(t)
	if edit != nil {
		edit(&pool)
	}
	route, l := proxy.DefaultRoute(), proxy.DefaultListener()
	route.Pool = "p"
	l.Address, l.MaxConnections, l.Routes = "127.0.0.1:0", 0, []proxy.RouteConfig{route}
	cfg := proxy.Config{Listeners: []proxy.ListenerConfig{l}, Timeouts: proxy.DefaultClientTimeouts(), Pools: map[string]proxy.PoolConfig{"p": pool}}
	var err error
	if dial == nil {
		dial = r.dialer
	}
	r.server, err = proxy.New(cfg, proxy.Options{
		Logger: slog.New(slog.DiscardHandler), Registry: r.registry, Dial: dial, Listen: r.listener, Ready: func() error { return nil },
		Sessions: turns,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stopNow() })
	return r
}

// listen opens the backend.
func (r *rig) listen() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			a := r.caller(c)
			if a.head, err = readHead(a.in); err == nil {
				r.arrivals <- a
			}
		}
	}()
	r.t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return l.Addr().String()
}

func (r *rig) caller(c net.Conn) *caller {
	_ = c.SetDeadline(time.Now().Add(patience))
	r.t.Cleanup(func() { _ = c.Close() })
	return &caller{TCPConn: c.(*net.TCPConn), t: r.t, in: bufio.NewReader(c)}
}

// hidden is a connection that does not show that it is TCP.
type hidden struct{ net.Conn }

func (h hidden) CloseWrite() error       { return h.Conn.(*net.TCPConn).CloseWrite() }
func (h hidden) SetLinger(sec int) error { return h.Conn.(*net.TCPConn).SetLinger(sec) }

type hiding struct{ net.Listener }

func (h hiding) Accept() (net.Conn, error) {
	c, err := h.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return hidden{c}, nil
}

func (r *rig) dialer(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil || !r.plain {
		return c, err
	}
	return hidden{c}, nil
}

func (r *rig) listener(ctx context.Context, network, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, network, addr)
	switch {
	case err == nil && r.listens != nil:
		return r.listens(l), nil
	case err != nil || !r.plain:
		return l, err
	}
	return hiding{l}, nil
}

// connect is a client that has sent text.
func (r *rig) connect(text string) *caller {
	r.t.Helper()
	c, err := net.Dial("tcp", r.server.Addrs()[0])
	if err != nil {
		r.t.Fatal(err)
	}
	a := r.caller(c)
	a.send(text)
	return a
}

// arrived is the backend's end of the next request.
func (r *rig) arrived() *caller {
	r.t.Helper()
	return await(r.t, r.arrivals)
}

// stopNow stops the server with no time to drain.
func (r *rig) stopNow() proxy.Report {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return r.server.Stop(now)
}

// atRest waits until no stream runs, and checks how many ended for which reason.
func (r *rig) atRest(within time.Duration, want backend.Reason, n float64) {
	r.t.Helper()
	eventually(r.t, within, func() string {
		if i := r.server.InFlight(); i != 0 {
			return fmt.Sprintf("%d streams run", i)
		}
		return ""
	})
	for _, reason := range backend.Reasons() {
		expect := 0.0
		if reason == want {
			expect = n
		}
		if got := r.metric("starling_streams_total", "reason", string(reason)); got != expect {
			r.t.Errorf("%v streams ended with %s, want %v", got, reason, expect)
		}
	}
}

// metric sums the samples that carry a label's value.
func (r *rig) metric(family, label, value string) (sum float64) {
	r.t.Helper()
	all, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == family && l.GetName() == label && l.GetValue() == value {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

func (c *caller) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.TCPConn, text); err != nil {
		c.t.Fatalf("send %.40q: %v", text, err)
	}
}

// expect reads just this.
func (c *caller) expect(text string) {
	c.t.Helper()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(c.in, got); err != nil || string(got) != text {
		c.t.Fatalf("got %.80q and %v, want %.80q", got[:n], err, text)
	}
}

// answer reads the head of an answer.
func (c *caller) answer() string {
	c.t.Helper()
	head, err := readHead(c.in)
	if err != nil {
		c.t.Fatalf("head: %q and %v", head, err)
	}
	return head
}

// end reads on to the end and checks what it looks like.
func (c *caller) end(rest string, reset bool) {
	c.t.Helper()
	got, err := io.ReadAll(c.in)
	if string(got) != rest || errors.Is(err, syscall.ECONNRESET) != reset || !reset && err != nil {
		c.t.Errorf("the end is %.80q and %v, want %.80q and a reset: %v", got, err, rest, reset)
	}
}

// fill sends until nobody on the way takes any more.
func (c *caller) fill() {
	piece := make([]byte, 1<<20)
	for n := 1; n > 0; {
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, _ = c.Write(piece)
	}
}

func (c *caller) finish() {
	c.t.Helper()
	if err := c.CloseWrite(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *caller) reset() {
	c.t.Helper()
	if err := errors.Join(c.SetLinger(0), c.Close()); err != nil {
		c.t.Fatal(err)
	}
}

func readHead(in *bufio.Reader) (head string, err error) {
	for !strings.HasSuffix(head, "\r\n\r\n") {
		line, err := in.ReadString('\n')
		if head += line; err != nil {
			return head, err
		}
	}
	return head, nil
}

func await[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// prompt measures a time until it was short enough more often than not, and gives up
// once it was not half so often as times are measured, or was late by seconds; it
// returns how often it did.
func prompt(t *testing.T, what string, limit time.Duration, measure func() time.Duration) (times float64) {
	t.Helper()
	var took []time.Duration
	for late := 0; late <= attempts/2; {
		last := measure()
		if took = append(took, last); last > limit {
			late++
		}
		if last > limit+2*time.Second {
			break
		}
		if 2*late < len(took) {
			return float64(len(took))
		}
	}
	t.Errorf("%s after %v, want %v", what, took, limit)
	return float64(len(took))
}

// eventually waits until look finds nothing wrong.
func eventually(t *testing.T, within time.Duration, look func() string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for by := time.Now().Add(within); ; <-tick.C {
		late := time.Now().After(by)
		wrong := look()
		if wrong == "" {
			return
		}
		if late {
			t.Fatalf("after %v still: %s", within, wrong)
		}
	}
}
