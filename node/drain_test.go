package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// said is a log.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *said) last() string {
	lines := strings.Split(strings.TrimSpace(s.all()), "\n")
	return lines[len(lines)-1]
}

// says waits for a line that has all the words.
func (s *said) says(t *testing.T, words ...string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for by := time.Now().Add(20 * time.Second); time.Now().Before(by); <-tick.C {
		for line := range strings.Lines(s.all()) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return
			}
		}
	}
	t.Fatalf("no line has %q:\n%s", words, s.all())
}

func TestNotice(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		polls polls
		by    time.Time
		want  time.Duration
	}{
		"nobody asked":                 {polls{}, now.Add(time.Hour), 0},
		"asked once, as scripts do":    {polls{{}, ago(time.Second)}, now.Add(time.Hour), 0},
		"asked long ago":               {polls{ago(61 * time.Second), ago(time.Second)}, now.Add(time.Hour), 0},
		"asked regularly":              {polls{ago(59 * time.Second), ago(29 * time.Second)}, now.Add(time.Hour), 5 * time.Second},
		"a short drain":                {polls{ago(2 * time.Second), ago(time.Second)}, now.Add(10 * time.Second), time.Second},
		"a drain without an end":       {polls{ago(2 * time.Second), ago(time.Second)}, time.Time{}, 5 * time.Second},
		"a drain that is over already": {polls{ago(2 * time.Second), ago(time.Second)}, ago(time.Second), 0},
	} {
		if got := c.polls.notice(now, c.by); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// drained is a node with a backend whose answers to /hold last until release is
// called; log may be nil.
func drained(t *testing.T, log *slog.Logger) (n *Node, release func()) {
	t.Helper()
	held := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		io.WriteString(w, "first\n")
		if q.URL.Path == "/hold" {
			w.(http.Flusher).Flush()
			<-held
		}
	}))
	t.Cleanup(s.Close)
	cfg := DefaultConfig()
	cfg.Node.Name, cfg.Node.DataDir = "n1", t.TempDir()
	cfg.Admin.Address = "127.0.0.1:0"
	b, pool, route, l := backend.DefaultConfig(), proxy.DefaultPool(), proxy.DefaultRoute(), proxy.DefaultListener()
	b.ID, b.URL = "b1", s.URL
	pool.Backends = []backend.Config{b}
	route.Pool = "p"
	l.Address, l.ReadyPath, l.Routes = "127.0.0.1:0", "/ready", []proxy.RouteConfig{route}
	cfg.Listeners, cfg.Pools = []proxy.ListenerConfig{l}, map[string]proxy.PoolConfig{"p": pool}
	n, err := New(cfg, Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = n.Stop(now) // does nothing if the test has
	})
	return n, func() { close(held) }
}

// asks sends a request on a connection of its own, and reads the head of the
// answer.
func asks(t *testing.T, n *Node, path string) (*http.Response, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", n.ProxyAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: t\r\n\r\n", path)
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return resp, in
}

func stops(n *Node, ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- n.Stop(ctx) }()
	return done
}

func ends(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the drain does not end")
	}
}

// until asks for a path until its answer has the status.
func until(t *testing.T, n *Node, path string, status int) *http.Response {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for by := time.Now().Add(20 * time.Second); time.Now().Before(by); <-tick.C {
		resp, _ := asks(t, n, path)
		if resp.StatusCode == status {
			return resp
		}
	}
	t.Fatalf("%s never gets %d", path, status)
	return nil
}

