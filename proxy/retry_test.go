package proxy_test

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// echoes is a backend that works: it answers with the length and sum of what it
// was sent.
func echoes(o *origin, c *net.TCPConn, in *bufio.Reader) {
	for r := o.next(in); r != nil; r = o.next(in) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		reply(c, sum(string(body)))
	}
}

func sum(body string) string { return fmt.Sprintf("%d %x", len(body), sha256.Sum256([]byte(body))) }

// first makes b0 the one that is asked first.
func first(p *proxy.PoolConfig) { p.Backends[0].Weight = 1000 }

// pieces sends a request in two halves: the second when rest is closed.
func pieces(c net.Conn, method, body string, chunked bool, rest <-chan struct{}) {
	head := method + " /x HTTP/1.1\r\nHost: x\r\n"
	half := len(body) / 2
	switch {
	case len(body) == 0:
		io.WriteString(c, head+"\r\n")
	case chunked:
		fmt.Fprintf(c, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", head, half, body[:half])
		<-rest
		fmt.Fprintf(c, "%x\r\n%s\r\n0\r\n\r\n", len(body)-half, body[half:])
	default:
		fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body[:half])
		<-rest
		io.WriteString(c, body[half:])
	}
}

// breaks are the ways in which a backend fails a request before the first byte
// of its answer.
func breaks() map[string]func(o *origin, c *net.TCPConn, in *bufio.Reader) {
	return map[string]func(o *origin, c *net.TCPConn, in *bufio.Reader){
		"close after the head": func(o *origin, c *net.TCPConn, in *bufio.Reader) { o.next(in) },
		"reset after the head": func(o *origin, c *net.TCPConn, in *bufio.Reader) { o.next(in); c.SetLinger(0) },
		"close within the body": func(o *origin, c *net.TCPConn, in *bufio.Reader) {
			if r := o.next(in); r != nil {
				io.CopyN(io.Discard, r.Body, max(r.ContentLength/3, 100))
			}
		},
		"close after the request": func(o *origin, c *net.TCPConn, in *bufio.Reader) {
			if r := o.next(in); r != nil {
				io.Copy(io.Discard, r.Body)
			}
		},
	}
}

// What is tried again: by method, by where it broke, by what of the body is
// kept. Every delivery is counted, and what arrives the second time is what was
// sent.
func TestRetryMatrix(t *testing.T) {
	repeats := map[string]bool{"GET": true, "PUT": true, "DELETE": true, "OPTIONS": true, "POST": false, "PATCH": false}
	for how, serve := range breaks() {
		for method, repeats := range repeats {
			for _, size := range []int{0, 10, 40 << 10, 64 << 10, 64<<10 + 1, 300 << 10} {
				for form := range 4 {
					r := broken{method: method, size: size, chunked: form&1 > 0, plain: form&2 > 0, repeats: repeats, late: !strings.HasSuffix(how, "request")}
					if rare := method == "DELETE" || method == "OPTIONS" || method == "PATCH"; r.chunked && size == 0 || rare && size != 10 {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%d/chunked=%v/portable=%v", how, method, size, r.chunked, r.plain), func(t *testing.T) {
						t.Parallel()
						r.try(t, newOrigin(t, serve), newOrigin(t, echoes))
					})
				}
			}
		}
	}
}

// broken is a request that its first backend breaks off.
type broken struct {
	method         string
	size           int
	chunked, plain bool
	repeats        bool // as the method says
	late           bool // it breaks before the body's end
}

func (r broken) try(t *testing.T, bad, good *origin) {
	g := newFrontOn(t, r.plain, first, bad.addr, good.addr)
	c, body, rest := g.dial(), strings.Repeat("abcdefg", r.size)[:r.size], make(chan struct{})
	go pieces(c, r.method, body, r.chunked, rest)
	kept := r.size < 64<<10 || r.size == 64<<10 && !r.chunked // framing counts too
	again := r.repeats && kept
	if r.size > 1000 && r.late && again {
		g.soon(patience, func() string { return want(good.heads.Load(), 1) }) // the rest comes later
	}
	close(rest)
	s := hear(c, r.method)
	if r.repeats && !kept && r.late {
		again = s.status == 200 // it may break before too much was sent
	}
	retries, status := int64(0), 502
	if again {
		retries, status = 1, 200
		expect(t, "what arrived", s.body, sum(body))
	} else {
		expect(t, "code", s.code, string(backend.CodeBroke))
	}
	expect(t, "status", s.status, status)
	expect(t, "deliveries to the bad one", bad.heads.Load(), 1)
	expect(t, "deliveries to the good one", good.heads.Load(), retries)
	expect(t, "retries", g.metric("retries_total"), float64(retries))
	g.counts(patience, 0, 0)
	expect(t, "bytes kept", g.metric("replay_bytes"), 0)
}

