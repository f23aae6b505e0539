package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
)

// jsonBody is a request whose JSON body comes with the head.
func jsonBody(body string, fields ...string) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s", len(body), strings.Join(fields, ""), body)
}

// The key of a request is the first that is there, and only what can be told
// for certain is one.
func TestSessionKeys(t *testing.T) {
	t.Parallel()
	const ours = "*" // a cookie of our making
	long := strings.Repeat("k", 4<<10)
	chunks := func(parts ...string) string {
		text := "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
		for _, p := range parts {
			text += fmt.Sprintf("%x\r\n%s\r\n", len(p), p)
		}
		return text + "0\r\n\r\n"
	}
	get := func(target string, fields ...string) string {
		return "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(fields, "") + "\r\n"
	}
	standard := []string{"header:X-Session-ID", "cookie:starling"}
	asked := []string{"query:session"}
	written := []string{"json:session", "header:X-Else"}
	for _, tt := range []struct {
		name string
		keys []string
		text string
		want string // "" for none
	}{
		{"header", standard, get("/", "x-session-id: a b \r\n"), "a b"},
		{"header before cookie", standard, get("/", "Cookie: starling=c\r\n", "X-Session-ID: h\r\n"), "h"},
		{"cookie", standard, get("/", "Cookie: a=b; starling=c; d=e\r\n"), "c"},
		{"empty header, then cookie", standard, get("/", "X-Session-ID:\r\n", "Cookie: starling=c\r\n"), "c"},
		{"nothing", standard, get("/"), ours},
		{"empty cookie", standard, get("/", "Cookie: starling=; b=c\r\n"), ours},
		{"empty cookie, then one", standard, get("/", "Cookie: starling=; starling=c\r\n"), "c"},
		{"two cookies", standard, get("/", "Cookie: starling=c; starling=d\r\n"), "c"},
		{"two cookie fields", standard, get("/", "Cookie: a=b\r\n", "Cookie: starling=c\r\n"), "c"},
		{"cookies of like names", standard, get("/", "Cookie: xstarling=1; starlings=2; Starling=3; starling =4; a=starling=5\r\n"), ours},
		{"a cookie's value holds more", standard, get("/", "Cookie: starling=a=b,c \"d\"; e=f\r\n"), `a=b,c "d"`},
		{"no blank between cookies", standard, get("/", "Cookie: a=b;starling=c;d\r\n"), "c"},
		{"the header twice, alike", standard, get("/", "X-Session-ID: h\r\n", "X-Session-Id: h\r\n"), "h"},
		{"the header twice, unlike", standard, get("/", "X-Session-ID: h\r\n", "X-Session-ID: i\r\n", "Cookie: starling=c\r\n"), ""},
		{"the header twice, one empty", standard, get("/", "X-Session-ID: h\r\n", "X-Session-ID:\r\n"), ""},
		{"as long as may be", standard, get("/", "X-Session-ID: "+long+"\r\n"), long},
		{"too long", standard, get("/", "X-Session-ID: "+long+"k\r\n", "Cookie: starling=c\r\n"), ""},
		{"no cookie asked for", []string{"header:X-Session-ID"}, get("/", "Cookie: starling=c\r\n"), ""},
		{"another's cookie", []string{"cookie:JSESSIONID"}, get("/"), ""},
		{"query", asked, get("/x?a=b&session=q&session=r"), "q"},
		{"query as written", asked, get("/?session=a%20b+c"), "a%20b+c"},
		{"query of like names", asked, get("/?xsession=1&session2=2&Session=3"), ""},
		{"no query", asked, get("/session=q"), ""},
		{"empty query", asked, get("/?session=&session"), ""},
		{"json", written, jsonBody(`{"model":"m","session":"j","x":1}`), "j"},
		{"json number", written, jsonBody(`{"session":12.50}`), "12.50"},
		{"json escapes", written, jsonBody(`{"s\u0065ssion":"\u006a\n"}`), "j\n"},
		{"json twice", written, jsonBody(`{"session":"j","session":"k"}`), "j"},
		{"json within", written, jsonBody(`{"a":{"session":"j"}}`, "X-Else: e\r\n"), "e"},
		{"json null", written, jsonBody(`{"session":null}`), ""},
		{"json object", written, jsonBody(`{"session":{"a":1}}`), ""},
		{"json empty", written, jsonBody(`{"session":""}`, "X-Else: e\r\n"), "e"},
		{"json too long", written, jsonBody(`{"session":"`+long+`k"}`, "X-Else: e\r\n"), ""},
		{"json broken", written, jsonBody(`{"session"`, "X-Else: e\r\n"), "e"},
		{"json in chunks", written, chunks(`{"model":"m","ses`, `sion":"`, `j"}`), "j"},
		{"json in chunks, coded", written, strings.Replace(chunks(`{"session":"j"}`), "Transfer", "Content-Encoding: gzip\r\nTransfer", 1), ""},
		{"json by another name", written, strings.Replace(jsonBody(`{"session":"j"}`), "application/json", "text/plain", 1), ""},
		{"no body", written, get("/", "Content-Type: application/json\r\n"), ""},
		{"before the limit", written, jsonBody(`{"pad":"` + strings.Repeat("x", 8000) + `","session":"j"}`), "j"},
		{"beyond the limit", written, jsonBody(`{"pad":"` + strings.Repeat("x", 8200) + `","session":"j"}`), ""},
		{"the client's address", []string{"header:X-Else", "client_ip"}, get("/"), "127.0.0.1"},
		{"an address that is not believed", []string{"client_ip"}, get("/", "X-Forwarded-For: 192.0.2.1\r\n"), "127.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBook(t)
			g := newFrontFor(t, b, false, func(p *proxy.PoolConfig) {
				sticky(tt.keys...)(p)
				p.Sticky.MaxBodyScan = 8 << 10
			}, naming(t, "b0", nil).addr)
			c := g.dial()
			io.WriteString(c, tt.text)
			got := hear(c, strings.Fields(tt.text)[0])
			if got.status != 200 {
				t.Fatalf("answer %+v", got)
			}
			turns, _ := b.asked()
			none := float64(0)
			switch {
			case tt.want == "":
				none = 1
				expect(t, "turns", len(turns), 0)
			case tt.want == ours:
				if len(turns) != 1 || len(turns[0]) != 27 {
					t.Errorf("keys %q, want one of ours", turns)
				}
			case len(turns) != 1 || turns[0] != tt.want:
				t.Errorf("keys %.80q, want %.80q", turns, tt.want)
			}
			g.lookups(map[proxy.Lookup]float64{proxy.LookupNoKey: none, proxy.LookupNew: 1 - none})
		})
	}
}