// A drain has three phases: not ready but serving; turning away; and the end of
// what still runs.
func TestDrainInPhases(t *testing.T) {
	var log said
	n, release := drained(t, slog.New(slog.NewTextHandler(&log, nil)))
	held, in := asks(t, n, "/hold")
	for range 2 {
		if resp, _ := asks(t, n, "/ready"); resp.StatusCode != 200 {
			t.Fatalf("ready: %d", resp.StatusCode)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // a notice of 1 s
	defer cancel()
	done := stops(n, ctx)
	began := time.Now()
	until(t, n, "/ready", 503)
	if d := n.Status().Drain; d == nil || d.Phase != api.NoticePhase && time.Since(began) < 900*time.Millisecond {
		t.Errorf("in the notice, the status says %+v", d)
	}
	resp, _ := asks(t, n, "/")
	if time.Since(began) < 900*time.Millisecond && (resp.StatusCode != 200 || !resp.Close) {
		t.Errorf("in the notice: %d, closes %v", resp.StatusCode, resp.Close)
	}
	resp = until(t, n, "/", 503)
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("turned away after %v already", took)
	}
	if code := resp.Header.Get("X-Starling-Error"); code != "draining" {
		t.Errorf("turned away with %q", code)
	}
	if d := n.Status().Drain; d.Phase != api.TurningPhase || d.Left <= 0 || d.Cut > 0 {
		t.Errorf("after it, the status says %+v", d)
	}
	log.says(t, "still draining", "phase=turning_away streams=1 ")
	release()
	if rest, err := io.ReadAll(held.Body); err != nil || !strings.HasPrefix(string(rest), "first") {
		t.Errorf("the stream: %q, %v, %d behind it", rest, err, in.Buffered())
	}
	ends(t, done)
	if got := n.Drained(); got.Cut > 0 || got.Finished < 1 || got.Finished > 2 { // one may have come in the last instant of the notice
		t.Errorf("the report is %+v, want the stream finished", got)
	}
	if last := log.last(); !strings.Contains(last, "msg=drained") || !strings.Contains(last, " cut=0 ") || strings.Contains(last, "cut_by") || !strings.Contains(last, "ended.done=") {
		t.Errorf("its last word is %q", last)
	}
}

// A node that is set aside finishes what runs, takes nothing new, and
// comes back; or it is stopped, without another notice.
func TestSetAside(t *testing.T) {
	n, release := drained(t, nil)
	held, _ := asks(t, n, "/hold")
	for range 2 {
		if err := n.DrainNode(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if d, state := n.Status().Drain, n.Status().Node.State; d == nil || d.Phase != api.TurningPhase || !d.Deadline.IsZero() || state != backend.MemberDraining {
		t.Errorf("the status says %s, %+v", state, d)
	}
	if resp, _ := asks(t, n, "/"); resp.StatusCode != 503 || resp.Header.Get("X-Starling-Error") != "draining" || !errors.Is(n.Ready(), ErrDraining) {
		t.Errorf("set aside: %d", resp.StatusCode)
	}
	if err := n.StayNode(t.Context()); err != nil {
		t.Fatal(err)
	}
	if resp, _ := asks(t, n, "/"); resp.StatusCode != 200 || resp.Close || n.Ready() != nil || n.Status().Drain != nil {
		t.Errorf("taken back: %d, closes %v, %v", resp.StatusCode, resp.Close, n.Ready())
	}
	if err := n.StayNode(t.Context()); err == nil {
		t.Error("a node that was not set aside is taken back")
	}
	if err := n.DrainNode(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := stops(n, t.Context())
	release()
	if rest, err := io.ReadAll(held.Body); err != nil || !strings.HasPrefix(string(rest), "first") {
		t.Errorf("the stream: %q, %v", rest, err)
	}
	ends(t, done)
	if err := n.DrainNode(t.Context()); err != nil && !strings.Contains(err.Error(), "about to end") {
		t.Errorf("after its end: %v", err)
	}
}

// A node that is set aside is so still when it comes back, until that is taken back,
// and then comes back as any other.
func TestSetAsideStays(t *testing.T) {
	n, _ := drained(t, nil)
	again := func() {
		t.Helper()
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		next, err := New(*n.cfg(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := next.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { next.Stop(context.Background()) })
		n = next
	}
	if err := n.DrainNode(t.Context()); err != nil {
		t.Fatal(err)
	}
	again()
	if resp, _ := asks(t, n, "/"); resp.StatusCode != 503 || !errors.Is(n.Ready(), ErrDraining) || n.Status().NotReady == "" || n.Status().Node.State != backend.MemberDraining {
		t.Errorf("after its restart: %d, %v, %+v", resp.StatusCode, n.Ready(), n.Status())
	}
	if err := n.StayNode(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if resp, _ := asks(t, n, "/"); resp.StatusCode != 200 || n.Ready() != nil {
			t.Errorf("taken back: %d, %v", resp.StatusCode, n.Ready())
		}
		again()
	}
}

// What the deadline cuts, and what a second signal does, is told apart.
func TestDrainCuts(t *testing.T) {
	for why, begin := range map[string]func() (context.Context, context.CancelFunc){
		"deadline": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 300*time.Millisecond)
		},
		`"told to hurry"`: func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) },
	} {
		var log said
		n, release := drained(t, slog.New(slog.NewTextHandler(&log, nil)))
		asks(t, n, "/hold")
		ctx, cancel := begin()
		done := stops(n, ctx)
		if why != "deadline" {
			until(t, n, "/", 503)
			cancel()
		}
		ends(t, done)
		cancel()
		if last := log.last(); !strings.Contains(last, " cut=1 ") || !strings.Contains(last, "cut_by="+why) || !strings.Contains(last, "ended.drained=1") {
			t.Errorf("its last word is %q, want cut_by=%s", last, why)
		}
		if d := n.drainInfo(); d.Phase != api.CuttingPhase || d.Cut != 1 {
			t.Errorf("in the end, the drain is %+v", d)
		}
		release()
	}
}

// Nobody looks at readiness: nobody is waited for. And a second signal ends the
// notice too.
func TestDrainWithoutNotice(t *testing.T) {
	for _, polled := range []bool{false, true} {
		n, _ := drained(t, nil)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if polled {
			until(t, n, "/ready", 200)
			until(t, n, "/ready", 200)
		}
		began, done := time.Now(), stops(n, ctx)
		if polled {
			until(t, n, "/ready", 503)
			cancel()
		}
		ends(t, done)
		if took := time.Since(began); took >= noticeMost {
			t.Errorf("polled %v: it took %v", polled, took)
		}
	}
}
