package admin

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/node/api"
)

func TestAnswers(t *testing.T) {
	r := newRig()
	r.node.status.Node.Name = "lb-1"
	r.node.backends.Backends = []api.Backend{{ID: "b1", Reason: "a < b & c"}}
	r.node.streams.Streams = []api.Stream{{ID: "old"}, {ID: "new"}}
	r.reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "starling_members", Help: "A gauge."}))
	s := r.start(t)
	for _, c := range []struct{ request, has string }{
		{"GET /healthz", "ok\n"},
		{"GET /readyz", "ready\n"},
		{"GET /metrics", "starling_members 0\n"},
		{"GET /v1/status", `{"node":{"id":"","name":"lb-1",`},
		{"GET /v1/backends", `"reason":"a < b & c"`},
		{"GET /v1/streams", `{"streams":[{"id":"old",`},
		{"GET /v1/sessions/llm/a%2Fb%20c", `"backend":"llm a/b c"`},
		{"GET /v1/%73tatus", `"name":"lb-1"`},
		{"GET /v1/status?", `"name":"lb-1"`},
	} {
		got := ask(t, s, c.request)
		if got.StatusCode != 200 || !strings.Contains(got.body, c.has) {
			t.Errorf("%s: status %d, body %q, want %q in it", c.request, got.StatusCode, got.body, c.has)
		}
		if strings.Contains(c.request, "/v1/") && got.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: content type %q", c.request, got.Header.Get("Content-Type"))
		}
		for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin", "Server": ""} {
			if got.Header.Get(name) != want {
				t.Errorf("%s: %s is %q, want %q", c.request, name, got.Header.Get(name), want)
			}
		}
		head := ask(t, s, strings.Replace(c.request, "GET", "HEAD", 1))
		if head.StatusCode != 200 || head.body != "" || head.ContentLength != int64(len(got.body)) {
			t.Errorf("HEAD of %s: status %d, length %d, want 200 and %d", c.request, head.StatusCode, head.ContentLength, len(got.body))
		}
	}
}

func TestEmptyListsAreLists(t *testing.T) {
	s := newRig().start(t)
	for request, want := range map[string]string{
		"GET /v1/members":  `{"members":[]}` + "\n",
		"GET /v1/shards":   `{"shards":[]}` + "\n",
		"GET /v1/backends": `{"backends":[]}` + "\n",
		"GET /v1/streams":  `{"streams":[]}` + "\n",
	} {
		if got := ask(t, s, request); got.body != want {
			t.Errorf("%s: %q, want %q", request, got.body, want)
		}
	}
}

// Who asks about all nodes hears who was asked; the usual answer is as it was.
func TestScopes(t *testing.T) {
	r := newRig()
	r.node.status.Node.Name = "lb-1"
	s := r.start(t)
	for _, path := range []string{"status", "backends", "pools", "streams"} {
		whole := ask(t, s, "GET /v1/"+path+"?scope=cluster")
		if whole.StatusCode != 200 || !strings.Contains(whole.body, `"name":"lb-2","state":"dead","self":false,"error":"it is dead"`) || path != "status" && !strings.HasPrefix(whole.body, `{"`+path+`":[],`) {
			t.Errorf("%s: status %d: %s", path, whole.StatusCode, whole.body)
		}
		usual, named := ask(t, s, "GET /v1/"+path), ask(t, s, "GET /v1/"+path+"?scope=node")
		if usual.body != named.body || strings.Contains(usual.body, "nodes") {
			t.Errorf("%s: %s, and with scope=node %s", path, usual.body, named.body)
		}
	}
	if ask(t, s, "GET /v1/streams?scope=cluster&limit=7"); r.node.limit != 7 {
		t.Errorf("limit %d", r.node.limit)
	}
	r.node.refusal = refuse(Conflict, "4 questions are under way")
	for _, path := range []string{"status", "backends", "pools", "streams"} {
		if got := ask(t, s, "GET /v1/"+path+"?scope=cluster"); got.StatusCode != 409 || !strings.Contains(got.body, "under way") {
			t.Errorf("%s: status %d: %s", path, got.StatusCode, got.body)
		}
	}
}

