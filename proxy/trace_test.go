package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy/backend"
)

// collector is a fake one: it takes OTLP/HTTP JSON, and does what answer says
// with each request, nil taking it.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	spans    []otlpSpan
	resource string
	posts    int
	wrong    []string
}

// otlpSpan has what the tests look at.
type otlpSpan struct {
	TraceID, SpanID, ParentSpanID, Name string
	Kind, Flags                         int
	Start                               string `json:"startTimeUnixNano"`
	End                                 string `json:"endTimeUnixNano"`
	Attributes                          []otlpAttribute
	Status                              struct{ Code int }
}

type otlpAttribute struct {
	Key   string
	Value struct {
		StringValue, IntValue *string
		DoubleValue           *float64
	}
}

func (s otlpSpan) attribute(key string) string {
	for _, a := range s.Attributes {
		switch v := a.Value; {
		case a.Key != key:
		case v.StringValue != nil:
			return *v.StringValue
		case v.IntValue != nil:
			return *v.IntValue
		case v.DoubleValue != nil:
			return strconv.FormatFloat(*v.DoubleValue, 'f', -1, 64)
		}
	}
	return ""
}

func newCollector(t testing.TB, answer func(post int, w http.ResponseWriter)) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		c.mu.Lock()
		c.posts++
		post := c.posts
		if err != nil || r.Method != "POST" || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
			c.wrong = append(c.wrong, fmt.Sprint(r.Method, r.URL, r.Header, err))
		}
		c.take(data)
		c.mu.Unlock()
		if answer != nil {
			answer(post, w)
		}
	}))
	t.Cleanup(func() {
		c.Close()
		for _, w := range c.wrong {
			t.Errorf("the collector got %s", w)
		}
	})
	return c
}

func (c *collector) take(data []byte) {
	var body struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes []otlpAttribute }
			ScopeSpans []struct{ Spans []otlpSpan }
		}
	}
	if err := json.Unmarshal(data, &body); err != nil || len(body.ResourceSpans) != 1 || len(body.ResourceSpans[0].ScopeSpans) != 1 {
		c.wrong = append(c.wrong, fmt.Sprintf("%.200q: %v", data, err))
		return
	}
	c.resource = fmt.Sprint(otlpSpan{Attributes: body.ResourceSpans[0].Resource.Attributes}.attribute("service.name"), " ",
		otlpSpan{Attributes: body.ResourceSpans[0].Resource.Attributes}.attribute("service.instance.id"))
	c.spans = append(c.spans, body.ResourceSpans[0].ScopeSpans[0].Spans...)
}

func traced(endpoint string, sample float64) func(*Config) {
	return func(cfg *Config) { cfg.Tracing = TracingConfig{OTLPEndpoint: endpoint, Sample: sample} }
}

// fieldsOf are the values of a head's fields of that name.
func fieldsOf(head, name string) (values []string) {
	for line := range strings.SplitSeq(head, "\r\n") {
		if n, v, ok := strings.Cut(line, ": "); ok && strings.EqualFold(n, name) {
			values = append(values, v)
		}
	}
	return values
}

func TestTraceparentForwarded(t *testing.T) {
	const (
		trace   = "0af7651916cd43dd8448eb211c80319c"
		parent  = "b7ad6b7169203331"
		sampled = "traceparent: 00-" + trace + "-" + parent + "-01\r\n"
		quiet   = "TraceParent: 00-" + trace + "-" + parent + "-00\r\n"
		states  = "tracestate: a=1\r\nTracestate: b=2\r\n"
	)
	tests := []struct {
		name, lines string
		sample      float64
		continues   bool
		flags       string
		states      int
		span        bool
	}{
		{"sampled", sampled + states, 0, true, "01", 2, true},
		{"not sampled", quiet + states, 1, true, "00", 2, false},
		{"none, to be kept", "", 1, false, "01", 0, true},
		{"none, not to be kept", "", 0, false, "00", 0, false},
		{"state alone", states, 0, false, "00", 0, false},
		{"invalid", strings.Replace(sampled, trace, strings.Repeat("0", 32), 1) + states, 0, false, "00", 0, false},
		{"twice", sampled + sampled + states, 0, false, "00", 0, false},
		{"named in Connection", sampled + "Connection: traceparent\r\n", 0, true, "01", 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan string, 1)
			col := newCollector(t, nil)
			s := newScene(t, playwright{"p": answers(okAnswer, asked)}, traced(col.URL, tt.sample))
			s.dial().ask("GET / HTTP/1.1\r\nHost: h\r\n" + tt.lines + "\r\n")
			head := <-asked
			s.end()
			got := fieldsOf(head, "traceparent")
			if len(got) != 1 {
				t.Fatalf("the backend got %q", got)
			}
			place, ok := parseTraceparent([]byte(got[0]))
			id := fmt.Sprintf("%x", place.trace)
			if !ok || (id == trace) != tt.continues || !strings.HasSuffix(got[0], tt.flags) || strings.Contains(got[0], parent) {
				t.Errorf("the backend got %q", got[0])
			}
			if n := len(fieldsOf(head, "tracestate")); n != tt.states {
				t.Errorf("%d tracestates went on, want %d", n, tt.states)
			}
			if n := len(col.spans); n != 1 && tt.span || n > 0 && !tt.span {
				t.Fatalf("%d spans came", n)
			}
			if !tt.span {
				return
			}
			want := otlpSpan{TraceID: id, SpanID: fmt.Sprintf("%x", place.span), Flags: 0x101}
			if tt.continues {
				want.ParentSpanID, want.Flags = parent, 0x301
			}
			if sp := col.spans[0]; sp.TraceID != want.TraceID || sp.SpanID != want.SpanID || sp.ParentSpanID != want.ParentSpanID || sp.Flags != want.Flags {
				t.Errorf("span %+v, want %+v", sp, want)
			}
		})
	}
}

