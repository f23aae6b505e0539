package wirecase

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// G14: a client could name X-Forwarded-* in Connection, so that the proxy
// dropped its own (GHSA-92mv-8f8w-wq52).
func TestG14NominatedFields(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		b, d := answering(t, func(c *Conn, m *Message) bool { return ok(c, "ok") })
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		c := r.dial()
		r.next(c, get("/h", "Connection: close, x-forwarded-for, x-real-ip, X-Foo", "X-Foo: 1", "X-Keep: 2",
			"Keep-Alive: timeout=5", "TE: gzip", "Proxy-Connection: keep-alive"), 1)
		r.untilEnd(c)
		m := d.read()[0]
		for name, want := range map[string]string{
			"X-Keep": "[2]", "X-Forwarded-For": "[127.0.0.1]", "X-Forwarded-Proto": "[http]", "X-Forwarded-Host": "[t.test]",
			"X-Foo": "[]", "Keep-Alive": "[]", "Proxy-Connection": "[]", "TE": "[]",
		} {
			if got := fmt.Sprint(m.Lines(name)); got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
		for _, e := range elements(m.Lines("Connection")) {
			if !strings.EqualFold(e, "keep-alive") {
				t.Errorf("Connection has %q", e)
			}
		}
	})
}

// G15: paths and queries arrived changed
// (github.com/valyala/fasthttp/issues/1358).
func TestG15TargetUnchanged(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		b, d := answering(t, func(c *Conn, m *Message) bool { return ok(c, "ok") })
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		for _, target := range []string{
			"/a//b", "//a", "/a/%2Fb", "/a/%2f%2F", "/a/%2e%2e/b", "/a/../b", "/a/./b", "/x?", "/x?a=1;b=2", "/x?a=%zz",
			"/x?q=a+b%20c", "/x?u=http://h/p?y", "/%E4", "/a%00b", "/a|b", "*",
		} {
			method := "GET"
			if target == "*" {
				method = "OPTIONS"
			}
			before := len(d.read())
			m := r.ask(request(method, target, ""))
			got := d.read()[before:]
			kept := m.Status == 200 && len(got) == 1 && got[0].Target == target && got[0].Method == method
			if !kept && (m.Status != 400 || len(got) > 0) {
				t.Errorf("%s %s: got %d, and the backend %q", method, target, m.Status, heads(got))
			}
		}
		d.clean(t)
	})
}

// G16: a Content-Type was invented
// (github.com/traefik/traefik/issues/12339).
func TestG16NothingInvented(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		b, d := answering(t, func(c *Conn, m *Message) bool {
			if m.Target == "/named" {
				return c.Send("HTTP/1.1 200 OK\r\nServer: b/1\r\nContent-Length: 1\r\n\r\nx") == nil
			}
			return ok(c, "x")
		})
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		for _, method := range []string{"POST", "OPTIONS", "DELETE", "GET"} {
			raw := request(method, "/n", "")
			if method == "POST" {
				raw = request(method, "/n", "x", "Content-Length: 1")
			}
			m := r.ask(raw)
			if m.Lines("Content-Type") != nil || len(m.Lines("Date")) > 1 || string(m.Body) != "x" {
				t.Errorf("%s is answered with %v %q", method, m.Fields, m.Body)
			}
		}
		if m := r.ask(get("/named")); fmt.Sprint(m.Lines("Server")) != "[b/1]" {
			t.Errorf("Server is %q, want the backend's", m.Lines("Server"))
		}
		for _, m := range d.read() {
			if m.Lines("Content-Type") != nil || m.Lines("User-Agent") != nil {
				t.Errorf("%s came with %v", m.Method, m.Fields)
			}
		}
	})
}

