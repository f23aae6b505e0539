package health

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/starling-lb/starling/proxy/backend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is what a fake backend says on a path.
type answer struct {
	status int
	body   string
	after  time.Duration
}

// ward is a pool of fake backends at pipes' ends, in the time of a bubble, and a
// prober that watches them.
type ward struct {
	t    *testing.T
	pool *backend.Pool
	log  strings.Builder

	mu       sync.Mutex
	answers  map[string]answer // by path; none: 404
	refuse   bool
	asked    []string // paths, and "connect" for a connection that asked nothing
	hosts    map[string]bool
	connects int
	open     int // connections

	prober   *Prober
	registry *prometheus.Registry
	serving  sync.WaitGroup
}

func newWard(t *testing.T, n int, change func(*backend.HealthConfig)) *ward {
	w := &ward{t: t, answers: map[string]answer{"/health": {status: 200}}, hosts: map[string]bool{}, registry: prometheus.NewRegistry()}
	cfg := backend.DefaultHealth()
	cfg.Jitter = 0
	if change != nil {
		change(&cfg)
	}
	var configs []backend.Config
	for i := range n {
		configs = append(configs, backend.Config{ID: fmt.Sprintf("b%d", i), URL: fmt.Sprintf("http://b%d:9000", i), Weight: 1})
	}
	var err error
	w.pool, err = backend.NewPool("llm", configs, backend.Rules{Outlier: backend.DefaultOutlier(), Health: cfg}, backend.Hooks{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w.prober, err = New(func() []*backend.Pool { return []*backend.Pool{w.pool} }, Options{
		Logger: slog.New(slog.NewTextHandler(&w.log, nil)), Registry: w.registry, Connect: w.connect,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// run watches for a time.
func (w *ward) run(d time.Duration) {
	w.t.Helper()
	if err := w.prober.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	<-time.After(d)
	synctest.Wait()
}

func (w *ward) stop() {
	w.prober.Stop()
	w.serving.Wait()
	if _, _, _, open := w.seen(); open != 0 {
		w.t.Errorf("%d connections are left", open)
	}
}

func (w *ward) say(path string, a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[path] = a
}

func (w *ward) refuses(yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = yes
}

// seen copies what the backends saw.
func (w *ward) seen() (asked []string, hosts map[string]bool, connects, open int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked), maps.Clone(w.hosts), w.connects, w.open
}

func (w *ward) connect(_ context.Context, pool string, b *backend.Backend) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connects++
	if w.refuse {
		return nil, syscall.ECONNREFUSED
	}
	near, far := net.Pipe()
	w.open++
	w.serving.Go(func() { w.serve(far) })
	return near, nil
}

func (w *ward) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		w.mu.Lock()
		w.open--
		w.mu.Unlock()
	}()
	req, err := http.ReadRequest(bufio.NewReader(c))
	w.mu.Lock()
	if err != nil {
		w.asked = append(w.asked, "connect")
		w.mu.Unlock()
		return
	}
	w.asked = append(w.asked, req.URL.Path)
	w.hosts[req.Host] = true
	a, ok := w.answers[req.URL.Path]
	w.mu.Unlock()
	if !ok {
		a.status = 404
	}
	left := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, c); close(left) }()
	select {
	case <-left:
	case <-time.After(a.after):
		_, _ = fmt.Fprintf(c, "HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s", a.status, len(a.body), a.body)
		_ = c.Close()
		<-left
	}
}

// state is that of the first backend.
func (w *ward) state() backend.State { return w.pool.Backends()[0].Standing().State }

// checks is how many of b0 were counted under a result.
func (w *ward) checks(result string) float64 { return w.counted()["b0 "+result] }

// counted is the metric, by backend and result.
func (w *ward) counted() map[string]float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		l := m.GetLabel() // sorted: backend, pool, result
		all[l[0].GetValue()+" "+l[2].GetValue()] = m.GetCounter().GetValue()
	}
	return all
}