func TestRefusals(t *testing.T) {
	s := newRig().start(t)
	for _, c := range []struct {
		request string
		code    Code
		words   string
	}{
		{"GET /v1", NotFound, `"/v1"`},
		{"GET /v1/statsu", NotFound, `"/v1/statsu"`},
		{"GET /v1/status/", NotFound, `"/v1/status/"`},
		{"GET //v1/status", NotFound, `"//v1/status"`},
		{"GET /v1/../healthz", NotFound, `"/v1/../healthz"`},
		{"GET /debug/pprof/", NotFound, "pprof"},
		{"POST /v1/status", MethodNotAllowed, "POST"},
		{"OPTIONS /v1/status", MethodNotAllowed, "OPTIONS"},
		{"GET /v1/members?verbose=1", BadRequest, `"verbose" is not known: /v1/members takes none`},
		{"GET /v1/status?verbose=1", BadRequest, `"verbose" is not known: /v1/status takes scope`},
		{"GET /v1/status?scope=all", BadRequest, `scope="all": write node or cluster`},
		{"GET /v1/streams?scope=cluster&limit=1001", BadRequest, "from 1 to 1000"},
		{"GET /v1/streams?limits=1", BadRequest, `"limits" is not known: /v1/streams takes limit`},
		{"GET /v1/streams?limit=1&limit=2", BadRequest, `"limit" is there twice`},
		{"GET /v1/streams?limit=0", BadRequest, `limit="0": write a number from 1 to 10000`},
		{"GET /v1/streams?limit=10001", BadRequest, `limit="10001"`},
		{"GET /v1/streams?limit=", BadRequest, `limit=""`},
		{"GET /v1/streams?limit=ten", BadRequest, `limit="ten"`},
		{"GET /healthz?x", BadRequest, `"x"`},
	} {
		t.Run(c.request, func(t *testing.T) {
			got := ask(t, s, c.request)
			got.wantError(t, c.code, c.words)
			if allow := got.Header.Get("Allow"); (c.code == MethodNotAllowed) != (allow == "GET, HEAD") {
				t.Errorf("Allow is %q", allow)
			}
		})
	}
}

func TestStreamLimit(t *testing.T) {
	r := newRig()
	s := r.start(t)
	for request, want := range map[string]int{"GET /v1/streams": 100, "GET /v1/streams?limit=7": 7, "GET /v1/streams?limit=10000": 10000} {
		ask(t, s, request)
		if got := r.node.asked(); got != want {
			t.Errorf("%s asks the node for %d streams, want %d", request, got, want)
		}
	}
}

func TestNotReady(t *testing.T) {
	r := newRig()
	r.node.ready = errors.New("node is draining")
	s := r.start(t)
	ask(t, s, "GET /readyz").wantError(t, NotReady, "node is draining")
	if got := ask(t, s, "GET /healthz"); got.StatusCode != 200 {
		t.Errorf("healthz of a node that is not ready: %d", got.StatusCode)
	}
}

// What JSON cannot hold must not become half an answer.
func TestInternal(t *testing.T) {
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	r := newRig()
	r.node.status.Drain = &api.Drain{Left: math.NaN()}
	s := r.start(t)
	got := ask(t, s, "GET /v1/status")
	got.wantError(t, Internal, "request_id")
	if id := got.Header.Get("X-Request-Id"); !strings.Contains(r.log.String(), "level=ERROR msg=\"admin request failed\" route=/v1/status request_id="+id) {
		t.Errorf("the log does not tell of request %s:\n%s", id, r.log)
	}
	r.node.refusal = errors.New("that nobody foresaw")
	if status, code, _ := operate(t, s, "POST /v1/sessions/llm/whose-it-is/move", `{"backend":"b1"}`); status != 500 || code != string(Internal) {
		t.Errorf("a move that fails: status %d, code %s", status, code)
	}
	if log := r.log.String(); !strings.Contains(log, "route=/v1/sessions/{pool}/{key}/move ") || strings.Contains(log, "whose-it-is") {
		t.Errorf("the log shows a session's key, or not the route:\n%s", log)
	}
}

