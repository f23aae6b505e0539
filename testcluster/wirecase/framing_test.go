package wirecase

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const smuggled = "GET /smuggled HTTP/1.1\r\nHost: t.test\r\n\r\n" // 40 bytes

// G04: a reply sent before the request's body was read made the rest a second
// request (github.com/valyala/fasthttp/pull/2368).
func TestG04UnreadBody(t *testing.T) {
	padding := strings.Repeat("x", 8192)
	bodies := map[string]string{
		"counted": "Content-Length: 8232\r\n\r\n" + padding + smuggled,
		"chunked": "Transfer-Encoding: chunked\r\n\r\n2028\r\n" + padding + smuggled + "\r\n0\r\n\r\n",
		"1 MiB":   "Content-Length: 1048616\r\n\r\n" + strings.Repeat("x", 1<<20) + smuggled,
	}
	onEachLoop(t, func(t *testing.T, l loop) {
		early, d := earlyBackend(t)
		for _, answer := range []struct {
			name   string
			status int
			setup  setup
		}{
			{"no route", 404, setup{backends: []string{early.Addr()}, listener: ", routes: [{path_prefix: /ok, pool: p}]"}},
			{"too large", 413, setup{backends: []string{early.Addr()}, pool: ", limits: {max_request_body: 1KiB}"}},
			{"backend refuses", 502, setup{backends: []string{refused(t)}}},
			{"backend answers early", 413, setup{backends: []string{early.Addr()}}},
		} {
			r := newRig(t, l, answer.setup)
			for name, body := range bodies {
				t.Run(answer.name+", "+name, func(t *testing.T) {
					r := &rig{running: r.running, t: t, ctx: r.ctx}
					unreadBody(r, "POST /limited HTTP/1.1\r\nHost: t.test\r\n"+body, answer.status)
				})
			}
		}
		d.clean(t)
	})
}

// earlyBackend answers 413 to /limited when it has the head, and then reads on.
func earlyBackend(t *testing.T) (*Backend, *diary) {
	d := &diary{}
	return started(t, func(c *Conn) {
		for {
			m, f, err := c.ReadRequest()
			if err != nil {
				return
			}
			d.note(m)
			if m.Target == "/limited" {
				_ = c.Send("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
			}
			if c.ReadBody(m, f) != nil || m.Target != "/limited" && !ok(c, "ok") {
				return
			}
		}
	}), d
}

func unreadBody(r *rig, post string, status int) {
	c := r.dial("POST", "GET")
	sent := make(chan error, 1)
	go func() { sent <- c.Send(post) }()
	r.await(c, 1)
	if m := c.Seen().Finals[0]; m.Status != status {
		r.t.Errorf("got %d, want %d", m.Status, status)
	}
	// Either the connection ends, and the rest may not be sendable, or a new
	// request works behind it.
	if err := <-sent; err == nil {
		_ = c.Send(get("/ok"))
	}
	r.within(c, func(s Seen) bool { return s.Ended != "" || s.Complete() == 2 })
	pause(r.ctx, 200*time.Millisecond)
	if s := c.Seen(); s.Complete() > 2 || len(malformed(s)) > 0 || s.Complete() == 2 && !slices.Contains([]int{200, 502}, s.Finals[1].Status) {
		r.t.Errorf("behind the answer came %v, %v", statuses(s), malformed(s))
	}
}

// G05: Transfer-Encoding beside Content-Length, in HTTP/1.0, or odd
// (github.com/envoyproxy/envoy/issues/11398).
func TestG05OddLengths(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		b, d := answering(t, func(c *Conn, m *Message) bool { return ok(c, "ok") })
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		for _, tt := range []struct {
			name, raw string
			refused   []int
			forwarded bool // may be, if the connection is closed behind it
		}{
			{"a: chunked ends first", "POST /a HTTP/1.1\r\nHost: t.test\r\nContent-Length: 45\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, []int{400}, true},
			{"b: length ends first", "POST /b HTTP/1.1\r\nHost: t.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n28\r\n" + smuggled + "\r\n0\r\n\r\n", []int{400}, true},
			{"c: HTTP/1.0", "POST /c HTTP/1.0\r\nHost: t.test\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, []int{400}, true},
			{"d: xchunked", "POST /d HTTP/1.1\r\nHost: t.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled, []int{400, 501}, false},
			{"e: chunked, identity", "POST /e HTTP/1.1\r\nHost: t.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + smuggled, []int{400, 501}, false},
			{"f: blank before colon", "POST /f HTTP/1.1\r\nHost: t.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled, []int{400}, false},
		} {
			c := r.dial("POST")
			if err := c.Send(tt.raw); err != nil {
				t.Fatal(err)
			}
			s := r.untilEnd(c)
			if len(s.Finals) != 1 || len(malformed(s)) > 0 {
				t.Errorf("%s: got %q", tt.name, s.Raw)
				continue
			}
			status := s.Finals[0].Status
			if !slices.Contains(tt.refused, status) && !(tt.forwarded && status == 200) {
				t.Errorf("%s: got %d", tt.name, status)
			}
		}
		d.clean(t)
	})
}

// G06: trailers were lost or turned into headers
// (github.com/traefik/traefik/issues/1805).
func TestG06Trailers(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		b, _ := answering(t, func(c *Conn, m *Message) bool {
			trailers := map[string]string{
				"/tr":   "X-Sum: abc\r\nX-Late: 1\r\n",
				"/evil": "X-Sum: abc\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\nHost: evil.test\r\n",
			}[m.Target]
			if trailers == "" {
				return ok(c, "next")
			}
			return c.Send("HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"+trailers+"\r\n") == nil
		})
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		for _, target := range []string{"/tr", "/evil"} {
			c := r.dial()
			m := r.next(c, get(target, "TE: trailers", "Connection: TE"), 1)
			if string(m.Body) != "hello" || m.Lines("X-Sum") != nil || m.Lines("X-Late") != nil {
				t.Errorf("%s: got %q with %v", target, m.Body, m.Fields)
			}
			if got := lines(m.Trailers, "X-Sum"); len(got) > 0 && got[0] != "abc" {
				t.Errorf("%s: trailers are %v", target, m.Trailers)
			}
			for _, name := range []string{"Content-Length", "Transfer-Encoding", "Host"} {
				if lines(m.Trailers, name) != nil {
					t.Errorf("%s: %s came in a trailer: %q", target, name, c.Seen().Raw)
				}
			}
			if m := r.next(c, get("/next"), 2); string(m.Body) != "next" {
				t.Errorf("the next answer is %q", m.Body)
			}
		}
	})
}

// G07: the length of a HEAD's answer was taken for bytes to read
// (github.com/traefik/traefik/pull/11442).
func TestG07HeadWithLength(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		b, _ := answering(t, func(c *Conn, m *Message) bool {
			if m.Method == "HEAD" {
				return c.Send("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n") == nil
			}
			return ok(c, "ok")
		})
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		timed(t, func() error {
			c := r.dial("HEAD", "GET")
			defer c.Close()
			if err := c.Send(request("HEAD", "/h", "") + get("/g")); err != nil {
				return err
			}
			r.await(c, 2)
			s := c.Seen()
			if head := s.Finals[0]; fmt.Sprint(head.Lines("Content-Length")) != "[1234]" || head.Lines("Transfer-Encoding") != nil {
				t.Errorf("HEAD has %v", head.Fields)
			}
			if string(s.Finals[1].Body) != "ok" {
				t.Errorf("GET got %q", s.Finals[1].Body)
			}
			if took := s.Finals[0].HeadAt.Sub(c.Began); took > 200*time.Millisecond {
				return fmt.Errorf("HEAD took %v", took)
			}
			return nil
		})
	})
}