func want(got, want int64) string {
	if got != want {
		return fmt.Sprintf("%d, want %d", got, want)
	}
	return ""
}

// nobody listens there: a port that was free a moment ago may be anybody's.
const nobody = "127.0.0.1:9"

// A connect that fails is followed by one elsewhere, whatever the method and the
// body: nobody has seen it.
func TestRetryAfterARefusedConnect(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		for _, size := range []int{0, 10, 300 << 10} {
			good := newOrigin(t, echoes)
			g := newFront(t, func(p *proxy.PoolConfig) { first(p); p.Retry.BudgetPercent = 0 }, nobody, good.addr)
			c, body, rest := g.dial(), strings.Repeat("x", size), make(chan struct{})
			close(rest)
			go pieces(c, method, body, false, rest)
			s := hear(c, method)
			if s.status != 200 || s.body != sum(body) || good.heads.Load() != 1 {
				t.Errorf("%s of %d: %+v, %d deliveries", method, size, s, good.heads.Load())
			}
			expect(t, "retries", g.metric("retries_total"), 1)
		}
	}
}

// After a byte of an answer nothing is tried again, though the method might be.
func TestNoRetryAfterTheFirstByte(t *testing.T) {
	for _, c := range []struct {
		begin  string
		status int
		code   backend.Code
	}{
		{"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", 103, ""},
		{"HTTP/1.1 2", 502, backend.CodeBroke},
		{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", 200, ""},
		{"HTTP/1.1 garbage\r\n\r\n", 502, backend.BadResponse},
		{"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 503, ""},
	} {
		bad := newOrigin(t, func(o *origin, conn *net.TCPConn, in *bufio.Reader) {
			if o.next(in) != nil {
				io.WriteString(conn, c.begin)
			}
		})
		good := newOrigin(t, echoes)
		g := newFront(t, first, bad.addr, good.addr)
		s := hear(g.get("/"), "GET")
		if s.status != c.status || s.code != string(c.code) || bad.heads.Load() != 1 || good.heads.Load() != 0 {
			t.Errorf("%q: %+v, deliveries %d and %d", c.begin, s, bad.heads.Load(), good.heads.Load())
		}
		g.counts(patience, 0, 0)
	}
}

// A connection that was kept and closes on its next request is no failure of the
// backend: the request goes to it again, on a new connection, with what was
// sent of its body, and not at all where it may have had an effect.
func TestStaleConnection(t *testing.T) {
	for method, again := range map[string]bool{"GET": true, "PUT": true, "POST": false} {
		for _, size := range []int{0, 10, 60 << 10, 300 << 10} {
			t.Run(fmt.Sprintf("%s/%d", method, size), func(t *testing.T) {
				o := newOrigin(t, func(o *origin, c *net.TCPConn, in *bufio.Reader) {
					switch r := o.next(in); {
					case r == nil:
					case r.URL.Path == "/warm":
						reply(c, "")
						if r := o.next(in); r != nil && r.ContentLength > 64<<10 {
							io.Copy(io.Discard, r.Body) // more than is kept
						}
					default:
						body, _ := io.ReadAll(r.Body)
						reply(c, sum(string(body)))
						o.next(in)
					}
				})
				g := newFront(t, func(p *proxy.PoolConfig) { p.Retry.BudgetPercent = 0 }, o.addr)
				hear(g.get("/warm"), "GET")
				c, body, rest := g.dial(), strings.Repeat("x", size), make(chan struct{})
				g.soon(patience, func() string { return want(int64(g.metric("pool_connections", "idle")), 1) })
				again := again && size <= 64<<10
				go pieces(c, method, body, false, rest)
				if again {
					g.soon(patience, func() string { return want(o.heads.Load(), 3) })
				}
				close(rest)
				s := hear(c, method)
				if again && (s.status != 200 || s.body != sum(body)) || !again && s.code != string(backend.CodeBroke) {
					t.Errorf("got %+v", s)
				}
				expect(t, "deliveries", o.heads.Load(), map[bool]int64{true: 3, false: 2}[again])
			})
		}
	}
}

// With one backend alone, that one is asked again; the attempts are bounded.
func TestRetryAtTheOnlyBackend(t *testing.T) {
	bad := newOrigin(t, breaks()["close after the head"])
	g := newFront(t, func(*proxy.PoolConfig) {}, bad.addr)
	s := hear(g.get("/"), "GET")
	if s.status != 502 || s.code != string(backend.CodeBroke) {
		t.Errorf("got %+v", s)
	}
	expect(t, "deliveries", bad.heads.Load(), 3)
}

// A backend that says nothing in time is not asked twice, and another one only
// what may be repeated.
func TestRetryAfterATimeout(t *testing.T) {
	silent := func(o *origin, c *net.TCPConn, in *bufio.Reader) {
		o.next(in)
		io.Copy(io.Discard, in)
	}
	for _, c := range []struct {
		method       string
		others       bool
		status, good int64
	}{{"GET", true, 200, 1}, {"POST", true, 504, 0}, {"GET", false, 504, 0}} {
		bad, good := newOrigin(t, silent), newOrigin(t, echoes)
		addrs := []string{bad.addr, good.addr}
		if !c.others {
			addrs = addrs[:1]
		}
		g := newFront(t, func(p *proxy.PoolConfig) { first(p); p.Timeouts.ResponseHeader = 100 * time.Millisecond }, addrs...)
		conn := g.dial()
		pieces(conn, c.method, "", false, nil)
		expect(t, c.method, int64(hear(conn, c.method).status), c.status)
		expect(t, "deliveries to the silent one", bad.heads.Load(), 1)
		expect(t, "deliveries to the good one", good.heads.Load(), c.good)
	}
}

// The whole time of a stream holds retries and their pauses too.
func TestDeadlineEndsRetries(t *testing.T) {
	bad := newOrigin(t, breaks()["close after the head"])
	g := newFront(t, func(p *proxy.PoolConfig) {
		p.Retry.MaxAttempts, p.Timeouts.StreamTotal = 20, 300*time.Millisecond
	}, bad.addr)
	prompt(t, "answered", 300*time.Millisecond+100*time.Millisecond*raceFactor, func() time.Duration {
		begin := time.Now()
		s := hear(g.get("/"), "GET")
		took := time.Since(begin)
		expect(t, "code", s.code, string(backend.CodeTimeout))
		if took < 300*time.Millisecond {
			t.Errorf("answered after %v", took)
		}
		return took
	})
	g.counts(patience, 0, 0)
}

// As many retries as the budget allows run at a time; the rest gets what it
// would have got without any. A retry that has its answer's head is none any
// more.
func TestRetryBudget(t *testing.T) {
	for _, c := range []struct{ percent, asked, retried int }{{20, 10, 3}, {50, 10, 5}, {100, 4, 4}, {0, 4, 0}} {
		t.Run(fmt.Sprintf("%d%% of %d", c.percent, c.asked), func(t *testing.T) {
			broken := make(chan struct{}) // closed: the bad one breaks off what it has
			bad := newOrigin(t, func(o *origin, c *net.TCPConn, in *bufio.Reader) {
				if o.next(in) != nil {
					<-broken
				}
			})
			good := newHeld(t)
			g := newFront(t, func(p *proxy.PoolConfig) { first(p); p.Retry.BudgetPercent = c.percent }, bad.addr, good.addr)
			answers := make(chan said, c.asked)
			for range c.asked {
				conn := g.get("/x")
				go func() { answers <- hear(conn, "GET") }()
			}
			g.soon(patience, func() string { return want(bad.heads.Load(), int64(c.asked)) })
			close(broken)
			for range c.asked - c.retried {
				if s := <-answers; s.code != string(backend.CodeBroke) {
					t.Fatalf("over the budget: %+v", s)
				}
			}
			for range c.retried {
				good.arrived(t)
				good.give <- struct{}{}
			}
			for range c.retried {
				expect(t, "status of a retry", (<-answers).status, 200)
			}
			expect(t, "deliveries to the good one", good.heads.Load(), int64(c.retried))
			expect(t, "exhausted", g.metric("retry_budget_exhausted_total"), float64(c.asked-c.retried))
			g.counts(patience, 0, 0)
			if c.percent == 0 {
				return
			}
			good.give <- struct{}{}
			expect(t, "one more, later", hear(g.get("/y"), "GET").status, 200)
		})
	}
}

// A client that leaves while its request waits for another try is seen, and
// takes nothing of the budget with it.
func TestLeavingBetweenTries(t *testing.T) {
	bad := newOrigin(t, breaks()["close after the head"])
	g := newFront(t, func(p *proxy.PoolConfig) { p.Retry.MaxAttempts = 6 }, bad.addr)
	prompt(t, "seen", freed, func() time.Duration {
		var conns []*net.TCPConn
		was := bad.heads.Load()
		for range 3 { // as many as may be on a retry
			conns = append(conns, g.get("/"))
		}
		g.soon(patience, func() string {
			if n := bad.heads.Load() - was; n < 12 {
				return fmt.Sprintf("%d deliveries", n)
			}
			return ""
		})
		for _, c := range conns {
			c.Close()
		}
		left := time.Now()
		g.counts(patience, 0, 0)
		return time.Since(left)
	})
	before := bad.heads.Load()
	expect(t, "code of one more", hear(g.get("/"), "GET").code, string(backend.CodeBroke))
	expect(t, "its deliveries", bad.heads.Load()-before, 6)
	expect(t, "exhausted", g.metric("retry_budget_exhausted_total"), 0)
}