func TestMetrics(t *testing.T) {
	r := newRig()
	count := prometheus.NewCounter(prometheus.CounterOpts{Name: "starling_test_total", Help: "A counter."})
	count.Add(3)
	r.reg.MustRegister(count)
	s := r.start(t)
	for _, c := range []struct{ accept, kind, has string }{
		{"", "text/plain; version=0.0.4", "starling_test_total 3\n"},
		{"application/openmetrics-text;version=1.0.0", "application/openmetrics-text; version=1.0.0", "starling_test_total 3.0\n"},
		{"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "application/vnd.google.protobuf", "starling_test_total"},
	} {
		got := ask(t, s, "GET /metrics", "Accept: "+c.accept)
		if kind := got.Header.Get("Content-Type"); got.StatusCode != 200 || !strings.HasPrefix(kind, c.kind) || !strings.Contains(got.body, c.has) {
			t.Errorf("Accept %q: status %d, type %q, body %q", c.accept, got.StatusCode, kind, got.body)
		}
		if strings.Contains(got.body, "go_goroutines") {
			t.Error("metrics of the default registry are there")
		}
	}
	packed := ask(t, s, "GET /metrics", "Accept-Encoding: gzip")
	zr, err := gzip.NewReader(bytes.NewReader([]byte(packed.body)))
	if err != nil {
		t.Fatalf("encoding %q: %v", packed.Header.Get("Content-Encoding"), err)
	}
	if text, err := io.ReadAll(zr); err != nil || !strings.Contains(string(text), "starling_test_total 3\n") {
		t.Errorf("unpacked: %q, %v", text, err)
	}
}

// broken is a collector whose only metric is an error.
type broken struct{ desc *prometheus.Desc }

func (b broken) Describe(ch chan<- *prometheus.Desc) { ch <- b.desc }
func (b broken) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(b.desc, errors.New("no such counter"))
}

func TestBrokenMetric(t *testing.T) {
	r := newRig()
	r.reg.MustRegister(broken{prometheus.NewDesc("starling_broken", "Fails.", nil, nil)})
	s := r.start(t)
	ask(t, s, "GET /metrics").wantError(t, Internal, "could not answer") // nothing at all was gathered

	r.reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "starling_sound", Help: "Works."}))
	if got := ask(t, s, "GET /metrics"); got.StatusCode != 200 || !strings.Contains(got.body, "starling_sound 0\n") {
		t.Errorf("status %d, body %q: the sound metric should be there", got.StatusCode, got.body)
	}
	if !strings.Contains(r.log.String(), "no such counter") {
		t.Errorf("the log does not tell of the broken one:\n%s", r.log)
	}
}

func TestProfiles(t *testing.T) {
	r := newRig()
	r.cfg.Pprof = true
	s := r.start(t)
	index := ask(t, s, "GET /debug/pprof/")
	if names := strings.Fields(index.body); !slices.Contains(names, "heap") || !slices.Contains(names, "profile") {
		t.Errorf("index: %q", index.body)
	}
	if got := ask(t, s, "GET /debug/pprof/heap"); got.StatusCode != 200 || !strings.HasPrefix(got.body, "\x1f\x8b") {
		t.Errorf("heap: status %d, %d bytes that are no gzip", got.StatusCode, len(got.body))
	}
	if got := ask(t, s, "GET /debug/pprof/goroutine?debug=1"); !strings.Contains(got.body, "goroutine profile: total") {
		t.Errorf("goroutine as text: %q", got.body)
	}
	ask(t, s, "GET /debug/pprof/nothing").wantError(t, NotFound, `"nothing"`)
	ask(t, s, "GET /debug/pprof/heap?debug=3").wantError(t, BadRequest, "debug")
	ask(t, s, "GET /debug/pprof/heap?seconds=3").wantError(t, BadRequest, "seconds")
	ask(t, s, "GET /debug/pprof/profile?seconds=61").wantError(t, BadRequest, "1 to 60")
	if got := ask(t, s, "GET /debug/pprof/trace?seconds=1"); !strings.HasPrefix(got.body, "go 1.") {
		t.Errorf("trace: status %d, %d bytes", got.StatusCode, len(got.body))
	}
}
