package wirecase

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const sseHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

// G01: headers of an event stream were held until the first event
// (github.com/caddyserver/caddy/issues/4247). Shorter than the report: 600 ms
// of silence for 3 s, events 100 ms apart for 500 ms.
func TestG01StreamHeadComesFirst(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		const events = 5
		sent := make(chan time.Time, events+1)
		b, _ := answering(t, func(c *Conn, _ *Message) bool {
			send := func(s string) bool { sent <- time.Now(); return c.Send(s) == nil }
			if !send(sseHead) || !c.Pause(600*time.Millisecond) {
				return false
			}
			for i := range events {
				if !send(fmt.Sprintf("9\r\ndata: %d\n\n\r\n", i)) || !c.Pause(100*time.Millisecond) {
					return false
				}
			}
			return c.Send("0\r\n\r\n") == nil
		})
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		for _, more := range []string{"X-A: b", "Accept-Encoding: gzip"} {
			var best [events + 1]time.Duration // of the tries, for each piece
			timed(t, func() error {
				c := r.dial()
				defer c.Close()
				if err := c.Send(get("/s", "Accept: text/event-stream", more)); err != nil {
					return err
				}
				for i := range events + 1 {
					r.within(c, func(s Seen) bool { return len(s.Finals) == 1 && len(s.Finals[0].Body) >= 9*i })
					if took := time.Since(<-sent); best[i] == 0 || took < best[i] {
						best[i] = took
					}
				}
				r.await(c, 1)
				m := c.Seen().Finals[0]
				if want := "data: 0\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\n"; string(m.Body) != want || m.Lines("Content-Encoding") != nil {
					t.Errorf("got %q %v", m.Body, m.Fields)
				}
				// The entry's 100 ms for the head and 50 ms for events, twice for slow machines.
				if slices.Max(best[:]) > 100*time.Millisecond {
					return fmt.Errorf("at best the pieces came after %v", best)
				}
				return nil
			})
		}
	})
}

// within waits for a state of a client that must come.
func (r *rig) within(c *Client, ok func(Seen) bool) {
	r.t.Helper()
	if !c.Until(r.ctx, ok) {
		s := c.Seen()
		r.t.Fatalf("got only %s (%s)", quoted(s.Raw), ended(s))
	}
}

// G02: an upstream that died within a chunked body looked like a normal end
// (github.com/traefik/traefik/issues/13568).
func TestG02BrokenBodyStaysBroken(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		came := make(chan struct{}) // the client has what was sent: of a connection that is reset, bytes may be lost
		b, _ := answering(t, func(c *Conn, m *Message) bool {
			if c.Send(sseHead+"5\r\nhello\r\n") != nil {
				return false
			}
			select {
			case <-came:
			case <-c.ctx.Done():
				return false
			}
			switch m.Target {
			case "/rst":
				_ = c.Reset()
			case "/half":
				_ = c.Send("a\r\n123")
				c.Pause(50 * time.Millisecond)
			}
			return false
		})
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		for _, target := range []string{"/fin", "/rst", "/half"} {
			c := r.dial()
			if err := c.Send(get(target)); err != nil {
				t.Fatal(err)
			}
			r.within(c, func(s Seen) bool { return len(s.Finals) == 1 && len(s.Finals[0].Body) == 5 })
			came <- struct{}{}
			s := r.untilEnd(c)
			rest := strings.TrimPrefix(string(s.Finals[0].Body), "hello")
			if len(s.Finals) != 1 || !s.Finals[0].Cut || len(malformed(s)) > 0 {
				t.Errorf("%s: no visibly broken end: %q", target, s.Raw)
			}
			if !strings.HasPrefix(string(s.Finals[0].Body), "hello") || !strings.HasPrefix("123", rest) || target != "/half" && rest != "" {
				t.Errorf("%s: body is %q", target, s.Finals[0].Body)
			}
		}
		r.wantReason("backend_broke", 3)
	})
}

