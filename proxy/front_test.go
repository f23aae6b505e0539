package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// origin is a backend written in the test: serve is called for each connection,
// which is closed when it returns.
type origin struct {
	addr  string
	heads atomic.Int64 // of requests that came
}

func newOrigin(t testing.TB, serve func(o *origin, c *net.TCPConn, in *bufio.Reader)) *origin {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &origin{addr: l.Addr().String()}
	var mu sync.Mutex
	open, over := map[net.Conn]bool{}, false
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if over {
				nc.Close()
			}
			open[nc] = true
			mu.Unlock()
			tasks.Go(func() {
				serve(o, nc.(*net.TCPConn), bufio.NewReader(nc))
				nc.Close()
				mu.Lock()
				delete(open, nc)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		over = true
		for nc := range open {
			nc.Close()
		}
		mu.Unlock()
		tasks.Wait()
	})
	return o
}

// next reads a request's head; nil at the connection's end.
func (o *origin) next(in *bufio.Reader) *http.Request {
	r, err := http.ReadRequest(in)
	if err != nil {
		return nil
	}
	o.heads.Add(1)
	return r
}

// reply sends a whole answer.
func reply(c net.Conn, text string) {
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
}

// front is a Server with one pool of origins.
type front struct {
	*proxy.Server
	t        testing.TB
	registry *prometheus.Registry
}

// newFront starts one; addrs are the backends, called b0, b1 and so on.
func newFront(t testing.TB, edit func(*proxy.PoolConfig), addrs ...string) *front {
	t.Helper()
	return newFrontOn(t, false, edit, addrs...)
}

// newFrontOn is newFront on the portable loop or by edges.
func newFrontOn(t testing.TB, plain bool, edit func(*proxy.PoolConfig), addrs ...string) *front {
	t.Helper()
	return newFrontFor(t, nil, plain, edit, addrs...)
}

// newFrontFor is newFrontOn with sessions.
func newFrontFor(t testing.TB, sessions proxy.Sessions, plain bool, edit func(*proxy.PoolConfig), addrs ...string) *front {
	t.Helper()
	return startFront(t, sessions, &rig{plain: plain}, nil, edit, addrs...)
}

// newFrontTrusting is a front with sessions that believes proxies of these
// networks.
func newFrontTrusting(t testing.TB, sessions proxy.Sessions, trusted []string, edit func(*proxy.PoolConfig), addrs ...string) *front {
	t.Helper()
	return startFront(t, sessions, &rig{}, trusted, edit, addrs...)
}

func startFront(t testing.TB, sessions proxy.Sessions, loop *rig, trusted []string, edit func(*proxy.PoolConfig), addrs ...string) *front {
	t.Helper()
	p := proxy.DefaultPool()
	p.Outlier.ConsecutiveFailures = 0
	for i, addr := range addrs {
		b := backend.DefaultConfig()
		b.ID, b.URL = fmt.Sprintf("b%d", i), "http://"+addr
		p.Backends = append(p.Backends, b)
	}
	edit(&p)
	l, r := proxy.DefaultListener(), proxy.DefaultRoute()
	r.Pool = "llm"
	l.Address, l.Routes, l.TrustedProxies = "127.0.0.1:0", []proxy.RouteConfig{r}, trusted
	g := &front{t: t, registry: prometheus.NewRegistry()}
	var err error
	g.Server, err = proxy.New(proxy.Config{Listeners: []proxy.ListenerConfig{l}, Timeouts: proxy.DefaultClientTimeouts(), Pools: map[string]proxy.PoolConfig{"llm": p}}, proxy.Options{
		Logger: slog.New(slog.DiscardHandler), Registry: g.registry, Dial: loop.dialer,
		Listen: loop.listener, Ready: func() error { return nil }, Sessions: sessions,
	})
	if err == nil {
		err = g.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.stop(0) })
	return g
}

func (g *front) stop(limit time.Duration) proxy.Report {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return g.Stop(ctx)
}

// backend is the pool's i-th.
func (g *front) backend(i int) *backend.Backend { return g.Pools()[0].Backends()[i] }

// dial opens a client's connection.
func (g *front) dial() *net.TCPConn {
	g.t.Helper()
	c, err := net.Dial("tcp", g.Addrs()[0])
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		g.t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// said is an answer as a client sees it.
type said struct {
	status int
	code   string // X-Starling-Error
	retry  string // Retry-After
	body   string
	err    error // also where the body ended too soon
}

// hear reads an answer.
func hear(c net.Conn, method string) said {
	r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		return said{err: err}
	}
	body, err := io.ReadAll(r.Body)
	return said{r.StatusCode, r.Header.Get("X-Starling-Error"), r.Header.Get("Retry-After"), string(body), err}
}

// get sends a GET on a connection of its own, to be heard later.
func (g *front) get(path string) *net.TCPConn {
	c := g.dial()
	io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
	return c
}

// eventually waits until ok says "".
func (g *front) soon(limit time.Duration, ok func() string) {
	g.t.Helper()
	last, end := "", time.After(limit)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if last = ok(); last == "" {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			g.t.Fatalf("after %v: %s", limit, last)
		}
	}
}

// counts waits until so many streams run and wait.
func (g *front) counts(limit time.Duration, running, waiting int64) {
	g.t.Helper()
	g.soon(limit, func() string {
		if r, w := g.InFlight(), g.Waiting(); r != running || w != waiting {
			return fmt.Sprintf("%d run and %d wait, want %d and %d", r, w, running, waiting)
		}
		return ""
	})
}

// metric sums the samples of a metric whose labels have all these values; of a
// histogram, their count.
func (g *front) metric(name string, values ...string) (sum float64) {
	g.t.Helper()
	families, err := g.registry.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "starling_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			text := ""
			for _, l := range m.GetLabel() {
				text += " " + l.GetValue() + " "
			}
			all := true
			for _, v := range values {
				all = all && strings.Contains(text, " "+v+" ")
			}
			if all {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func expect[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// hearMore is the status of the next answer on a connection; 0 where there is
// none.
func hearMore(in *bufio.Reader) int {
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return 0
	}
	return r.StatusCode
}