// Within what time a fault is seen, and its end.
func TestFaultAndRecovery(t *testing.T) {
	for _, c := range []struct {
		name   string
		fault  func(*ward)
		within time.Duration // three failures: at most 2 s to the first, 1 s between them, and the time-outs
	}{
		{"500", func(w *ward) { w.say("/health", answer{status: 500}) }, 4 * time.Second},
		{"refuses", func(w *ward) { w.refuses(true) }, 4 * time.Second},
		{"hangs", func(w *ward) { w.say("/health", answer{status: 200, after: time.Hour}) }, 7 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWard(t, 1, nil)
				defer w.stop()
				w.run(10 * time.Second)
				if w.state() != backend.Active || w.checks("ok") < 4 || w.checks("fail") != 0 {
					t.Fatalf("well: %s, %v checks", w.state(), w.checks("ok"))
				}
				c.fault(w)
				<-time.After(1900 * time.Millisecond) // at most one check since
				if w.state() != backend.Active {
					t.Error("out before three failures")
				}
				<-time.After(c.within - 1900*time.Millisecond)
				if s := w.pool.Backends()[0].Standing(); s.State != backend.Unhealthy || s.Reason == "" {
					t.Fatalf("after %v: %+v", c.within, s)
				}
				w.refuses(false)
				w.say("/health", answer{status: 200})
				<-time.After(7 * time.Second) // up to down_interval, and half an interval to the second success
				if w.state() != backend.Active {
					t.Errorf("well again: %+v", w.pool.Backends()[0].Standing())
				}
			})
		})
	}
}

func TestPauses(t *testing.T) {
	cfg := backend.DefaultHealth()
	down, waits := backend.Verdict{Down: true}, backend.Verdict{NotReady: true}
	for _, c := range []struct {
		found backend.Finding
		v     backend.Verdict
		want  time.Duration
	}{
		{backend.LookOK, backend.Verdict{}, 2 * time.Second},
		{backend.LookSlow, backend.Verdict{}, 2 * time.Second},
		{backend.LookFail, backend.Verdict{}, time.Second},
		{backend.LookFail, down, 5 * time.Second},
		{backend.LookOK, down, time.Second},
		{backend.LookNotReady, waits, 2 * time.Second},
		{backend.LookOK, waits, time.Second},
		{backend.LookFail, waits, time.Second},
	} {
		if got := pause(cfg, backend.Look{Finding: c.found}, c.v); got != c.want {
			t.Errorf("%s while %+v: %v, want %v", c.found, c.v, got, c.want)
		}
	}
	for range 1000 {
		if got := spread(time.Second, .1); got < 900*time.Millisecond || got > 1100*time.Millisecond {
			t.Fatalf("1s spread by a tenth is %v", got)
		}
	}
}

func TestExpectations(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*backend.HealthConfig)
		answers map[string]answer
		want    backend.Finding
	}{
		{"plain", nil, nil, backend.LookOK},
		{"a redirect", nil, map[string]answer{"/health": {status: 302}}, backend.LookOK},
		{"a status too high", nil, map[string]answer{"/health": {status: 400}}, backend.LookFail},
		{"that is expected", func(c *backend.HealthConfig) { c.ExpectStatus = "400" }, map[string]answer{"/health": {status: 400}}, backend.LookOK},
		{"another than expected", func(c *backend.HealthConfig) { c.ExpectStatus = "204" }, nil, backend.LookFail},
		{"a body", func(c *backend.HealthConfig) { c.ExpectBody = "^fine" }, map[string]answer{"/health": {status: 200, body: "fine\n"}}, backend.LookOK},
		{"another body", func(c *backend.HealthConfig) { c.ExpectBody = "^fine" }, map[string]answer{"/health": {status: 200, body: "ill"}}, backend.LookFail},
		{"too far in the body", func(c *backend.HealthConfig) { c.ExpectBody = "fine" },
			map[string]answer{"/health": {status: 200, body: strings.Repeat("x", maxBody) + "fine"}}, backend.LookFail},
		{"ready", func(c *backend.HealthConfig) { c.ReadyPath = "/ready" }, map[string]answer{"/ready": {status: 200}}, backend.LookOK},
		{"not ready", func(c *backend.HealthConfig) { c.ReadyPath = "/ready" }, map[string]answer{"/ready": {status: 503}}, backend.LookNotReady},
		{"readiness in the dark", func(c *backend.HealthConfig) { c.ReadyPath = "/ready" }, map[string]answer{"/ready": {status: 200, after: time.Minute}}, backend.LookFail},
		{"dead, and ready", func(c *backend.HealthConfig) { c.ReadyPath = "/ready" },
			map[string]answer{"/health": {status: 500}, "/ready": {status: 200}}, backend.LookFail},
		{"tcp", func(c *backend.HealthConfig) { c.Type = "tcp" }, map[string]answer{"/health": {status: 500}}, backend.LookOK},
		{"slow", func(c *backend.HealthConfig) { c.SlowThreshold = 300 * time.Millisecond }, map[string]answer{"/health": {status: 200, after: 400 * time.Millisecond}}, backend.LookSlow},
		{"not slow", func(c *backend.HealthConfig) { c.SlowThreshold = 500 * time.Millisecond }, map[string]answer{"/health": {status: 200, after: 400 * time.Millisecond}}, backend.LookOK},
		{"late", nil, map[string]answer{"/health": {status: 200, after: 1100 * time.Millisecond}}, backend.LookFail},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWard(t, 1, c.change)
				defer w.stop()
				for path, a := range c.answers {
					w.say(path, a)
				}
				w.run(4 * time.Second)
				looks := w.pool.Looks(w.pool.Backends()[0])
				if len(looks) == 0 || looks[0].Finding != c.want || (looks[0].Why == "") != (c.want == backend.LookOK) {
					t.Fatalf("found %+v, want %s", looks, c.want)
				}
				if late := strings.Contains(c.name, "late") || strings.Contains(c.name, "dark"); looks[0].TimedOut != late {
					t.Errorf("timed out: %v", looks[0].TimedOut)
				}
				if w.checks(string(c.want)) != float64(len(looks)) {
					t.Errorf("%d looks, %v counted", len(looks), w.checks(string(c.want)))
				}
				if _, hosts, _, _ := w.seen(); c.name == "plain" && !hosts["b0:9000"] {
					t.Errorf("asked for hosts %v", hosts)
				}
			})
		})
	}
}