// Without tracing of ours a client's fields are none of our business.
func TestTraceparentUntouched(t *testing.T) {
	asked := make(chan string, 1)
	for _, edit := range []func(*Config){nil, withLog(t, nil)} {
		s := newScene(t, playwright{"p": answers(okAnswer, asked)}, edit)
		lines := "TRACEparent: what\r\nTRACEparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\ntraceState: x\r\n"
		s.dial().ask("GET / HTTP/1.1\r\nHost: h\r\n" + lines + "\r\n")
		if head := <-asked; !strings.Contains(head, lines) {
			t.Errorf("the backend got %q", head)
		}
	}
}

func TestSpan(t *testing.T) {
	col := newCollector(t, nil)
	s := newScene(t, playwright{"p": answers(okAnswer, nil), "broken": once("")}, func(cfg *Config) {
		traced(col.URL+"/v1/traces", 1)(cfg)
		tries(cfg, 1)
		cfg.Listeners[0].Routes = []RouteConfig{{PathPrefix: "/p", Pool: "p"}, {PathPrefix: "/broken", Pool: "broken"}}
	})
	before := time.Now()
	for _, request := range []string{
		"POST /p/a?secret=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", "BREW /broken HTTP/1.1\r\nHost: h\r\n\r\n", "GET /x HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET / HTTP/1.1\r\nHost : h\r\n\r\n", // no request, and no span
	} {
		s.dial().ask(request)
	}
	s.end()
	if col.resource != "starling n1" {
		t.Errorf("resource %q", col.resource)
	}
	var got []string
	for _, sp := range col.spans {
		line := sp.Name
		for _, key := range []string{
			"http.request.method", "http.request.method_original", "url.scheme", "url.path", "client.address", "starling.pool", "starling.backend",
			"starling.reason", "starling.attempts", "starling.bytes_in", "http.response.status_code", "error.type",
		} {
			line += " " + sp.attribute(key)
		}
		got = append(got, fmt.Sprint(line, " ", sp.Kind, " ", sp.Status.Code, " ", sp.attribute("starling.time_to_first_byte") != ""))
		from, _ := strconv.ParseInt(sp.Start, 10, 64)
		to, _ := strconv.ParseInt(sp.End, 10, 64)
		if from < before.UnixNano() || to < from || to > time.Now().UnixNano() {
			t.Errorf("from %s to %s", sp.Start, sp.End)
		}
		if sp.attribute("starling.request_id") == "" {
			t.Errorf("%+v has no request id", sp)
		}
	}
	want := []string{
		"GET GET  http /x 127.0.0.1   refused 0 0 404  2 0 false",
		"HTTP _OTHER BREW http /broken 127.0.0.1 broken b-broken backend_broke 1 0 502 backend_broke 2 2 false",
		"POST POST  http /p/a 127.0.0.1 p b-p done 1 3 200  2 0 true",
	}
	slices.Sort(got) // a stream is recorded after its client was answered
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("spans\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func TestSpanBytes(t *testing.T) {
	worst := bytes.Repeat([]byte{0}, 5<<10)
	text := string(worst)
	e := accessEntry{
		started: time.Now(), requestID: worst, client: text, method: worst, target: worst, status: 599, code: backend.Code(text), pool: text, backend: text,
		attempts: 1 << 62, queued: 1, firstByte: 1, in: -1 << 63, out: -1 << 63, took: 1, reason: backend.Reason(text), parent: [8]byte{1},
	}
	for _, e := range []accessEntry{e, {}} {
		line := appendSpan(nil, &e)
		if len(line) > maxAccessLine {
			t.Errorf("%d bytes, at most %d", len(line), maxAccessLine)
		}
		if !json.Valid(bytes.TrimSuffix(line, []byte(",\n"))) || bytes.Count(line, []byte("\n")) != 1 {
			t.Errorf("no JSON in a line: %.300q", line)
		}
	}
}

// Whatever the collector does, streams are carried, and what is lost is counted.
func TestCollectorFails(t *testing.T) {
	tests := []struct {
		name   string
		answer func(post int, w http.ResponseWriter)
		posts  int
		lost   float64
	}{
		{"takes all", nil, 1, 0},
		{"comes back", func(post int, w http.ResponseWriter) {
			if post == 1 {
				w.WriteHeader(503)
			}
		}, 2, 0},
		{"says when", func(post int, w http.ResponseWriter) {
			if post == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(429)
			}
		}, 2, 0},
		{"refuses", func(_ int, w http.ResponseWriter) { w.WriteHeader(400) }, 1, 3},
		{"sends elsewhere", func(_ int, w http.ResponseWriter) {
			w.Header().Set("Location", "/v1/traces")
			w.WriteHeader(307)
		}, 1, 3},
		{"takes a part", func(_ int, w http.ResponseWriter) {
			io.WriteString(w, `{"partialSuccess":{"rejectedSpans":"2","errorMessage":"x"}}`)
		}, 1, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			col := newCollector(t, tt.answer)
			s := newScene(t, playwright{"p": answers(okAnswer, nil)}, traced(col.URL, 1))
			c := s.dial()
			for range 3 {
				if head, _ := c.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n"); !strings.HasPrefix(head, "HTTP/1.1 200") {
					t.Errorf("got %q", head)
				}
			}
			poll(t, "the collector's turn", func() bool {
				col.mu.Lock()
				defer col.mu.Unlock()
				return col.posts == tt.posts && s.counted("trace_spans_dropped_total") == tt.lost
			})
			s.end()
			if n := s.counted("trace_spans_dropped_total"); n != tt.lost || col.posts != tt.posts {
				t.Errorf("%v spans were lost in %d posts, want %v in %d", n, col.posts, tt.lost, tt.posts)
			}
		})
	}
}