// G03: connections to backends outlived the clients of an endless stream
// (github.com/haproxy/haproxy/issues/1774). A comment comes each 100 ms, not
// each second, and the clients leave when they have two.
func TestG03ClientsThatLeave(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		const clients = 50
		b, _ := answering(t, func(c *Conn, _ *Message) bool {
			if c.Send(sseHead) != nil {
				return false
			}
			for c.Send("6\r\n: hb\n\n\r\n") == nil && c.Pause(100*time.Millisecond) {
			}
			return false
		})
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		var all []*Client
		for range clients {
			c := r.dial()
			if err := c.Send(get("/ev")); err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		for _, c := range all {
			r.within(c, func(s Seen) bool { return len(s.Finals) == 1 && len(s.Finals[0].Body) >= 12 })
		}
		if n := r.metric("starling_streams_in_flight", "pool")["p"]; n != clients {
			t.Errorf("%v streams in flight, want %d", n, clients)
		}
		for i, c := range all {
			if i%2 == 0 {
				c.Close()
			} else if err := c.Reset(); err != nil {
				t.Fatal(err)
			}
		}
		r.eventually(func() string {
			_, open := b.Conns()
			inFlight, sockets := r.metric("starling_streams_in_flight", "pool")["p"], r.sockets()
			if open > 0 || inFlight > 0 || sockets > 0 {
				return fmt.Sprintf("%d backend connections open, %v streams in flight, %d sockets at the proxy's port", open, inFlight, sockets)
			}
			return ""
		})
		r.wantReason("client_left", clients)
	})
}

// G12: the rest of an abandoned stream answered the next request
// (github.com/valyala/fasthttp/issues/1743).
func TestG12LeftOverBody(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		for _, variant := range []struct{ name, pool, reason string }{
			{"client leaves", "", "client_left"},
			{"stream idle", ", timeouts: {stream_idle: 1s}", "idle"},
		} {
			t.Run(variant.name, func(t *testing.T) {
				t.Parallel()
				gone := make(chan string, 1)
				b, _ := answering(t, func(c *Conn, m *Message) bool {
					if m.Target != "/big" {
						return ok(c, m.Target)
					}
					_ = c.Send("HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("L", 50000))
					gone <- c.Gone()
					return false
				})
				r := newRig(t, l, setup{backends: []string{b.Addr()}, pool: variant.pool})
				big := r.dial()
				if err := big.Send(get("/big")); err != nil {
					t.Fatal(err)
				}
				r.within(big, func(s Seen) bool { return len(s.Finals) == 1 && len(s.Finals[0].Body) >= 10000 })
				if variant.reason == "client_left" {
					big.Close()
				} else if s := r.untilEnd(big); !s.Finals[0].Cut {
					t.Errorf("the idle stream has no broken end: %s", quoted(s.Raw))
				}
				next := r.dial()
				for i := range 20 {
					target := fmt.Sprintf("/who?n=%d", i)
					if m := r.next(next, get(target), i+1); string(m.Body) != target {
						t.Errorf("%s is answered with %s", target, quoted(m.Body))
					}
				}
				select {
				case <-gone:
				case <-r.ctx.Done():
					t.Error("the backend's connection is still open")
				}
				r.wantReason(variant.reason, 1, "done")
			})
		}
	})
}

// G11: a pooled connection that the backend closed as it was picked gave a
// spurious 5xx (github.com/envoyproxy/envoy/issues/1979). Times are a fifth:
// the backend closes 40 ms after its last reply, requests are 38 to 42 ms
// apart.
func TestG11KeepAliveRace(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		const idle = 40 * time.Millisecond
		var mu sync.Mutex // guards both
		seen, answered := map[string]int{}, map[string]int{}
		b := started(t, func(c *Conn) {
			for {
				m, err := c.Next()
				if err != nil {
					return
				}
				mu.Lock()
				seen[m.Target]++
				mu.Unlock()
				if !ok(c, m.Target) {
					return
				}
				mu.Lock()
				answered[m.Target]++
				mu.Unlock()
				_ = c.conn.SetReadDeadline(time.Now().Add(idle)) // fails only on a closed connection, as the read will
			}
		})
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		c := r.dial()
		for i := range 200 {
			target := fmt.Sprintf("/k?n=%d", i)
			if m := r.next(c, get(target), i+1); m.Status != 200 || string(m.Body) != target {
				t.Errorf("%s: got %d %s", target, m.Status, quoted(m.Body))
			}
			pause(r.ctx, idle+time.Duration(i%5-2)*time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		for target, n := range seen {
			if n > 2 || answered[target] != 1 {
				t.Errorf("%s came %d times and was answered %d times", target, n, answered[target])
			}
		}
	})
}