// A trusted proxy says whom it speaks for; the last address that no trusted
// proxy has is the client's.
func TestKeyBehindProxies(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	g := newFrontTrusting(t, b, []string{"127.0.0.0/8", "10.0.0.0/8"}, sticky("client_ip"), naming(t, "b0", nil).addr)
	for _, tt := range []struct{ fields, want string }{
		{"", "127.0.0.1"},
		{"X-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1"},
		{"X-Forwarded-For: 198.51.100.9, 192.0.2.1,10.1.2.3 \r\n", "192.0.2.1"},
		{"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 10.1.2.3\r\n", "192.0.2.1"},
		{"X-Forwarded-For: 192.0.2.1:8080, 10.1.2.3:1\r\n", "192.0.2.1"},
		{"X-Forwarded-For: [2001:db8::1]:443\r\n", "2001:db8::1"},
		{"X-Forwarded-For: [2001:db8::1]\r\n", "2001:db8::1"},
		{"X-Forwarded-For: ::ffff:192.0.2.1\r\n", "192.0.2.1"},
		{"X-Forwarded-For: 10.1.2.3\r\n", "10.1.2.3"},
		{"X-Forwarded-For: 192.0.2.1, unknown\r\n", "127.0.0.1"},
		{"X-Forwarded-For: 192.0.2.1, unknown, 10.1.2.3\r\n", "10.1.2.3"},
		{"X-Forwarded-For: ,,\r\n", "127.0.0.1"},
		{strings.Repeat("X-Forwarded-For: 203.0.113.7\r\n", 9) + "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 10.1.2.3\r\n", "192.0.2.1"},
		{"X-Forwarded-For: 192.0.2.1\r\n" + strings.Repeat("X-Forwarded-For: 10.1.2.3\r\n", 8), "10.1.2.3"},
	} {
		c := g.dial()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n"+tt.fields+"\r\n")
		if got := hear(c, "GET"); got.status != 200 {
			t.Fatalf("%q: %+v", tt.fields, got)
		}
		if turns, _ := b.asked(); turns[len(turns)-1] != tt.want {
			t.Errorf("%q: key %q, want %q", tt.fields, turns[len(turns)-1], tt.want)
		}
	}
}

