package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body) // or the server does not see that a client leaves
		req.Body = io.NopCloser(strings.NewReader(string(body)))
		h(w, req)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func every(gap time.Duration, n int) []Arrival {
	var all []Arrival
	for i := range n {
		all = append(all, Arrival{At: time.Duration(i) * gap, Prompt: 3, Output: 2})
	}
	return all
}

func run2(t *testing.T, o Options) Report {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A server that stalls once makes all wait that were due meanwhile, and the figures
// say so: a loop that waited for answers would have sent one request, and seen
// one wait.
func TestNoCoordinatedOmission(t *testing.T) {
	const stall, n = 500 * time.Millisecond, 20
	free := make(chan struct{})
	time.AfterFunc(stall, func() { close(free) })
	url := serve(t, func(http.ResponseWriter, *http.Request) { <-free })
	r := run2(t, Options{Targets: []string{url}, Arrivals: Until(every(10*time.Millisecond, n), 0)})
	if r.Due != n || r.Done != n || r.Head.N != n {
		t.Fatalf("%+v", r)
	}
	// The last one was due 190 ms after the first, and waited for the rest all the same.
	if least := (stall - n*10*time.Millisecond).Seconds(); r.Head.P50 < least || r.Head.Max < 0.9*stall.Seconds() {
		t.Errorf("half waited less than %v s, the longest wait was %v s", r.Head.P50, r.Head.Max)
	}
}

func TestEventsAreTimed(t *testing.T) {
	var sessions, bodies sync.Map
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		sessions.Store(req.Header.Get("X-Session-ID"), true)
		bodies.Store(string(body), req.URL.Path+" "+req.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 4 {
			fmt.Fprintf(w, ": comment\n\ndata: {\"n\":%d}\n\n", i)
			w.(http.Flusher).Flush()
			if i == 1 {
				pause := time.NewTimer(150 * time.Millisecond)
				<-pause.C
			}
		}
	})
	r := run2(t, Options{Targets: []string{url + "/"}, Header: http.Header{"Authorization": {"Bearer x"}}, Arrivals: Until([]Arrival{{Prompt: 2, Output: 7, Session: "s1"}}, 0)})
	if r.Events != 4 || r.First.N != 1 || r.Gap.N != 3 || r.Gap.Max < 0.15 || r.Bytes != 4*(11+15) || r.Whole.Max < r.Gap.Max {
		t.Errorf("%+v", r)
	}
	if _, ok := sessions.Load("s1"); !ok {
		t.Error("the session was not named")
	}
	want := `{"max_tokens":7,"messages":[{"content":"bird bird ","role":"user"}],"model":"demo-model","stream":true}`
	if about, _ := bodies.Load(want); about != "/v1/chat/completions Bearer x" {
		t.Errorf("sent was not %s to %v", want, about)
	}
}

// Every end has its name, and what is not sent is counted.
func TestEnds(t *testing.T) {
	var n atomic.Int64
	hold := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		switch n.Add(1) {
		case 1:
			w.Header().Set("X-Starling-Error", "saturated")
			w.WriteHeader(429)
		case 2:
			w.Header().Set("Content-Length", "10")
			fmt.Fprint(w, "half")
			panic(http.ErrAbortHandler)
		case 3:
			fmt.Fprint(w, "whole")
		default:
			select {
			case <-hold:
			case <-req.Context().Done():
			}
		}
	})
	defer close(hold)
	r := run2(t, Options{Targets: []string{url}, MaxOpen: 1, Limit: 300 * time.Millisecond, Arrivals: Until([]Arrival{{}, {At: 100 * time.Millisecond}, {At: 200 * time.Millisecond}, {At: 300 * time.Millisecond}, {At: 301 * time.Millisecond}}, 0)})
	for kind, want := range map[string]int64{"status 429 saturated": 1, "broken off": 1, "longer than the limit": 1} {
		if r.Failed[kind] != want {
			t.Errorf("%s: %v", kind, r.Failed)
		}
	}
	if r.Due != 5 || r.Done != 1 || r.NotSent != 1 || r.Bytes != 5 {
		t.Errorf("%+v", r)
	}
	gone := run2(t, Options{Targets: []string{"http://127.0.0.1:1"}, Arrivals: Until(every(0, 2), 0)})
	if gone.Failed["no connection"] != 2 || gone.Head.N != 0 {
		t.Errorf("%+v", gone)
	}
}

func TestEndOfTheRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, func(_ http.ResponseWriter, req *http.Request) {
		cancel()
		<-req.Context().Done()
	})
	r, err := Run(ctx, Options{Targets: []string{url}, Arrivals: Until([]Arrival{{}, {At: time.Hour}}, 0)})
	if err != nil || r.Failed["cut by the end of the run"] != 1 || r.Due != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestChance(t *testing.T) {
	c := Chance{Rate: 100, Lasts: 100 * time.Second, Prompt: 500, Output: 150, Sessions: 10, Seed: 7}
	all := slices.Collect(c.Arrivals())
	if n := float64(len(all)); math.Abs(n-10_000) > 500 {
		t.Errorf("%v arrivals, want about 10000", n)
	}
	if !slices.Equal(all, slices.Collect(c.Arrivals())) {
		t.Error("the same chance gives others")
	}
	slices.SortFunc(all, func(a, b Arrival) int { return a.Prompt - b.Prompt })
	if m := all[len(all)/2].Prompt; m < 470 || m > 530 {
		t.Errorf("the median prompt is %d", m)
	}
	if n := slices.IndexFunc(all, func(a Arrival) bool { return a.Session == "" }); n < 0 || !slices.ContainsFunc(all, func(a Arrival) bool { return a.Session == "bench-10" }) {
		t.Error("not every second one is a session's")
	}
}

func TestTrace(t *testing.T) {
	all, err := Trace(strings.NewReader("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:05.9799600,0,999999999\n"), 2)
	if err != nil || len(all) != 2 || all[0] != (Arrival{Prompt: 4808, Output: 10}) || all[1].Prompt != 1 || all[1].Output != maxTokens || (all[1].At-time.Second).Abs() > time.Millisecond {
		t.Errorf("%+v, %v", all, err)
	}
	if got := slices.Collect(Until(all, time.Second/2)); len(got) != 1 {
		t.Errorf("of the first half second: %v", got)
	}
	for text, words := range map[string]string{
		"": "EOF", "a,b,c\n": "no request", "a,b,c\n1,2\n": "line 2", "a,b,c\n1,2,3\nsoon,2,3\n": "line 3", "a,b,c\n1,x,3\n": "line 2",
	} {
		if _, err := Trace(strings.NewReader(text), 1); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %s", text, err, words)
		}
	}
	if _, err := Trace(strings.NewReader("a,b,c\n1,2,3\n"), 0); !errors.Is(err, ErrOptions) {
		t.Errorf("speed 0: %v", err)
	}
}

func TestOptions(t *testing.T) {
	some := Until(every(0, 1), 0)
	for _, o := range []Options{{}, {Targets: []string{"127.0.0.1:8080"}, Arrivals: some}, {Targets: []string{"http://x"}}, {Targets: []string{"http://x"}, Arrivals: some, MaxOpen: mostOpen + 1}, {Targets: []string{"http://x"}, Arrivals: some, Limit: -1}} {
		if _, err := Run(t.Context(), o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Quantiles are those of the sorted list, within the width of a bucket.
func TestHistogram(t *testing.T) {
	var h histogram
	for i := 1; i <= 10_000; i++ {
		h.add(time.Duration(i) * 100 * time.Microsecond)
	}
	got := h.times()
	for q, p := range map[float64]float64{0.5: got.P50, 0.9: got.P90, 0.99: got.P99, 0.999: got.P999} {
		if want := q; math.Abs(p-want) > 0.021*want {
			t.Errorf("quantile %v is %v", q, p)
		}
	}
	if got.Max != 1 || got.N != 10_000 {
		t.Errorf("%+v", got)
	}
	var none histogram
	none.add(-time.Second)
	none.add(100 * time.Hour)
	if got := none.times(); got.P50 > 0.00002 || got.Max != 360000 {
		t.Errorf("the edges: %+v", got)
	}
}

func TestPrint(t *testing.T) {
	var out strings.Builder
	r := Report{Seconds: 2, Due: 10, Done: 7, NotSent: 1, Failed: map[string]int64{"status 503 no_backend": 2}, Events: 12, Bytes: 3_400_000, Head: Times{N: 9, P50: 0.0123, P99: 1.5}}
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10 requests due in 2.0 s, 5.0 per second: 7 done, 2 status 503 no_backend, 1 not sent", "12 events, 3.4 MB", "head of the answer  12.30"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "first event") {
		t.Errorf("what did not happen is told:\n%s", &out)
	}
}
