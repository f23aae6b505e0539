package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// logged is what the access log holds when the server has stopped.
func (s *scene) logged() (lines []map[string]any) {
	s.t.Helper()
	s.end()
	data, err := os.ReadFile(s.cfg.AccessLog.Path)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var e map[string]any
		if err := json.Unmarshal(line, &e); err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, e)
	}
	return lines
}

func withLog(t testing.TB, edit func(*Config)) func(*Config) {
	path := filepath.Join(t.TempDir(), "access.log")
	return func(cfg *Config) {
		cfg.AccessLog.Path = path
		if edit != nil {
			edit(cfg)
		}
	}
}

// once is a backend that reads one request, answers and closes.
func once(answer string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, in *bufio.Reader) {
		readMessage(in)
		io.WriteString(c, answer)
	}
}

const threeEvents = "data: a\n\ndata: b\n\ndata: c\n\n"

func TestRecord(t *testing.T) {
	get := "GET /a?b HTTP/1.1\r\nHost: h.test\r\n\r\n"
	stream := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
	chunked := stream + "Transfer-Encoding: chunked\r\n\r\n"
	inThree := "5\r\ndata:\r\n15\r\n a\n\ndata: b\n\ndata: c\n\r\n1\r\n\n\r\n0\r\n\r\n"
	tests := []struct {
		name    string
		request string
		backend func(net.Conn, *bufio.Reader) // nil: nothing listens
		edit    func(*Config)
		want    string
	}{
		{"done", get, answers(okAnswer, nil), nil, `200  GET h.test /a?b p b-p attempts=1 in=0 events=0 done`},
		{"body", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", answers(okAnswer, nil), nil,
			`200  POST h / p b-p attempts=1 in=3 events=0 done`},
		{"long body", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("x", 300000), answers(okAnswer, nil), nil,
			`200  POST h / p b-p attempts=1 in=300000 events=0 done`},
		{"head", "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", once("HTTP/1.1 204 No Content\r\n\r\n"), nil, `204  HEAD h / p b-p attempts=1 in=0 events=0 done`},
		{"events in chunks", get, answers(chunked+inThree, nil), nil, `200  GET h.test /a?b p b-p attempts=1 in=0 events=3 done`},
		{"events to HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", answers(chunked+inThree, nil), nil, `200  GET  / p b-p attempts=1 in=0 events=3 done`},
		{"events of known length", get, answers(fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", stream, len(threeEvents), threeEvents), nil), nil,
			`200  GET h.test /a?b p b-p attempts=1 in=0 events=3 done`},
		{"events until close", get, once(stream + "\r\n" + threeEvents), nil, `200  GET h.test /a?b p b-p attempts=1 in=0 events=3 done`},
		{"coded events", get, once(stream + "Content-Encoding: br\r\n\r\n" + threeEvents), nil, `200  GET h.test /a?b p b-p attempts=1 in=0 events=0 done`},
		{"no events", get, once("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + threeEvents), nil, `200  GET h.test /a?b p b-p attempts=1 in=0 events=0 done`},
		{"broken stream", get, once(chunked + "9\r\ndata: a\n\n\r\n"), nil, `200  GET h.test /a?b p b-p attempts=1 in=0 events=1 backend_broke`},
		{"broken before", get, once(""), func(c *Config) { tries(c, 1) }, `502 backend_broke GET h.test /a?b p b-p attempts=1 in=0 events=0 backend_broke`},
		{"no HTTP", get, once("SSH-2.0\r\n\r\n"), nil, `502 backend_bad_response GET h.test /a?b p b-p attempts=1 in=0 events=0 backend_broke`},
		{"refused", get, nil, nil, `502 backend_refused GET h.test /a?b p b-p attempts=3 in=0 events=0 backend_refused`},
		{"no head in time", get, func(_ net.Conn, in *bufio.Reader) { io.Copy(io.Discard, in) }, func(c *Config) {
			tries(c, 1)
			p := c.Pools["p"]
			p.Timeouts.ResponseHeader = 10 * time.Millisecond
			c.Pools["p"] = p
		}, `504 backend_timeout GET h.test /a?b p b-p attempts=1 in=0 events=0 backend_timeout`},
		{"no backend", get, answers(okAnswer, nil), func(c *Config) { c.Pools["p"] = DefaultPool() }, `503 no_backend GET h.test /a?b p  attempts=0 in=0 events=0 shed`},
		{"no route", get, answers(okAnswer, nil), func(c *Config) {
			c.Listeners[0].Routes = []RouteConfig{{PathPrefix: "/other", Pool: "p"}}
		}, `404 no_route GET h.test /a?b   attempts=0 in=0 events=0 refused`},
		{"malformed", "GET / HTTP/1.1\r\nHost : h\r\n\r\n", answers(okAnswer, nil), nil, `400 bad_request      attempts=0 in=0 events=0 refused`},
		{"ambiguous", "GET /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", answers(okAnswer, nil), nil,
			`400 bad_request GET h /x   attempts=0 in=0 events=0 refused`},
		{"version", "GET /x HTTP/2.0\r\nHost: h\r\n\r\n", answers(okAnswer, nil), nil, `505 unsupported_version      attempts=0 in=0 events=0 refused`},
		{"too large a head", "GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n", answers(okAnswer, nil), nil,
			`431 header_too_large      attempts=0 in=0 events=0 refused`},
		{"too large a body", "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n", answers(okAnswer, nil), func(c *Config) {
			p := c.Pools["p"]
			p.Limits.MaxRequestBody = 8
			c.Pools["p"] = p
		}, `413 body_too_large PUT h / p  attempts=0 in=0 events=0 refused`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			play := tt.backend
			if play == nil {
				play = func(net.Conn, *bufio.Reader) {}
			}
			s := newScene(t, playwright{"p": play}, withLog(t, func(c *Config) {
				if tt.backend == nil {
					c.Pools["p"].Backends[0].URL = "http://127.0.0.1:1"
				}
				if tt.edit != nil {
					tt.edit(c)
				}
			}))
			c := s.dial()
			c.send(tt.request)
			head := readHead(c.in)
			poll(t, "the end", func() bool { return s.counted("streams_total") == 1 })
			c.Close()
			lines := s.logged()
			if len(lines) != 1 {
				t.Fatalf("%d lines", len(lines))
			}
			e := lines[0]
			got := fmt.Sprintf("%v %v %v %v %v %v %v attempts=%v in=%v events=%v %v",
				e["status"], e["code"], e["method"], e["host"], e["target"], e["pool"], e["backend"], e["attempts"], e["bytes_in"], e["events"], e["reason"])
			if got != tt.want {
				t.Errorf("logged\n got %s\nwant %s", got, tt.want)
			}
			s.agrees(head, e)
		})
	}
}

func tries(c *Config, n int) {
	p := c.Pools["p"]
	p.Retry.MaxAttempts = n
	c.Pools["p"] = p
}

// agrees holds a line against what the client and the metrics were told.
func (s *scene) agrees(head string, e map[string]any) {
	s.t.Helper()
	if want := fmt.Sprintf("HTTP/1.1 %v ", e["status"]); !strings.HasPrefix(head, want) {
		s.t.Errorf("the client got %.40q, want %q", head, want)
	}
	code := ""
	if _, rest, ok := strings.Cut(head, "\r\nX-Starling-Error: "); ok {
		code, _, _ = strings.Cut(rest, "\r\n")
	}
	if code != e["code"] {
		s.t.Errorf("X-Starling-Error is %q, the log has %q", code, e["code"])
	}
	if code != "" && float64(backend.Code(code).Status()) != e["status"] {
		s.t.Errorf("status %v does not go with code %s", e["status"], code)
	}
	pool, why := fmt.Sprint(e["pool"]), fmt.Sprint(e["reason"])
	if n := s.counted("streams_total", "pool", pool, "backend", fmt.Sprint(e["backend"]), "reason", why); n != 1 {
		s.t.Errorf("streams_total has %v of this stream", n)
	}
	if n := s.counted("streams_total"); n != 1 {
		s.t.Errorf("streams_total has %v streams", n)
	}
	shed := 0.0
	if why == string(backend.Shed) {
		shed = 1
	}
	if n := s.counted("shed_total", "pool", pool, "code", code); n != shed {
		s.t.Errorf("shed_total has %v, want %v", n, shed)
	}
	if n := s.counted("access_log_dropped_total"); n != 0 {
		s.t.Errorf("%v lines were dropped", n)
	}
}

// What the log says of an exchange beside the words.
func TestRecordFigures(t *testing.T) {
	s := newScene(t, playwright{"p": answers(okAnswer, nil)}, withLog(t, func(cfg *Config) {
		cfg.Listeners[0].TrustedProxies = []string{"127.0.0.0/8"}
	}))
	c := s.dial()
	c.send("GET /1 HTTP/1.1\r\nHost: h\r\nX-Request-ID: mine\r\nTraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n")
	head, body := readMessage(c.in)
	c.ask("GET /2 HTTP/1.1\r\nHost: h\r\n\r\n")
	lines := s.logged()
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	e := lines[0]
	if e["client"] != "127.0.0.1" || e["request_id"] != "mine" || e["trace_id"] != "0af7651916cd43dd8448eb211c80319c" || e["stale"] != false {
		t.Errorf("got %v", e)
	}
	if got := e["bytes_out"]; got != float64(len(head)+len(body)) {
		t.Errorf("bytes_out is %v, the client got %d", got, len(head)+len(body))
	}
	connect, first, all := e["connect_ms"].(float64), e["ttfb_ms"].(float64), e["duration_ms"].(float64)
	if connect <= 0 || connect > first || first > all || all > patience.Seconds()*1000 {
		t.Errorf("connect %v, first byte %v, duration %v", connect, first, all)
	}
	if e := lines[1]; e["connect_ms"] != 0.0 || e["target"] != "/2" || e["trace_id"] != "" {
		t.Errorf("the second has %v", e)
	}
}

// A client that leaves is told nothing: no status.
func TestRecordClientLeft(t *testing.T) {
	asked := make(chan string, 1)
	s := newScene(t, playwright{"p": func(c net.Conn, in *bufio.Reader) {
		head, _ := readMessage(in)
		asked <- head
		io.Copy(io.Discard, in)
	}}, withLog(t, nil))
	c := s.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-asked
	c.Close()
	poll(t, "the end", func() bool { return s.counted("streams_total", "reason", "client_left") == 1 })
	lines := s.logged()
	if len(lines) != 1 || lines[0]["status"] != 0.0 || lines[0]["reason"] != "client_left" || lines[0]["ttfb_ms"] != nil {
		t.Errorf("got %v", lines)
	}
}

// A head that cannot be read is answered, and logged, for what it is, not for
// the request before it.
func TestRecordAfterHead(t *testing.T) {
	for _, bad := range []string{"GET / HTTP/1.1\r\nHost : h\r\n\r\n", "GET /" + strings.Repeat("x", 70<<10)} {
		s := newScene(t, playwright{"p": once("HTTP/1.1 204 No Content\r\n\r\n")}, withLog(t, nil))
		c := s.dial()
		c.send("HEAD /before HTTP/1.1\r\nHost: h\r\n\r\n")
		readHead(c.in)
		if head, body := c.ask(bad); !strings.HasPrefix(head, "HTTP/1.1 4") || !strings.Contains(body, "request_id") {
			t.Errorf("got %q, %q", head, body)
		}
		if lines := s.logged(); len(lines) != 2 || lines[1]["method"] != "" || lines[1]["target"] != "" || lines[1]["backend"] != "" {
			t.Errorf("logged %v", lines)
		}
	}
}

func TestRecordCannotOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "no", "access.log")
	cfg := Config{AccessLog: AccessLogConfig{Path: path}}
	s, err := New(cfg, Options{Registry: nothingRegistered{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "access_log.path") {
		t.Errorf("start: %v", err)
	}
}

func BenchmarkAccessLog(b *testing.B) {
	event := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" +
		strings.Repeat("12\r\ndata: {\"a\": \"b\"}\n\n\r\n", 20) + "0\r\n\r\n"
	for _, tt := range []struct {
		name   string
		answer string
		edit   func(*Config)
	}{
		{"small/off", okAnswer, nil},
		{"small/on", okAnswer, withLog(b, nil)},
		{"small/traced", okAnswer, func(c *Config) { c.Tracing = TracingConfig{OTLPEndpoint: "http://127.0.0.1:1", Sample: 0} }},
		{"events/off", event, nil},
		{"events/on", event, withLog(b, nil)},
	} {
		b.Run(tt.name, func(b *testing.B) {
			s := newScene(b, playwright{"p": quick(tt.answer)}, tt.edit)
			c := s.dial()
			c.SetDeadline(time.Time{})
			request := []byte("GET /v1/chat/completions HTTP/1.1\r\nHost: llm.example\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
			c.Write(request)
			head := readHead(c.in)
			tail := []byte(tt.answer[strings.Index(tt.answer, "\r\n\r\n")+4:])
			got := make([]byte, len(head)+len(tail))
			io.ReadFull(c.in, got[:len(tail)])
			b.ReportAllocs()
			for b.Loop() {
				c.Write(request)
				if _, err := io.ReadFull(c.in, got); err != nil {
					b.Fatal(err)
				}
			}
			s.end()
			b.ReportMetric(s.counted("access_log_dropped_total")/float64(b.N), "drops/op")
		})
	}
}

// quick answers requests without bodies, and allocates nothing.
func quick(answer string) func(net.Conn, *bufio.Reader) {
	out := []byte(answer)
	return func(c net.Conn, in *bufio.Reader) {
		for {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(line) == 2 {
				c.Write(out)
			}
		}
	}
}

// The reference lists the fields of a line, in their order.
func TestRecordReference(t *testing.T) {
	const page = "../docs/reference/observability.md"
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, data, _ = bytes.Cut(data, []byte("## Access log"))
	data, _, _ = bytes.Cut(data, []byte("## Traces"))
	var written []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\|[^|]*\\| [^|]{10,} \\|$").FindAllStringSubmatch(string(data), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			written = append(written, strings.Trim(name, "`"))
		}
	}
	var logged []string
	d := json.NewDecoder(bytes.NewReader(appendAccessLine(nil, &accessEntry{})))
	for d.More() {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		if name, ok := token.(string); ok && len(logged)%2 == 0 {
			logged = append(logged, name)
		} else if token != json.Delim('{') {
			logged = append(logged, "")
		}
	}
	logged = slices.DeleteFunc(logged, func(s string) bool { return s == "" })
	if !slices.Equal(written, logged) {
		t.Errorf("%s lists\n%q, the log has\n%q", page, written, logged)
	}
}

// A stream that waits goes on without a goroutine of its own; its line has all
// of it, and it is written at its end.
func TestRecordLongStream(t *testing.T) {
	gate := make(chan struct{})
	s := newScene(t, playwright{"p": func(c net.Conn, in *bufio.Reader) {
		readMessage(in)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: a\n\n\r\n")
		for range gate {
			io.WriteString(c, "4\r\ndata\r\n5\r\n: b\n\n\r\n")
		}
		io.WriteString(c, "0\r\n\r\n")
	}}, withLog(t, nil))
	c := s.dial()
	c.send("GET /long HTTP/1.1\r\nHost: h\r\n\r\n")
	head := readHead(c.in)
	for range 3 {
		if _, err := io.ReadFull(c.in, make([]byte, len("9\r\ndata: a\n\n\r\n"))); err != nil {
			t.Fatal(err)
		}
		gate <- struct{}{}
	}
	close(gate)
	rest, tail := make([]byte, 1<<10), 0
	for !bytes.HasSuffix(rest[:tail], []byte("0\r\n\r\n")) {
		n, err := c.in.Read(rest[tail:])
		if err != nil {
			t.Fatal(err)
		}
		tail += n
	}
	poll(t, "the end", func() bool { return s.counted("streams_total", "reason", "done") == 1 })
	lines := s.logged()
	if len(lines) != 1 || lines[0]["events"] != 4.0 || lines[0]["target"] != "/long" || lines[0]["status"] != 200.0 {
		t.Fatalf("logged %v", lines)
	}
	if sent := lines[0]["bytes_out"].(float64); sent <= float64(len(head)) {
		t.Errorf("bytes_out is %v", sent)
	}
}