// A key deep in a slow body is waited for, but no longer than a second.
func TestKeyOfSlowBody(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	g := newFrontFor(t, b, false, sticky("json:session"), naming(t, "b0", nil).addr)
	head := "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n"
	c := g.dial()
	io.WriteString(c, head+`{"model":"mmm",`)
	g.counts(patience, 1, 0)
	io.WriteString(c, `"session":"js"}`)
	if got := hear(c, "POST"); got.status != 200 {
		t.Errorf("answer %+v", got)
	}
	if turns, _ := b.asked(); len(turns) != 1 || turns[0] != "js" {
		t.Errorf("keys %q", turns)
	}
	c = g.dial()
	from := time.Now()
	io.WriteString(c, head+`{"model":"mmm",`)
	g.lookups(map[proxy.Lookup]float64{proxy.LookupNew: 1}) // nothing yet
	g.soon(patience, func() string {
		if g.backend(0).InFlight() == 0 {
			return "the request waits"
		}
		return ""
	})
	if took := time.Since(from); took < time.Second {
		t.Errorf("sent on after %v", took)
	}
	io.WriteString(c, `"session":"js"}`)
	if got := hear(c, "POST"); got.status != 200 {
		t.Errorf("answer %+v", got)
	}
	g.lookups(map[proxy.Lookup]float64{proxy.LookupNew: 1, proxy.LookupNoKey: 1})
}

// consistent_hash goes by a field of the body too.
func TestHashKeyOfBody(t *testing.T) {
	t.Parallel()
	g := newFront(t, func(p *proxy.PoolConfig) {
		p.Policy, p.Placement.HashKey, p.Placement.BoundedLoad = "consistent_hash", "json:user", 0
	}, naming(t, "b0", nil).addr, naming(t, "b1", nil).addr, naming(t, "b2", nil).addr)
	ask := func(user string) string {
		c := g.dial()
		defer func() { _ = c.Close() }()
		io.WriteString(c, jsonBody(fmt.Sprintf(`{"prompt":"...","user":%q}`, user)))
		return hear(c, "POST").body
	}
	homes := map[string]int{}
	for i := range 30 {
		user := fmt.Sprint("u", i)
		first := ask(user)
		if again := ask(user); again != first {
			t.Errorf("%s went to %s, then to %s", user, first, again)
		}
		homes[first]++
	}
	if len(homes) != 3 {
		t.Errorf("30 users went to %v", homes)
	}
}

// The cookie of a client that brings no key: what it says of itself, that it is
// kept as it is, and that it is given again only when it would expire.
func TestCookie(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		edit  func(*proxy.CookieConfig)
		field string // beside the standard ones
		want  string // of what follows the value
	}{
		{"defaults", func(*proxy.CookieConfig) {}, "", "; Path=/; HttpOnly; SameSite=Lax"},
		{"by TLS to a trusted proxy", func(*proxy.CookieConfig) {}, "X-Forwarded-Proto: https\r\n", "; Path=/; HttpOnly; Secure; SameSite=Lax"},
		{"strict", func(c *proxy.CookieConfig) { c.SameSite, c.Secure = "strict", "true" }, "", "; Path=/; HttpOnly; Secure; SameSite=Strict"},
		{"none is secure", func(c *proxy.CookieConfig) { c.SameSite = "none" }, "", "; Path=/; HttpOnly; Secure; SameSite=None"},
		{"never secure", func(c *proxy.CookieConfig) { c.Secure = "false" }, "X-Forwarded-Proto: https\r\n", "; Path=/; HttpOnly; SameSite=Lax"},
		{"for a while", func(c *proxy.CookieConfig) { c.TTL = 90 * time.Second }, "", "; Path=/; HttpOnly; Max-Age=90; SameSite=Lax"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBook(t)
			g := newFrontTrusting(t, b, []string{"127.0.0.0/8"}, func(p *proxy.PoolConfig) {
				sticky()(p)
				p.Sticky.Key, p.Sticky.Cookie.Name = []string{"cookie:sid"}, "sid"
				tt.edit(&p.Sticky.Cookie)
			}, naming(t, "b0", nil).addr)
			c := g.dial()
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n"+tt.field+"\r\n")
			head := headOf(t, c)
			set := regexp.MustCompile(`\r\nSet-Cookie: sid=([A-Za-z0-9_-]{27})([^\r]*)\r\nCache-Control: private\r\n`).FindStringSubmatch(head)
			if set == nil || set[2] != tt.want {
				t.Fatalf("head %q, want a cookie with %q", head, tt.want)
			}
			c = g.dial()
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nCookie: sid="+set[1]+"\r\n\r\n")
			if head := headOf(t, c); strings.Contains(head, "Set-Cookie") || strings.Contains(head, "Cache-Control") {
				t.Errorf("the second head %q", head)
			}
			if turns, _ := b.asked(); len(turns) != 2 || turns[0] != set[1] || turns[1] != set[1] {
				t.Errorf("keys %q, want %s twice", turns, set[1])
			}
		})
	}
}

