package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/wire"
)

// lodging is a Sessions with one backend for all, which counts its turns.
type lodging struct {
	backend string
	begun   atomic.Int64
	ended   atomic.Int64
	asked   atomic.Value // context of the last question
}

func (l *lodging) Turn(ctx context.Context, _ string, _ []byte, _ time.Duration, _ func() string) (Turn, error) {
	l.begun.Add(1)
	l.asked.Store(ctx)
	return l, nil
}

func (l *lodging) Home() Home  { return Home{Backend: l.backend, Epoch: 7, Lookup: LookupHit} }
func (l *lodging) Look() error { return nil }
func (l *lodging) End() bool   { l.ended.Add(1); return false }
func (l *lodging) Rebind(context.Context, Home, string, func() string) (Home, error) {
	return l.Home(), nil
}

// newSessionScene is a scene whose only pool has sessions, which all live at its
// backend.
func newSessionScene(t testing.TB, change func(*Config)) *scene {
	return newScene(t, playwright{"p": answers(okAnswer, nil)}, func(cfg *Config) {
		edit(cfg, func(*SessionConfig) {})
		cfg.Pools["p"].Backends[0].ID = "b-p"
		change(cfg)
	})
}

// edit gives the pool "p" sessions, or changes those it has.
func edit(cfg *Config, change func(*SessionConfig)) {
	p := cfg.Pools["p"]
	s := DefaultSession()
	if p.Sticky != nil {
		s = *p.Sticky
	}
	change(&s)
	p.Sticky = &s
	cfg.Pools["p"] = p
}

// A stream without a session costs nothing where others have one, and one that
// has costs its visit.
func TestKeyedAllocates(t *testing.T) {
	for _, tt := range []struct {
		name  string
		keys  []string // nil: the pool has no sessions
		field string
		most  float64
	}{
		{"no sessions", nil, "X-Session-ID: s", 0},
		{"no key", []string{"header:X-Session-ID", "cookie:sid", "query:s"}, "Cookie: a=b", 0},
		{"a key", []string{"header:X-Session-ID"}, "X-Session-ID: s", 1},
		{"a cookie", []string{"header:X-Session-ID", "cookie:starling"}, "Cookie: starling=s", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(t, playwright{"p": answers(okAnswer, nil)}, func(cfg *Config) {
				if tt.keys != nil {
					edit(cfg, func(s *SessionConfig) { s.Key = tt.keys })
				}
			})
			here, there := net.Pipe()
			defer func() { _, _ = here.Close(), there.Close() }()
			c := newClient(s.Server, s.now.Load().listeners[0], there)
			go func() { _, _ = io.WriteString(here, "GET /?a=b HTTP/1.1\r\nHost: h\r\n"+tt.field+"\r\n\r\n") }()
			if err := c.conn.ReadRequest(&c.req, wire.HeadLimits{Bytes: 1 << 16}); err != nil {
				t.Fatal(err)
			}
			c.stream.pool = s.now.Load().pools["p"]
			if got := testing.AllocsPerRun(100, func() {
				c.stream.visit = nil
				if err := c.stream.keyed(); err != nil {
					t.Error(err)
				}
			}); got > tt.most {
				t.Errorf("%v allocations, want %v", got, tt.most)
			}
			c.conn.Close()
		})
	}
}

// The log, the list of streams and the span say which session's a stream is.
func TestSessionIsTold(t *testing.T) {
	came, give := make(chan struct{}), make(chan struct{})
	s := newScene(t, playwright{"p": func(c net.Conn, in *bufio.Reader) {
		for head, _ := readMessage(in); head != ""; head, _ = readMessage(in) {
			came <- struct{}{}
			<-give
			_, _ = io.WriteString(c, okAnswer)
		}
	}}, withLog(t, func(cfg *Config) { edit(cfg, func(*SessionConfig) {}) }))
	p := s.dial()
	p.send("GET / HTTP/1.1\r\nHost: h\r\nX-Session-ID: s\r\n\r\n")
	<-came
	if list := s.Streams(10); len(list) != 1 || list[0].Epoch != 7 {
		t.Errorf("streams %+v, want one of epoch 7", list)
	}
	give <- struct{}{}
	if head, _ := readMessage(p.in); head == "" {
		t.Error("no answer")
	}
	line := s.logged()[0]
	if got := fmt.Sprint(line["session_epoch"], line["lookup"]); got != "7hit" {
		t.Errorf("the log says %s, want 7hit", got)
	}
}

// The context of a question has ended once it is answered, also for who looks at
// it only then; it is the stream's own no more.
func TestErrandIsOver(t *testing.T) {
	s := newSessionScene(t, func(*Config) {})
	p := s.dial()
	if head, _ := p.ask("GET / HTTP/1.1\r\nHost: h\r\nX-Session-ID: s\r\n\r\n"); head == "" {
		t.Fatal("no answer")
	}
	ctx := s.opt.Sessions.(*lodging).asked.Load().(context.Context)
	if _, bounded := ctx.Deadline(); bounded {
		t.Error("the question had a deadline")
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-within.Done():
	case <-time.After(patience):
		t.Error("it goes on after the answer")
	}
	if ctx.Err() == nil {
		t.Error("no error after the answer")
	}
	if head, _ := p.ask("GET / HTTP/1.1\r\nHost: h\r\nX-Session-ID: s\r\n\r\n"); head == "" { // nothing of it was disturbed
		t.Error("no second answer")
	}
	if l := s.opt.Sessions.(*lodging); l.begun.Load() != 2 {
		t.Errorf("%d turns, want 2", l.begun.Load())
	}
}

