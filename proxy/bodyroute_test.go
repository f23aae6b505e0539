package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// byModel is a listener that sends model small to pool s, model large with
// stream true to pool l, what else asks for a path below /v1 to pool p.
func byModel(cfg *Config) {
	route := func(pool string, fields map[string]string) RouteConfig {
		r := DefaultRoute()
		r.PathPrefix, r.Pool, r.JSON = "/v1", pool, fields
		return r
	}
	cfg.Listeners[0].Routes = []RouteConfig{
		route("s", map[string]string{"model": "small"}),
		route("l", map[string]string{"model": "large", "stream": "true"}),
		route("p", nil),
	}
}

// onLoops runs a test on both ways to wait for bytes.
func onLoops(t *testing.T, test func(*testing.T, Listener)) {
	for name, listen := range map[string]Listener{"edges": (&net.ListenConfig{}).Listen, "plain": listenPlain} {
		t.Run(name, func(t *testing.T) { test(t, listen) })
	}
}

func says(name string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(name), name)
}

func modelScene(t *testing.T, asked chan string, listen Listener) *scene {
	return newSceneOn(t, listen, playwright{
		"s": answers(says("s"), asked), "l": answers(says("l"), asked), "p": answers(says("p"), asked),
	}, byModel)
}

func withBody(kind, body string) string {
	return fmt.Sprintf("POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body)
}

func inChunks(kind string, size int, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n", kind)
	for len(body) > 0 {
		n := min(size, len(body))
		fmt.Fprintf(&b, "%x;x=y\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

func TestBodyRoute(t *testing.T) { onLoops(t, checkBodyRoute) }

func checkBodyRoute(t *testing.T, l Listener) {
	const js = "application/json"
	long := strings.Repeat("x", 100<<10)
	tests := []struct {
		name, request, pool string
		miss                string // counted
	}{
		{"small", withBody(js, `{"model":"small"}`), "s", ""},
		{"escaped", withBody(js, `{"m\u006fdel":"sm\u0061ll"}`), "s", ""},
		{"two fields", withBody(js, `{"stream": true, "model":"large"}`), "l", ""},
		{"one of two differs", withBody(js, `{"stream": false, "model":"large"}`), "p", ""},
		{"one of two missing", withBody(js, `{"model":"large"}`), "p", "absent"},
		{"another", withBody(js, `{"model":"tiny"}`), "p", ""},
		{"deeper does not count", withBody(js, `{"a":{"model":"small"}}`), "p", "absent"},
		{"parameters", withBody("Application/JSON ; charset=utf-8", `{"model":"small"}`), "s", ""},
		{"suffix", withBody("application/vnd.x+json", `{"model":"small"}`), "s", ""},
		{"suffix alone", withBody("+json", `{"model":"small"}`), "p", ""},
		{"no JSON", withBody("text/plain", `{"model":"small"}`), "p", ""},
		{"coded", strings.Replace(withBody(js, `{"model":"small"}`), "Host", "Content-Encoding: gzip\r\nHost", 1), "p", ""},
		{"broken", withBody(js, `{"model":small}`), "p", "malformed"},
		{"cut", withBody(js, `{"model":"sma`), "p", "malformed"},
		{"no body", "GET /v1/x HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\r\n", "p", ""},
		{"far back", withBody(js, `{"prompt":"`+long+`","model":"small"}`), "s", ""},
		{"too far back", withBody(js, `{"prompt":"`+long+long+long+`","model":"small"}`), "p", "far"},
		{"chunks", inChunks(js, 3, `{"stream": true, "model":"large"}`), "l", ""},
		{"chunks, far back", inChunks(js, 7000, `{"prompt":"`+long+`","model":"small"}`), "s", ""},
		{"chunks, too far back", inChunks(js, 7000, `{"prompt":"`+long+long+long+`","model":"small"}`), "p", "far"},
		{"chunks, cut", inChunks(js, 3, `{"model":"sma`), "p", "malformed"},
	}
	asked := make(chan string, 1)
	s := modelScene(t, asked, l)
	c := s.dial()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := s.counted("body_route_misses_total", "cause", tt.miss)
			all := s.counted("body_route_misses_total")
			if _, pool := c.ask(tt.request); pool != tt.pool {
				t.Errorf("went to %q, want %q", pool, tt.pool)
			}
			_, body, _ := strings.Cut(tt.request, "\r\n\r\n")
			if _, got, _ := strings.Cut(<-asked, "\r\n\r\n"); got != body {
				t.Errorf("the backend got %d bytes of body, want %d as they were sent", len(got), len(body))
			}
			want := 0.0
			if tt.miss != "" {
				want = 1
			}
			if got := s.counted("body_route_misses_total", "cause", tt.miss) - before; tt.miss != "" && got != 1 {
				t.Errorf("%s was counted %v times", tt.miss, got)
			}
			if got := s.counted("body_route_misses_total") - all; got != want {
				t.Errorf("%v misses were counted, want %v", got, want)
			}
		})
	}
}

// A body may come byte by byte: the head was handled when the field is there.
func TestBodyRouteSlow(t *testing.T) { onLoops(t, checkBodyRouteSlow) }

func checkBodyRouteSlow(t *testing.T, l Listener) {
	asked := make(chan string, 1)
	s := modelScene(t, asked, l)
	for _, request := range []string{withBody("application/json", `{"model":"small","x":1}`), inChunks("application/json", 4, `{"model":"small","x":1}`)} {
		c := s.dial()
		for i := range len(request) - 1 {
			c.send(request[i : i+1])
		}
		if _, pool := c.ask(request[len(request)-1:]); pool != "s" {
			t.Errorf("went to %q", pool)
		}
		if got := <-asked; !strings.HasSuffix(got, request[strings.Index(request, "\r\n\r\n"):]) {
			t.Errorf("the backend got %q", got)
		}
	}
}

// The body is not waited for any longer than a second; it is passed on as it
// comes all the same.
func TestBodyRouteLate(t *testing.T) { onLoops(t, checkBodyRouteLate) }

func checkBodyRouteLate(t *testing.T, l Listener) {
	t.Parallel()
	asked := make(chan string, 1)
	s := modelScene(t, asked, l)
	c := s.dial()
	request := withBody("application/json", `{"model":"small"}`)
	c.send(request[:len(request)-4])
	began := time.Now()
	poll(t, "the miss", func() bool { return s.counted("body_route_misses_total", "cause", "late") == 1 })
	if took := time.Since(began); took > routeBodyWait+time.Second {
		t.Errorf("waited %v", took)
	}
	if _, pool := c.ask(request[len(request)-4:]); pool != "p" {
		t.Errorf("went to %q", pool)
	}
	if got := <-asked; !strings.HasSuffix(got, `{"model":"small"}`) {
		t.Errorf("the backend got %q", got)
	}
	if sum := addedSum(t, s); sum > 0.5 {
		t.Errorf("%v s of waiting for the client count as starling's own", sum)
	}
}

// A client that asked before it sends its body is told to, or its route could
// not be found; the backend's own 100 is one too many then.
func TestBodyRouteExpect(t *testing.T) {
	asked := make(chan string, 1)
	s := newScene(t, playwright{"s": answers("HTTP/1.1 100 Continue\r\n\r\n"+says("s"), asked), "l": answers("", nil), "p": answers("", nil)}, byModel)
	c := s.dial()
	request := strings.Replace(withBody("application/json", `{"model":"small"}`), "Host", "Expect: 100-continue\r\nHost", 1)
	head, body, _ := strings.Cut(request, "\r\n\r\n")
	c.send(head + "\r\n\r\n")
	if got := readHead(c.in); got != "HTTP/1.1 100 Continue\r\n\r\n" {
		t.Fatalf("got %q", got)
	}
	if head, pool := c.ask(body); pool != "s" || !strings.HasPrefix(head, "HTTP/1.1 200") {
		t.Errorf("got %q, %q", head, pool)
	}
}

// Whoever leaves or errs before his route is found gets what he would get later.
func TestBodyRouteBroken(t *testing.T) { onLoops(t, checkBodyRouteBroken) }

func checkBodyRouteBroken(t *testing.T, l Listener) {
	s := modelScene(t, nil, l)
	c := s.dial()
	head, _ := c.ask("POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"mod\r\nzz")
	if !strings.HasPrefix(head, "HTTP/1.1 400") {
		t.Errorf("broken chunks were answered %q", head)
	}
	request := withBody("application/json", `{"model":"small"}`)
	c = s.dial()
	c.send(request[:len(request)-4])
	c.Close()
	poll(t, "the end of the stream", func() bool { return s.counted("streams_total", "reason", "client_left", "pool", "") == 1 })
	if n := s.InFlight(); n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

func poll(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s did not come", what)
		}
	}
}

func addedSum(t *testing.T, s *scene) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "starling_added_latency_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleSum()
		}
	}
	return 0
}

func BenchmarkBodyRoute(b *testing.B) {
	answer := []byte(says("s"))
	play := func(c net.Conn, in *bufio.Reader) {
		for {
			if _, err := in.ReadSlice('}'); err != nil {
				return
			}
			c.Write(answer)
		}
	}
	s := newScene(b, playwright{"s": play, "l": play, "p": play}, byModel)
	c := s.dial()
	c.SetDeadline(time.Time{})
	request := []byte(withBody("application/json", `{"stream":true,"model":"small"}`))
	want := len("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nDate: Mon, 02 Jan 2006 15:04:05 GMT\r\n\r\ns")
	got := make([]byte, want)
	b.ReportAllocs()
	for b.Loop() {
		c.Write(request)
		if _, err := io.ReadFull(c.in, got); err != nil {
			b.Fatal(err)
		}
	}
}