// The epoch goes to the backend, and nobody else can write it.
func TestEpochHeader(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	heads := make(chan string, 10)
	g := newFrontFor(t, b, false, func(p *proxy.PoolConfig) {
		sticky("header:X-Session-ID")(p)
		p.Sticky.EpochHeader = "X-Epoch"
	}, naming(t, "b0", heads).addr)
	for _, tt := range []struct{ fields, want string }{
		{"X-Session-ID: a\r\n", "1"},
		{"X-Session-ID: b\r\nX-Epoch: 99\r\nx-epoch: 98\r\nX_Epoch: 97\r\n", "2"},
		{"X-Session-ID: a\r\nConnection: X-Epoch\r\n", "1"},
		{"X-Epoch: 99\r\n", ""},
	} {
		c := g.dial()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n"+tt.fields+"\r\n")
		if got := hear(c, "GET"); got.status != 200 {
			t.Fatalf("answer %+v", got)
		}
		head := await(t, heads)
		var got []string
		for _, m := range regexp.MustCompile(`(?i)\r\nX[-_]Epoch: ([^\r]*)`).FindAllStringSubmatch(head, -1) {
			got = append(got, m[1])
		}
		if strings.Join(got, ",") != tt.want {
			t.Errorf("%q: epochs %q in %q, want %q", tt.fields, got, head, tt.want)
		}
	}
}

// Nor can it, or the request's id, be written in a trailer, which some programs
// read as a field.
func TestEpochTrailer(t *testing.T) {
	t.Parallel()
	came := make(chan http.Header, 4)
	o := newOrigin(t, func(_ *origin, c *net.TCPConn, in *bufio.Reader) {
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			came <- r.Trailer
			reply(c, "b0")
		}
	})
	g := newFrontFor(t, newBook(t), false, func(p *proxy.PoolConfig) {
		sticky("header:X-Session-ID")(p)
		p.Sticky.EpochHeader = "X-Epoch"
	}, o.addr)
	for _, whole := range []bool{true, false} {
		c := g.dial()
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nX-Session-ID: a\r\nTrailer: X-Sum, X-Epoch\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
		end := "0\r\nX-Epoch: 99\r\nX-Sum: 1\r\nx_epoch: 98\r\nX-Request-ID: theirs\r\nx_request_id: theirs\r\n\r\n"
		if !whole { // and in pieces
			for i := range end {
				io.WriteString(c, end[i:i+1])
			}
		} else {
			io.WriteString(c, end)
		}
		if got := hear(c, "POST"); got.status != 200 {
			t.Fatalf("answer %+v", got)
		}
		sum := false
		for name, values := range await(t, came) {
			sum = sum || name == "X-Sum" && values[0] == "1"
			if name = strings.ToLower(name); (strings.Contains(name, "epoch") || strings.Contains(name, "request")) && len(values) > 0 {
				t.Errorf("trailer %s: %q came to the backend", name, values)
			}
		}
		if !sum {
			t.Error("the client's own trailer did not come to the backend")
		}
	}
}

// headOf is the head of the next answer.
func headOf(t *testing.T, c net.Conn) string {
	t.Helper()
	var head strings.Builder
	one := make([]byte, 1)
	for !strings.HasSuffix(head.String(), "\r\n\r\n") {
		if _, err := c.Read(one); err != nil {
			t.Fatalf("head %q: %v", &head, err)
		}
		head.Write(one)
	}
	return head.String()
}