// A path that was never there is no illness: a connection is enough then, and
// now and then the path is asked for again. One that was there once is.
func TestNoSuchPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, 1, nil)
		defer w.stop()
		delete(w.answers, "/health")
		w.run(50 * time.Second)
		gets, connects := 0, 0
		asked, _, _, _ := w.seen()
		for _, path := range asked {
			if path == "connect" {
				connects++
			} else {
				gets++
			}
		}
		if w.state() != backend.Active || gets != 1 || connects < 20 || strings.Count(w.log.String(), "no such health path") != 1 {
			t.Fatalf("%s, %d asked for the path, %d for a connection; log %s", w.state(), gets, connects, &w.log)
		}
		w.say("/health", answer{status: 200})
		<-time.After(30 * time.Second)
		w.mu.Lock()
		delete(w.answers, "/health")
		w.mu.Unlock()
		<-time.After(5 * time.Second)
		if w.state() != backend.Unhealthy {
			t.Errorf("a path that went away: %s", w.state())
		}
	})
}

// A backend too busy to answer its check is not down while its streams flow.
func TestBusyIsNotDead(t *testing.T) {
	for _, flows := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWard(t, 1, nil)
			defer w.stop()
			l, err := w.pool.Pick(time.Now(), backend.Ask{})
			if err != nil {
				t.Fatal(err)
			}
			l.Answered(time.Now())
			l.Began(time.Now())
			defer l.Release(time.Now())
			w.run(5 * time.Second)
			w.say("/health", answer{status: 200, after: time.Hour})
			for range 60 {
				if flows {
					l.Progress(1, 20)
				}
				<-time.After(500 * time.Millisecond)
			}
			want := backend.Unhealthy
			if flows {
				want = backend.Active
			}
			if w.state() != want || w.checks("fail") < 3 {
				t.Errorf("bytes come %v: %s after %v failed checks", flows, w.state(), w.checks("fail"))
			}
		})
	}
}

