package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// twins is a scene of two backends that behave alike; two failures in a row
// eject one.
func twins(t *testing.T, play func(net.Conn, *bufio.Reader), edit func(*PoolConfig)) *scene {
	return newScene(t, playwright{"p": play}, func(cfg *Config) {
		p := cfg.Pools["p"]
		other := backend.DefaultConfig()
		other.ID, other.URL = "other", "http://"+stageBackend(t, play)
		p.Backends = append(p.Backends, other)
		p.Outlier.ConsecutiveFailures, p.Policy = 2, "round_robin"
		if edit != nil {
			edit(&p)
		}
		cfg.Pools["p"] = p
	})
}

// ejected is why a backend is out; empty: none is.
func (s *scene) ejected() string {
	for _, b := range s.Pools()[0].Backends() {
		if st := b.Standing(); st.State == backend.Ejected {
			return st.Reason
		}
	}
	return ""
}

const post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"

// What a backend does to a stream, and whether it counts against it.
func TestWhatCountsAgainstABackend(t *testing.T) {
	turn := func(then func(c net.Conn, n int) bool) func(net.Conn, *bufio.Reader) {
		return func(c net.Conn, in *bufio.Reader) {
			for n := 0; ; n++ {
				if head, _ := readMessage(in); head == "" || !then(c, n) {
					return
				}
			}
		}
	}
	says := func(status int) func(net.Conn, *bufio.Reader) {
		return answers(fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nno", status), nil)
	}
	breaks := func(c net.Conn, _ int) bool {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
		return false
	}
	late := turn(func(c net.Conn, _ int) bool {
		<-time.After(60 * time.Millisecond)
		io.WriteString(c, okAnswer)
		return true
	})
	idleSoon := func(p *PoolConfig) { p.Timeouts.StreamIdle = 30 * time.Millisecond }
	for _, test := range []struct {
		name string
		play func(net.Conn, *bufio.Reader)
		edit func(*PoolConfig)
		want string // in the reason; empty: it is not ejected
	}{
		{"200", says(200), nil, ""},
		{"500", says(500), nil, ""},
		{"429", says(429), nil, ""},
		{"502", says(502), nil, "it answered 502"},
		{"503", says(503), nil, "it answered 503"},
		{"504", says(504), nil, "it answered 504"},
		{"closes", turn(func(net.Conn, int) bool { return false }), nil, "ended the connection before its answer"},
		{"breaks off", turn(breaks), nil, "broke off its answer"},
		{"breaks off, never twice in a row", turn(func(c net.Conn, n int) bool {
			if n == 0 {
				io.WriteString(c, okAnswer)
				return true
			}
			return breaks(c, n)
		}), nil, ""},
		{"hangs", turn(func(c net.Conn, _ int) bool { io.Copy(io.Discard, c); return false }), func(p *PoolConfig) { p.Timeouts.ResponseHeader = 30 * time.Millisecond }, "no answer in time"},
		{"freezes within what it promised", turn(func(c net.Conn, _ int) bool {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
			io.Copy(io.Discard, c)
			return false
		}), idleSoon, "sent nothing for too long"},
		{"is silent", turn(func(c net.Conn, _ int) bool {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nid: 1\n\r\n")
			io.Copy(io.Discard, c)
			return false
		}), idleSoon, ""},
		{"late", late, nil, ""},
		{"late, where that counts", late, func(p *PoolConfig) { p.Outlier.Latency = 20 * time.Millisecond }, "to the head of an answer"},
		{"not late", says(200), func(p *PoolConfig) { p.Outlier.Latency = 10 * time.Second }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := twins(t, test.play, test.edit)
			for range 8 {
				c := s.dial()
				c.send(post)
				text, _ := io.ReadAll(io.LimitReader(c, 30))
				if strings.HasPrefix(test.name, "freezes") || test.name == "is silent" {
					_, _ = io.Copy(io.Discard, c) // who leaves before the end sees nothing freeze
				}
				if strings.HasPrefix(test.want, "it answered") && (!strings.HasPrefix(string(text), "HTTP/1.1 "+test.name) || strings.Contains(string(text), "Starling")) {
					t.Errorf("the client got %q", text)
				}
				c.Close()
				s.quiet()
			}
			if got := s.ejected(); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("ejected: %q, want %q", got, test.want)
			}
		})
	}
}