// G17: large headers gave a reset or a wrong status, or were lost
// (github.com/valyala/fasthttp/issues/1007). Limits are at their defaults, 64
// KiB; a request line of 20 KiB is within that, so one of 80 KiB stands beside
// it.
func TestG17LargeRequestHeads(t *testing.T) {
	pairs := make([]string, 100)
	for i := range pairs {
		pairs[i] = fmt.Sprintf("c%02d=%s", i, strings.Repeat("v", 96))
	}
	onEachLoop(t, func(t *testing.T, l loop) {
		b, d := answering(t, func(c *Conn, m *Message) bool { return ok(c, "ok") })
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		for _, tt := range []struct {
			name, raw, cookies string
			refused            []int
		}{
			{"a: one cookie of 16 KiB", get("/a", "Cookie: a="+strings.Repeat("v", 16<<10)), "a=" + strings.Repeat("v", 16<<10), nil},
			{"b: 100 cookies in a line", get("/b", "Cookie: "+strings.Join(pairs, "; ")), strings.Join(pairs, "; "), nil},
			{"b: 100 lines of a cookie", get("/b", "Cookie: "+strings.Join(pairs, "\r\nCookie: ")), strings.Join(pairs, "; "), nil},
			{"c: 1 MiB", get("/c", strings.TrimSuffix(strings.Repeat("X-A: "+strings.Repeat("v", 1017)+"\r\n", 1024), "\r\n")), "", []int{431, 400}},
			{"f: line of 20 KiB", get("/" + strings.Repeat("f", 20<<10)), "", []int{200, 414, 431}},
			{"f: line of 80 KiB", get("/" + strings.Repeat("f", 80<<10)), "", []int{414, 431}},
		} {
			before := len(d.read())
			c := r.dial()
			_ = c.Send(tt.raw) // the proxy may refuse before it has all
			r.await(c, 1)
			m := c.Seen().Finals[0]
			if m.Status != 200 || tt.refused != nil {
				if !slices.Contains(tt.refused, m.Status) {
					t.Errorf("%s: got %d, want one of %v", tt.name, m.Status, tt.refused)
				}
				if m.Status != 200 {
					r.untilEnd(c)
				}
				continue
			}
			if got := d.read()[before:]; len(got) != 1 || strings.Join(got[0].Lines("Cookie"), "; ") != tt.cookies {
				t.Errorf("%s: it did not pass whole", tt.name)
			}
		}
		d.clean(t)
	})
}

func TestG17LargeResponseHeads(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		var cookies []string
		for i := range 30 {
			cookies = append(cookies, fmt.Sprintf("c%02d=%s", i, strings.Repeat("v", 406)))
		}
		b, _ := answering(t, func(c *Conn, m *Message) bool {
			switch m.Target {
			case "/d":
				return c.Send("HTTP/1.1 200 OK\r\nSet-Cookie: "+strings.Join(cookies, "\r\nSet-Cookie: ")+"\r\nContent-Length: 2\r\n\r\nok") == nil
			case "/e":
				return c.Send("HTTP/1.1 200 OK\r\n"+strings.Repeat("X-A: "+strings.Repeat("v", 1017)+"\r\n", 1024)+"Content-Length: 2\r\n\r\nok") == nil
			}
			return ok(c, "ok")
		})
		r := newRig(t, l, setup{backends: []string{b.Addr()}})
		if m := r.ask(get("/d")); m.Status != 200 || !slices.Equal(m.Lines("Set-Cookie"), cookies) {
			t.Errorf("d: got %d with %d Set-Cookie lines", m.Status, len(m.Lines("Set-Cookie")))
		}
		timed(t, func() error {
			began := time.Now()
			if m := r.ask(get("/e")); m.Status != 502 {
				t.Errorf("e: got %d, want 502", m.Status)
			}
			if took := time.Since(began); took > time.Second {
				return fmt.Errorf("e: the 502 took %v", took)
			}
			return nil
		})
		if m := r.ask(get("/after")); m.Status != 200 {
			t.Errorf("after it: got %d, want the backend still used", m.Status)
		}
	})
}