// What a turn costs the proxy beside what its Sessions take: to find the key, to
// take a place at home, and to end.
func BenchmarkTurn(b *testing.B) {
	s := newSessionScene(b, func(*Config) {})
	here, there := net.Pipe()
	defer func() { _, _ = here.Close(), there.Close() }()
	c := newClient(s.Server, s.now.Load().listeners[0], there)
	go func() { _, _ = io.WriteString(here, "GET / HTTP/1.1\r\nHost: h\r\nX-Session-ID: s\r\n\r\n") }()
	if err := c.conn.ReadRequest(&c.req, wire.HeadLimits{Bytes: 1 << 16}); err != nil {
		b.Fatal(err)
	}
	c.stream.pool = s.now.Load().pools["p"]
	b.ReportAllocs()
	for b.Loop() {
		if err := errors.Join(c.stream.keyed(), c.stream.place()); err != nil {
			b.Fatal(err)
		}
		c.stream.lease.Release(time.Now())
		c.stream.endTurn()
	}
	c.conn.Close()
}

// silent is a Sessions that never answers, after it had a proposal.
type silent struct {
	proposed chan string
	gone     chan error
}

func (n *silent) Turn(ctx context.Context, _ string, _ []byte, _ time.Duration, propose func() string) (Turn, error) {
	n.proposed <- propose()
	<-ctx.Done()
	n.gone <- ctx.Err()
	return nil, ctx.Err()
}

// A client that came by TLS and leaves ends the search for its session, also when
// it was watched for a wait in the queue before.
func TestClientLeavesLookupByTLS(t *testing.T) {
	a := newAuthority(t)
	n := &silent{make(chan string, 1), make(chan error, 1)}
	hold := make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	t.Cleanup(backend.Close)
	secure := secured(t, a)
	r := newDoor(t, func(g *plan) {
		secure(g)
		s := DefaultSession()
		s.Key = []string{"header:X-Session-ID"}
		g.pool.Sticky, g.opt.Sessions, g.pool.Health.Enabled = &s, n, false
		g.pool.Backend.MaxStreams = 1
	}, backend.URL)
	first := r.dialTLS(t, trusting(a))
	_, _ = io.WriteString(first, "GET / HTTP/1.1\r\nHost: t.test\r\n\r\n")
	waits := func(n int64) {
		t.Helper()
		for by := time.Now().Add(doorWait); r.Waiting() != n || r.InFlight() == 0; <-time.After(time.Millisecond) {
			if time.Now().After(by) {
				t.Fatalf("%d wait, want %d", r.Waiting(), n)
			}
		}
	}
	waits(0)
	second := r.dialTLS(t, trusting(a))
	_, _ = io.WriteString(second, "GET / HTTP/1.1\r\nHost: t.test\r\nX-Session-ID: s\r\n\r\n")
	waits(1) // to propose
	close(hold)
	if got := <-n.proposed; got != "b1" {
		t.Errorf("proposed %q", got)
	}
	_ = second.Close() // while the answer is awaited
	select {
	case <-n.gone:
	case <-time.After(doorWait):
		t.Error("the search goes on")
	}
}

// What is cut out of heads is a part of them, whatever they hold.
func FuzzKeys(f *testing.F) {
	f.Add("a=b; starling=c", "starling")
	f.Add("starling=; starling==;;=starling", "s")
	f.Add("[::1]:80, 10.0.0.1", "10.0.0.1:8080")
	f.Add(string(newCookie(time.Now())), "")
	f.Fuzz(func(t *testing.T, text, name string) {
		if v := pairValue([]byte(text), name, ';'); v != nil && (len(v) == 0 || name != "" && !strings.Contains(text, name+"="+string(v))) {
			t.Errorf("%q in %q is %q", name, text, v)
		}
		if addr, ok := parseHop([]byte(text)); ok != addr.IsValid() {
			t.Errorf("%q is %v (%v)", text, addr, ok)
		}
		if _, ours := cookieAge([]byte(text), time.Now()); ours && len(text) != cookieText {
			t.Errorf("%q passes for ours", text)
		}
		if k, err := parseKeySource(text); err == nil && k.kind != "client_ip" && k.kind+":"+k.name != text {
			t.Errorf("%q was read as %+v", text, k)
		}
	})
}

// fleeting is a turn of which nothing is known but what its end says.
type fleeting bool

func (fleeting) Home() Home  { return Home{} }
func (fleeting) Look() error { return nil }
func (fleeting) Rebind(context.Context, Home, string, func() string) (Home, error) {
	return Home{}, nil
}
func (e fleeting) End() bool { return bool(e) }

// A stream ran beside another if any of its turns did: one that was sent and broke off may
// have, before the session was found to have moved and another turn began.
func TestAnyTurnMakesAStreamStale(t *testing.T) {
	s := &Stream{visit: &visit{}}
	for _, stale := range []bool{false, true, false} {
		s.visit.turn = fleeting(stale)
		s.endTurn()
	}
	if !s.visit.stale {
		t.Error("its second turn was stale, and it is not")
	}
}
