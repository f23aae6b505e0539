package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/proxy/backend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, page string
		want       Kind
		reading    Reading
		err        string
	}{
		{name: "vllm", page: "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\",engine=\"0\"} 3\nvllm:num_requests_running{model_name=\"m\",engine=\"1\"} 2\n" +
			"vllm:num_requests_waiting{model_name=\"m\"} 4\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.25\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.5\n", reading: Reading{VLLM, 5, 4, 0.5}},
		{name: "vllm of old", page: "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:gpu_cache_usage_perc 0.75\n", reading: Reading{VLLM, 1, 0, 0.75}},
		{name: "sglang", page: "sglang:num_running_reqs 7\nsglang:num_queue_reqs 1\nsglang:token_usage 0.28\n", reading: Reading{SGLang, 7, 1, 0.28}},
		{name: "tgi", page: "tgi_batch_current_size 8\ntgi_queue_size 2\n", want: TGI, reading: Reading{TGI, 8, 2, 0}},
		{name: "llamacpp", page: "# HELP llamacpp:requests_processing Number\n# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n", reading: Reading{LlamaCpp, 1, 0, 0}},
		{name: "another engine", page: "tgi_batch_current_size 8\n", want: VLLM, err: ErrNoEngine.Error()},
		{name: "no engine", page: "go_goroutines 8\n", err: ErrNoEngine.Error()},
		{name: "empty", err: ErrNoEngine.Error()},
		{name: "no page", page: "<html>not found</html>", err: "read the page"},
		{name: "no numbers", page: "vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\nvllm:kv_cache_usage_perc 7\n", reading: Reading{VLLM, 0, 0, 1}},
		{name: "below zero", page: "vllm:num_requests_running -3\n", reading: Reading{VLLM, 0, 0, 0}},
		{name: "too long", page: strings.Repeat("a_metric 1\n", maxPage/10), err: "longer than"},
	} {
		got, err := Parse(strings.NewReader(c.page), c.want)
		if c.err == "" && (err != nil || got != c.reading) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("vllm:num_requests_running{a=\"b\"} 3\nvllm:kv_cache_usage_perc 0.5 1234\n")
	f.Add("# TYPE vllm:num_requests_running histogram\nvllm:num_requests_running_bucket{le=\"1\"} 3\n")
	f.Add("# TYPE tgi_queue_size counter\ntgi_queue_size 1e308\ntgi_batch_current_size 1e308\n")
	f.Fuzz(func(t *testing.T, page string) {
		r, err := Parse(strings.NewReader(page), "")
		if err == nil && (r.Running < 0 || r.Waiting < 0 || r.Cache < 0 || r.Cache > 1 || math.IsNaN(r.Cache)) {
			t.Fatalf("%+v", r)
		}
	})
}

// transport answers without a network, so that time can be virtual.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func page(status int, text string) *http.Response {
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(strings.NewReader(text))}
}

func pool(t *testing.T, urls ...string) *backend.Pool {
	t.Helper()
	var list []backend.Config
	for _, u := range urls {
		list = append(list, backend.Config{URL: u, Weight: 1})
	}
	p, err := backend.NewPool("llm", list, backend.Rules{}, backend.Hooks{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// lines counts what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// An engine is asked each second; one that is none ever more rarely, down to
// once a minute, and is found within that once it is one.
func TestReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, told, lost atomic.Int64
		var broken atomic.Bool
		var log lines
		p := pool(t, "http://a:1")
		r := New(Options{
			Logger:   slog.New(slog.NewTextHandler(&log, nil)),
			Backends: p.Backends,
			Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				asked.Add(1)
				switch {
				case r.URL.String() != "http://a:1/metrics":
					return nil, errors.New("no such page " + r.URL.String())
				case broken.Load():
					return page(404, "no"), nil
				}
				return page(200, "vllm:num_requests_running 3\n"), nil
			})},
			Tell: func(_ *backend.Backend, got Reading, _ time.Time) {
				if got.Running == 3 {
					told.Add(1)
				}
			},
			Lost: func(*backend.Backend, error) { lost.Add(1) },
		})
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer r.Stop()
		<-time.After(20 * time.Second)
		if n := told.Load(); n < 16 || n > 22 || n != asked.Load() {
			t.Errorf("%d told and %d asked in 20 s", n, asked.Load())
		}
		if last, ok := r.Said(p.Backends()[0]); !ok || last != (Reading{Engine: VLLM, Running: 3}) {
			t.Errorf("it said %+v, %v", last, ok)
		}
		broken.Store(true)
		<-time.After(2 * time.Second)
		if last, ok := r.Said(p.Backends()[0]); ok {
			t.Errorf("it says nothing any more, but for %+v", last)
		}
		asked.Store(0)
		<-time.After(10 * time.Minute)
		if n := asked.Load(); n < 9 || n > 20 {
			t.Errorf("asked %d times in 10 minutes", n)
		}
		if lost.Load() != 1 || log.count("does not tell") != 1 {
			t.Errorf("lost %d times, said %d times", lost.Load(), log.count("does not tell"))
		}
		broken.Store(false)
		told.Store(0)
		<-time.After(80 * time.Second)
		if told.Load() < 5 || log.count("tells its load") != 2 {
			t.Errorf("told %d times after it came back, said %d times", told.Load(), log.count("tells its load"))
		}
	})
}

// A backend that hangs holds one turn for no longer than the patience, and the
// others are asked all the while; one that leaves the pool is asked no more.
func TestHungBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(t, "http://hung:1", "http://well:1")
		var hung, well atomic.Int64
		r := New(Options{
			Logger: slog.New(slog.DiscardHandler), Backends: p.Backends,
			Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				if r.URL.Host == "well:1" {
					well.Add(1)
					return page(200, "tgi_batch_current_size 1\n"), nil
				}
				hung.Add(1)
				<-r.Context().Done()
				return nil, r.Context().Err()
			})},
			Tell: func(*backend.Backend, Reading, time.Time) {},
		})
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer r.Stop()
		<-time.After(30 * time.Second)
		if well.Load() < 25 || hung.Load() < 2 || hung.Load() > 8 {
			t.Errorf("well asked %d times, hung %d times", well.Load(), hung.Load())
		}
		if err := p.Update([]backend.Config{{URL: "http://well:1", Weight: 1}}, backend.Rules{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		<-time.After(3 * time.Second)
		hung.Store(0)
		<-time.After(5 * time.Minute)
		if hung.Load() > 0 {
			t.Errorf("asked %d times after it left", hung.Load())
		}
	})
}

// Over a real connection, and with a page of megabytes that is no page.
func TestRealPage(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = io.WriteString(w, "vllm:num_requests_running 2\nvllm:num_requests_waiting 9\n")
		}
	}))
	defer server.Close()
	told := make(chan Reading, 1)
	r := New(Options{
		Logger: slog.New(slog.DiscardHandler), Backends: pool(t, server.URL).Backends, Kind: VLLM,
		Client: ClientOf(func(ctx context.Context, b *backend.Backend) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", b.Addr.Dial)
		}),
		Tell: func(_ *backend.Backend, got Reading, _ time.Time) {
			select {
			case told <- got:
			default:
			}
		},
	})
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	select {
	case got := <-told:
		if got != (Reading{VLLM, 2, 9, 0}) {
			t.Errorf("%+v", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("nothing was told")
	}
}