// G08: 304 and 204 gained framing fields
// (github.com/envoyproxy/envoy/issues/16071).
func TestG08NoFramingGained(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		b, _ := answering(t, func(c *Conn, m *Message) bool {
			switch m.Target {
			case "/304":
				return c.Send("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n") == nil
			case "/204":
				return c.Send("HTTP/1.1 204 No Content\r\n\r\n") == nil
			case "/304len":
				return c.Send("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 500\r\n\r\n") == nil
			}
			return ok(c, "ok")
		})
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		c := r.dial()
		for i, tt := range []struct{ target, length string }{{"/304", "[]"}, {"/204", "[]"}, {"/304len", "[500]"}, {"/after", "[2]"}} {
			m := r.next(c, get(tt.target, `If-None-Match: "a"`), i+1)
			length := fmt.Sprint(m.Lines("Content-Length"))
			if length != tt.length && !(tt.target == "/304len" && length == "[]") {
				t.Errorf("%s: Content-Length is %s, want %s", tt.target, length, tt.length)
			}
			if m.Lines("Transfer-Encoding") != nil {
				t.Errorf("%s: it has %v", tt.target, m.Fields)
			}
		}
	})
}

// G09: an interim response was taken for the final one
// (github.com/valyala/fasthttp/pull/2333).
func TestG09Interim(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		b, _ := answering(t, func(c *Conn, m *Message) bool {
			if m.Target == "/hint" {
				_ = c.Send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")
				c.Pause(300 * time.Millisecond)
			}
			return ok(c, m.Target)
		})
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		for _, version := range []string{"HTTP/1.1", "HTTP/1.0"} {
			c := r.dial()
			m := r.next(c, "GET /hint "+version+"\r\nHost: t.test\r\nConnection: keep-alive\r\n\r\n", 1)
			if m.Status != 200 || string(m.Body) != "/hint" || m.Lines("Link") != nil {
				t.Errorf("%s: got %d %q %v", version, m.Status, m.Body, m.Fields)
			}
			if n := len(m.Interim); n > 1 || version == "HTTP/1.0" && n > 0 || n == 1 && fmt.Sprint(m.Interim[0].Status, m.Interim[0].Lines("Link")) != "103 [</a.css>; rel=preload]" {
				t.Errorf("%s: interim responses are %q", version, heads(m.Interim))
			}
			if c.Seen().Ended == "" {
				m = r.next(c, get("/next"), 2)
			} else {
				m = r.ask(get("/next"))
			}
			if string(m.Body) != "/next" {
				t.Errorf("%s: the next answer is %q", version, m.Body)
			}
		}
	})
}