// quiet waits until no stream is left.
func (s *scene) quiet() {
	s.t.Helper()
	for deadline := time.Now().Add(patience); s.InFlight() > 0; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatal("streams do not end")
		}
	}
}

// The time of a client's upload is not the backend's.
func TestSlowUploadIsNotLatency(t *testing.T) {
	s := twins(t, answers(okAnswer, nil), func(p *PoolConfig) { p.Outlier.Latency = 50 * time.Millisecond })
	for range 6 {
		c := s.dial()
		c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n{}")
		<-time.After(70 * time.Millisecond)
		if head, _ := c.ask("\r\n"); !strings.HasPrefix(head, "HTTP/1.1 200") {
			t.Fatalf("head %q", head)
		}
	}
	if got := s.ejected(); got != "" {
		t.Error(got)
	}
}

// A drain that is overdue is given up, names who held it, and cuts nobody.
func TestOverdueDrain(t *testing.T) {
	release := make(chan struct{})
	s := newScene(t, playwright{"p": func(c net.Conn, in *bufio.Reader) {
		if head, _ := readMessage(in); head != "" {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
			<-release
			io.WriteString(c, "k")
		}
	}}, nil)
	c := s.dial()
	c.send(post)
	if readHead(c.in) == "" {
		t.Fatal("no answer")
	}
	p := s.Pools()[0]
	b := p.Backends()[0]
	id := s.Streams(1)[0].ID
	now := time.Now()
	p.Drain(b, now, now)
	deadline := time.After(patience)
	for !b.Standing().Until.IsZero() {
		select {
		case <-deadline:
			t.Fatalf("not given up: %+v", b.Standing())
		case <-time.After(5 * time.Millisecond):
		}
	}
	want := fmt.Sprintf("1 streams are left (%d)", id)
	if st := b.Standing(); st.State != backend.Draining || !strings.Contains(st.Reason, want) {
		t.Errorf("%+v, want %q", st, want)
	}
	if n := s.counted("drains_total", "result", "timeout"); n != 1 {
		t.Errorf("%v drains timed out", n)
	}
	close(release)
	body := make([]byte, 2)
	if _, err := io.ReadFull(c.in, body); err != nil || string(body) != "ok" {
		t.Errorf("the stream it waited for got %q, %v", body, err)
	}
}

// Who asks backends something else, such as how they are, comes to them as
// streams do, certificates and all, and is in nobody's count.
func TestConnectComesAsStreamsDo(t *testing.T) {
	a := newAuthority(t)
	ca := newFiles(t).put("ca", a.pem())
	r := newDoor(t, func(g *plan) { g.pool.Backend.TLS = BackendTLS{CAFile: ca, ServerName: "b.test"} }, closing(t, a).URL)
	b := r.Pools()[0].Backends()[0]
	nc, err := r.Connect(t.Context(), "p", b)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(nc, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if head := readHead(bufio.NewReader(nc)); !strings.HasPrefix(head, "HTTP/1.1 200") {
		t.Errorf("head %q", head)
	}
	if used := r.Server.now.Load().pools["p"].of(b).used.Load(); used != 0 || b.InFlight() != 0 {
		t.Errorf("%d connections and %d streams are counted", used, b.InFlight())
	}
}

// Every change of state is logged, and published; a panic is a warning.
func TestChangesAreTold(t *testing.T) {
	var mu sync.Mutex
	var list []backend.Event
	r := newDoor(t, func(g *plan) {
		g.pool.Outlier.PanicPercent = 60
		g.opt.Told = func(e backend.Event) {
			mu.Lock()
			defer mu.Unlock()
			list = append(list, e)
		}
	}, "http://127.0.0.1:1", "http://127.0.0.1:2")
	p, now := r.Pools()[0], time.Now()
	p.Eject(p.Backends()[0], now, time.Hour)
	p.Admit(p.Backends()[0], now)
	mu.Lock()
	defer mu.Unlock()
	if len(list) != 4 || list[0].To != backend.Ejected || !list[1].Panic || list[2].To != backend.Active || list[3].Panic {
		t.Errorf("told %+v", list)
	}
	for _, want := range []string{"backend=b1 state=ejected was=active", "level=WARN msg=\"pool is in panic", "backend=b1 state=active was=ejected", "pool's panic is over"} {
		if r.log.count(want) != 1 {
			t.Errorf("%d log lines with %q, want 1", r.log.count(want), want)
		}
	}
}