// A collector that answers nothing holds up neither streams nor the end.
func TestCollectorHangs(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	col := newCollector(t, func(int, http.ResponseWriter) { <-release })
	t.Cleanup(func() { close(release) })
	var warned syncBuffer
	s := newScene(t, playwright{"p": answers(okAnswer, nil)}, withLog(t, traced(col.URL, 1)))
	s.log = slog.New(slog.NewTextHandler(&warned, nil))
	c := s.dial()
	for range 10 {
		c.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	began := time.Now()
	s.end()
	if took := time.Since(began); took > lastRecords+time.Second {
		t.Errorf("the end took %v", took)
	}
	if n := s.counted("trace_spans_dropped_total"); n != 10 {
		t.Errorf("%v spans were lost, want 10", n)
	}
	if n := len(s.logged()); n != 10 || strings.Contains(warned.String(), "access log") {
		t.Errorf("the access log has %d lines of 10; warned: %s", n, warned.String())
	}
}

// The queue is bounded: what does not fit is lost, at once.
func TestSpanQueueFull(t *testing.T) {
	release := make(chan struct{})
	col := newCollector(t, func(int, http.ResponseWriter) { <-release })
	drops := prometheus.NewCounter(prometheus.CounterOpts{Name: "drops"})
	tr := newTracer(TracingConfig{OTLPEndpoint: col.URL}, "n", drops, slog.New(slog.DiscardHandler))
	tr.queue.start()
	e := accessEntry{started: time.Now(), method: []byte("GET"), target: bytes.Repeat([]byte("x"), maxLogged), trace: [16]byte{1}, span: [8]byte{1}}
	const n = 3 * accessBuffer / maxLogged // more than fit into both halves
	for range n {
		tr.queue.record(&e)
	}
	lost := counterValue(t, drops)
	close(release)
	tr.stop(t.Context())
	if lost < n/6 || lost >= n {
		t.Errorf("%v of %d spans were lost", lost, n)
	}
	if came := float64(len(col.spans)); came != n-lost {
		t.Errorf("%v spans came, %v were lost, of %d", came, lost, n)
	}
}

func counterValue(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