// Backends that join are watched, those that leave are not.
func TestPoolChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, 1, nil)
		defer w.stop()
		w.run(5 * time.Second)
		rules := backend.Rules{Outlier: backend.DefaultOutlier(), Health: w.pool.Health()}
		if err := w.pool.Update([]backend.Config{{ID: "b1", URL: "http://b1:9000", Weight: 1}}, rules, time.Now()); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second) // the checks that were due are over
		w.mu.Lock()
		w.hosts = map[string]bool{}
		w.mu.Unlock()
		<-time.After(5 * time.Second)
		if _, hosts, _, _ := w.seen(); !hosts["b1:9000"] || hosts["b0:9000"] {
			t.Errorf("asked %v", hosts)
		}
		if n := len(w.counted()); n != len(backend.Findings()) {
			t.Errorf("%d series are left", n)
		}
		rules.Health.Enabled = false
		if err := w.pool.Update([]backend.Config{{ID: "b1", URL: "http://b1:9000", Weight: 1}}, rules, time.Now()); err != nil {
			t.Fatal(err)
		}
		<-time.After(3 * time.Second)
		_, _, before, _ := w.seen()
		<-time.After(10 * time.Second)
		if _, _, after, _ := w.seen(); after != before {
			t.Errorf("%d checks after they were switched off", after-before)
		}
	})
}

// An id that goes on with another URL goes on counting: its counters are the
// id's. A check that was under way counts for nobody.
func TestAnotherURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, 1, nil)
		defer w.stop()
		w.run(5 * time.Second)
		w.say("/health", answer{status: 200, after: 500 * time.Millisecond})
		before := w.checks("ok")
		_, _, connects, open := w.seen()
		for open == 0 || connects == 0 {
			<-time.After(10 * time.Millisecond)
			_, _, connects, open = w.seen()
		}
		old := w.pool.Backends()[0]
		rules := backend.Rules{Outlier: backend.DefaultOutlier(), Health: w.pool.Health()}
		if err := w.pool.Update([]backend.Config{{ID: "b0", URL: "http://other:9000", Weight: 1}}, rules, time.Now()); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		synctest.Wait() // the prober looks around in this very moment
		if after := w.checks("ok"); before < 2 || after < before {
			t.Errorf("%v checks before, %v a second after it got another URL", before, after)
		}
		pace := &w.prober.pools[0].pace
		pace.add(old, time.Second)
		pace.mu.Lock()
		defer pace.mu.Unlock()
		if len(pace.took) != 1 || pace.took[old] != nil {
			t.Errorf("the checks of %d backends are kept", len(pace.took))
		}
	})
}

func TestAssigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, 3, nil)
		defer w.stop()
		w.prober.opt.Assigned = func(b *backend.Backend) bool { return b.ID == "b2" }
		w.run(5 * time.Second)
		if _, hosts, _, _ := w.seen(); len(hosts) != 1 || !hosts["b2:9000"] {
			t.Errorf("asked %v", hosts)
		}
	})
}

// However many backends hang, a bounded number is asked at once; and Stop does
// not wait for them.
func TestManyThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, 2*atOnce, func(c *backend.HealthConfig) { c.Timeout = time.Hour })
		w.say("/health", answer{status: 200, after: 2 * time.Hour})
		w.run(10 * time.Second)
		if _, _, _, open := w.seen(); open != atOnce {
			t.Errorf("%d connections at once, the bound is %d", open, atOnce)
		}
		from := time.Now()
		w.stop()
		if took := time.Since(from); took > 0 {
			t.Errorf("Stop took %v", took)
		}
	})
}

// auto finds the slow one among those that are alike, and lets it be when it is
// as the others again.
func TestSlowByComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, 3, nil)
		defer w.stop()
		var slow sync.Map
		base := w.prober.opt.Connect
		w.prober.opt.Connect = func(ctx context.Context, pool string, b *backend.Backend) (net.Conn, error) {
			d := 30 * time.Millisecond
			if _, is := slow.Load(b.ID); is {
				d = 200 * time.Millisecond
			}
			<-time.After(d)
			return base(ctx, pool, b)
		}
		w.run(time.Minute)
		slowOnes := func() (n int) {
			for _, b := range w.pool.Backends() {
				if b.Slow() {
					n++
				}
			}
			return n
		}
		if slowOnes() != 0 {
			t.Fatal("slow from the start")
		}
		slow.Store("b1", true)
		<-time.After(6 * time.Minute) // longer than what it remembers
		if b := w.pool.Backends()[1]; slowOnes() != 1 || !b.Slow() || b.Standing().State != backend.Active {
			t.Errorf("%d are slow, b1 %v: %+v", slowOnes(), b.Slow(), b.Standing())
		}
		slow.Delete("b1")
		<-time.After(10 * time.Second)
		if slowOnes() != 0 {
			t.Error("slow for good")
		}
	})
}
