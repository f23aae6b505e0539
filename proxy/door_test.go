package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy/backend"
)

const doorWait = 10 * time.Second // no wait in a test is longer

// door is a server with one listener and one pool.
type door struct {
	*Server
	addr string
	log  *lines
	reg  *prometheus.Registry
}

// plan is what a test may change before a door starts.
type plan struct {
	cfg      Config
	listener *ListenerConfig
	pool     PoolConfig
	opt      Options
	tune     func(*Server)
}

// newDoor starts a server in front of backends, given by URL; it is stopped with
// the test.
func newDoor(t *testing.T, edit func(*plan), urls ...string) *door {
	t.Helper()
	r := &door{log: &lines{}, reg: prometheus.NewRegistry()}
	l := DefaultListener()
	l.Address = "127.0.0.1:0"
	g := &plan{listener: &l, pool: DefaultPool()}
	g.cfg.Timeouts = DefaultClientTimeouts()
	g.opt = Options{
		Logger: slog.New(slog.NewTextHandler(r.log, nil)), Registry: r.reg,
		Dial: (&net.Dialer{}).DialContext, Listen: (&net.ListenConfig{}).Listen, Ready: func() error { return nil },
	}
	for i, url := range urls {
		b := backend.DefaultConfig()
		b.ID, b.URL = fmt.Sprintf("b%d", i+1), url
		g.pool.Backends = append(g.pool.Backends, b)
	}
	if edit != nil {
		edit(g)
	}
	g.cfg.Listeners, g.cfg.Pools = []ListenerConfig{l}, map[string]PoolConfig{"p": g.pool}
	var err error
	if r.Server, err = New(g.cfg, g.opt); err != nil {
		t.Fatal(err)
	}
	if g.tune != nil {
		g.tune(r.Server)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.addr = r.Addrs()[0]
	t.Cleanup(func() {
		began := time.Now()
		if r.Stop(ended()); time.Since(began) > 5*time.Second {
			t.Errorf("the stop took %v", time.Since(began))
		}
	})
	return r
}

// ended is a context for a stop that is to wait for nobody.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// dial connects a client.
func (r *door) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(doorWait)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// metric is the sum of a family's samples whose labels hold all of with.
func (r *door) metric(t *testing.T, name string, with ...string) (sum float64) {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "starling_"+name {
			continue
		}
	sample:
		for _, m := range f.GetMetric() {
			labels := m.String()
			for _, w := range with {
				if !strings.Contains(labels, fmt.Sprintf("%q", w)) {
					continue sample
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// get is a request that leaves the connection open.
const get = "GET / HTTP/1.1\r\nHost: t.test\r\n\r\n"

// ask sends a request and reads its whole answer.
func ask(t *testing.T, c net.Conn, request string) (*http.Response, string) {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatalf("send: %v", err)
	}
	return answer(t, bufio.NewReader(c))
}

func answer(t *testing.T, in *bufio.Reader) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("answer: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("body: %v", err)
	}
	return resp, string(body)
}

// wantStatus checks an answer's status, and the code where starling made it.
func wantStatus(t *testing.T, resp *http.Response, status int, code backend.Code) {
	t.Helper()
	if got := resp.Header.Get("X-Starling-Error"); resp.StatusCode != status || got != string(code) {
		t.Fatalf("status %d %q, want %d %q", resp.StatusCode, got, status, code)
	}
}

// closed waits for the end of a connection, and returns what came before.
func closed(t *testing.T, c net.Conn) string {
	t.Helper()
	rest, err := io.ReadAll(c)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Fatal("the connection is still open")
	}
	return string(rest)
}

// echo is a backend that answers with the head of the request.
func echo(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(describe))
	t.Cleanup(s.Close)
	return s.URL
}

func describe(w http.ResponseWriter, q *http.Request) {
	_, _ = io.Copy(io.Discard, q.Body) // fails with the test
	fmt.Fprintf(w, "host=%s\n", q.Host)
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"} {
		fmt.Fprintf(w, "%s=%s\n", strings.ToLower(name), strings.Join(q.Header.Values(name), "|"))
	}
}

// eventually waits until look finds nothing wrong.
func settles(t *testing.T, look func() string) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for by := time.Now().Add(doorWait); ; <-tick.C {
		wrong := look()
		if wrong == "" {
			return
		}
		if time.Now().After(by) {
			t.Fatalf("still: %s", wrong)
		}
	}
}

// await gets a value in time.
func got[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(doorWait):
		t.Fatalf("%s: nothing for %v", what, doorWait)
		panic("unreachable")
	}
}

// lines is a log that can be searched.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}
