package wirecase

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// G10: the proxy said 100 by itself and lost the backend's 401, or sent two
// (github.com/traefik/traefik/issues/9926).
func TestG10Expect(t *testing.T) {
	const size = 1 << 20
	onEachLoop(t, func(t *testing.T, l loop) {
		d := &diary{}
		b := started(t, func(c *Conn) {
			for expectOnce(c, d) {
			}
		})
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		head := func(target, version string) string {
			return fmt.Sprintf("POST %s %s\r\nHost: t.test\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", target, version, size)
		}
		body := strings.Repeat("x", size)

		t.Run("a: refused at once", func(t *testing.T) {
			r := &rig{running: r.running, t: t, ctx: r.ctx}
			c := r.dial("POST", "GET")
			if m := r.next(c, head("/refuse", "HTTP/1.1"), 1); m.Status != 401 {
				t.Errorf("got %d, want the backend's 401", m.Status)
			}
			pause(r.ctx, 300*time.Millisecond)
			if c.Seen().Ended == "" { // then it must be in sync
				if err := c.Send(body + get("/next")); err == nil {
					r.within(c, func(s Seen) bool { return s.Ended != "" || s.Complete() == 2 })
				}
			}
			if s := c.Seen(); s.Complete() == 2 && s.Finals[1].Status != 200 || len(malformed(s)) > 0 {
				t.Errorf("out of sync: %v, %v", statuses(s), malformed(s))
			}
		})
		for _, tt := range []struct{ name, target, version string }{
			{"b: continued late", "/late", "HTTP/1.1"},
			{"c: ignored", "/ignore", "HTTP/1.1"},
			{"d: HTTP/1.0", "/ignore", "HTTP/1.0"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, l, setup{backends: []string{b.Addr()}})
				c := r.dial("POST")
				if err := c.Send(head(tt.target, tt.version)); err != nil {
					t.Fatal(err)
				}
				// A client may send the body unasked after a while.
				waited, cancel := context.WithTimeout(r.ctx, time.Second)
				defer cancel()
				c.Until(waited, func(s Seen) bool { return len(s.Interim) > 0 })
				m := r.next(c, body, 1)
				if m.Status != 200 || string(m.Body) != fmt.Sprint(size) {
					t.Errorf("got %d %q, want 200 and the body's size", m.Status, m.Body)
				}
				if n := len(m.Interim); n > 1 || tt.version == "HTTP/1.0" && n > 0 || n == 1 && m.Interim[0].Status != 100 {
					t.Errorf("interim responses are %q", heads(m.Interim))
				}
			})
		}
		t.Cleanup(func() { d.clean(t) })
	})
}

// expectOnce serves one request in the way that its target asks for.
func expectOnce(c *Conn, d *diary) bool {
	m, f, err := c.ReadRequest()
	if err != nil {
		return false
	}
	switch m.Target {
	case "/refuse":
		_ = c.Send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
	case "/late":
		c.Pause(500 * time.Millisecond)
		_ = c.Send("HTTP/1.1 100 Continue\r\n\r\n")
	}
	err = c.ReadBody(m, f)
	d.note(m)
	return err == nil && (m.Target == "/refuse" || ok(c, fmt.Sprint(len(m.Body))))
}

// G13: an upstream's 413 within an upload came out as a reset or a 503
// (github.com/envoyproxy/envoy/issues/2929). The backend reads on for 500 ms,
// not 2 s. It runs with no other test beside it, for the heap.
func TestG13EarlyAnswerToUpload(t *testing.T) {
	for _, l := range loops() {
		for _, end := range []string{"reads on", "fin", "rst"} {
			t.Run(l.name+", "+end, func(t *testing.T) {
				d := &diary{}
				answered := make(chan struct{})
				serve := func(c *Conn) { tooLarge(c, d, end, answered) }
				r := newRig(t, l, setup{backends: []string{started(t, serve).Addr(), started(t, serve).Addr()}})
				before := allocated()
				c := r.dial("POST")
				uploaded := make(chan struct{})
				go func() { defer close(uploaded); upload(c, 50<<20) }()
				r.within(c, func(s Seen) bool { return s.Complete() == 1 || s.Ended != "" })
				close(answered)
				s := r.untilEnd(c)
				<-uploaded
				// All that was ever allocated, so that the collector cannot hide a copy of the body.
				if grown := allocated() - before; grown > 8<<20 {
					t.Errorf("%d MiB were allocated", grown>>20)
				}
				m := append(s.Finals, Message{})[0]
				if got := fmt.Sprint(m.Status, " ", string(m.Body)); got != "413 too large" && !(end == "rst" && m.Status == 502) || !m.Complete {
					t.Errorf("got %s complete %v: %s (%s)", got, m.Complete, quoted(s.Raw), ended(s))
				}
				if n := len(d.read()); n != 1 {
					t.Errorf("backends got %d requests, want 1", n)
				}
			})
		}
	}
}

// tooLarge does not close before the client is answered: of a connection that is
// closed with bytes unread, an answer may be lost that nobody has read yet.
func tooLarge(c *Conn, d *diary, end string, answered <-chan struct{}) {
	m, _, err := c.ReadRequest()
	if err != nil {
		return
	}
	d.note(m)
	_ = c.Send("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 9\r\n\r\ntoo large")
	rest := func() {
		c.Pause(500 * time.Millisecond)
		select {
		case <-answered:
		case <-c.ctx.Done():
		}
	}
	switch end {
	case "reads on":
		go func() {
			rest()
			_ = c.conn.SetReadDeadline(time.Now()) // fails as the read will
		}()
		_, _ = io.Copy(io.Discard, c.conn) // not c.Gone: that keeps 4 MiB to show
	case "fin":
		_ = c.Fin()
		rest() // reads nothing
	case "rst":
		c.Pause(100 * time.Millisecond)
		_ = c.Reset()
	}
}

// upload sends at full speed until all is sent or nothing more can be.
func upload(c *Client, size int) {
	head := fmt.Sprintf("POST /up HTTP/1.1\r\nHost: t.test\r\nContent-Length: %d\r\n\r\n", size)
	if c.Send(head) != nil {
		return
	}
	piece := make([]byte, 64<<10)
	for range size / len(piece) {
		if _, err := c.conn.Write(piece); err != nil {
			return
		}
	}
}

func allocated() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.TotalAlloc)
}

// G25: a POST was sent twice, or a retry went out with an empty body
// (github.com/traefik/traefik/issues/8990, github.com/caddyserver/caddy/issues/7546).
func TestG25RetryOfPost(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		t.Run("a: no reply", func(t *testing.T) {
			t.Parallel()
			a, atA := answering(t, func(*Conn, *Message) bool { return false })
			b, atB := answering(t, func(c *Conn, m *Message) bool { return ok(c, "B") })
			r := newRig(t, l, setup{backends: []string{a.Addr(), b.Addr()}})
			var took []time.Duration
			// The pick is the proxy's, so ask until A was hit by each method.
			for i := range 20 {
				for _, method := range []string{"POST", "GET"} {
					beforeA, beforeB := len(atA.read()), len(atB.read())
					body := ""
					if method == "POST" {
						body = "k=1"
					}
					began := time.Now()
					m := r.ask(request(method, fmt.Sprintf("/pay?n=%d", i), body, fmt.Sprintf("Content-Length: %d", len(body))))
					nA, nB := len(atA.read())-beforeA, len(atB.read())-beforeB
					answered := m.Status == 200 && nB == 1 && (nA == 0 || nA == 1 && method == "GET")
					broke := (m.Status == 502 || m.Status == 504) && nA == 1 && nB == 0
					if !answered && !broke {
						t.Errorf("%s: %d after %v, A got %d, B got %d", method, m.Status, time.Since(began), nA, nB)
					}
					if nA > 0 {
						took = append(took, time.Since(began))
					}
				}
			}
			if len(took) == 0 {
				t.Fatal("A was never tried")
			}
			slices.Sort(took)
			// The middle one, and none by much: a machine may stop for a moment.
			if took[len(took)/2] > 2*time.Second || took[len(took)-1] > 10*time.Second {
				t.Errorf("when A gave no reply it took %v", took)
			}
		})
		t.Run("b: refused", func(t *testing.T) {
			t.Parallel()
			b, atB := answering(t, func(c *Conn, m *Message) bool { return ok(c, string(m.Body)) })
			r := newRig(t, l, setup{backends: []string{refused(t), b.Addr()}})
			body := strings.Repeat("0123456789abcdef", 4096)
			for i := range 10 {
				for name, framed := range map[string]string{
					"counted": "Content-Length: 65536\r\n\r\n" + body,
					"chunked": "Transfer-Encoding: chunked\r\n\r\n8000\r\n" + body[:1<<15] + "\r\n8000\r\n" + body[1<<15:] + "\r\n0\r\n\r\n",
				} {
					before := len(atB.read())
					m := r.ask("POST /b HTTP/1.1\r\nHost: t.test\r\n" + framed)
					if n := len(atB.read()) - before; m.Status != 200 || string(m.Body) != body || n != 1 {
						t.Errorf("%s %d: %d with %d bytes, delivered %d times", name, i, m.Status, len(m.Body), n)
					}
				}
			}
			atB.clean(t)
		})
	})
}
