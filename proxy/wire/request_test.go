package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// accepted are heads that are taken, and what is read from them.
func accepted() [][3]string {
	return [][3]string{
		{"smallest", head("GET / HTTP/1.1", "Host: h"), "GET / h 0"},
		{"host with port", head("GET / HTTP/1.1", "hOST:\t h:80 \t"), "GET / h:80 0"},
		{"host IPv6", head("GET / HTTP/1.1", "Host: [::1]:80"), "GET / [::1]:80 0"},
		{"own method", head("M-SEARCH!#$%&'*+.^_`|~9 / HTTP/1.1", "Host: h"), "M-SEARCH!#$%&'*+.^_`|~9 / h 0"},
		{"empty value, odd names", head("GET / HTTP/1.1", "Host: h", "X-A:", "!#$%&'*+-.^_`|~09azAZ: \t b \t"), "GET / h 0"},
		{"high bytes", head("GET /\xe4 HTTP/1.1", "Host: h", "X-A: \xe4\x80\xff\tb"), "GET /\xe4 h 0"},

		{"target kept", head("GET /a//b/../%2e%2F%zz?q=a+b;c&u=http://x/?y HTTP/1.1", "Host: h"), "GET /a//b/../%2e%2F%zz?q=a+b;c&u=http://x/?y h 0"},
		{"empty query", head("GET /x? HTTP/1.1", "Host: h"), "GET /x? h 0"},
		{"two slashes", head("GET //a HTTP/1.1", "Host: h"), "GET //a h 0"},
		{"absolute", head("GET http://real:8/p?q HTTP/1.1", "Host: other"), "GET /p?q real:8 0"},
		{"absolute, scheme in capitals", head("GET HTTPS://real/ HTTP/1.1", "Host: other"), "GET / real 0"},
		{"absolute, no path", head("GET http://real HTTP/1.1", "Host: real"), "GET / real 0"},
		{"absolute, no path but query", head("GET http://real?q HTTP/1.1", "Host: real"), "GET /?q real 0"},
		{"absolute OPTIONS", head("OPTIONS http://real HTTP/1.1", "Host: real"), "OPTIONS * real 0"},
		{"absolute OPTIONS with query", head("OPTIONS http://real?q HTTP/1.1", "Host: real"), "OPTIONS /?q real 0"},
		{"OPTIONS *", head("OPTIONS * HTTP/1.1", "Host: h"), "OPTIONS * h 0"},

		{"length", head("POST / HTTP/1.1", "Host: h", "Content-Length: 5"), "POST / h 5"},
		{"length 0", head("POST / HTTP/1.1", "Host: h", "CONTENT-LENGTH: 0"), "POST / h 0"},
		{"length with zeros", head("POST / HTTP/1.1", "Host: h", "Content-Length: 007"), "POST / h 7"},
		{"largest length", head("POST / HTTP/1.1", "Host: h", "Content-Length: 999999999999999999"), "POST / h 999999999999999999"},
		{"length of GET", head("GET / HTTP/1.1", "Host: h", "Content-Length: 51"), "GET / h 51"},
		{"chunked", head("POST / HTTP/1.1", "Host: h", "Transfer-Encoding: chunked"), "POST / h -1"},
		{"chunked in capitals", head("POST / HTTP/1.1", "Host: h", "transfer-encoding: \tCHUNKED "), "POST / h -1"},
		{"chunked GET", head("GET / HTTP/1.1", "Host: h", "Transfer-Encoding: chunked"), "GET / h -1"},

		{"HTTP/1.0", head("GET / HTTP/1.0"), "GET /  0 1.0 close"},
		{"HTTP/1.0 keep-alive", head("GET / HTTP/1.0", "Connection: Keep-Alive"), "GET /  0 1.0"},
		{"HTTP/1.0, close stands above keep-alive", head("GET / HTTP/1.0", "Connection: keep-alive, close"), "GET /  0 1.0 close"},
		{"the same on two lines", head("GET / HTTP/1.0", "Connection: close", "Connection: keep-alive"), "GET /  0 1.0 close"},
		{"HTTP/1.0 asks no 100", head("POST / HTTP/1.0", "Expect: 100-continue", "Content-Length: 1"), "POST /  1 1.0 close"},
		{"HTTP/1.0 changes no protocol", head("GET / HTTP/1.0", "Connection: upgrade", "Upgrade: websocket"), "GET /  0 1.0 close"},
		{"HTTP/1.0 absolute without host", head("GET http://real/x HTTP/1.0"), "GET /x real 0 1.0 close"},

		{"close", head("GET / HTTP/1.1", "Host: h", "Connection: x, CLOSE"), "GET / h 0 close"},
		{"keep-alive is the rule", head("GET / HTTP/1.1", "Host: h", "Connection: keep-alive"), "GET / h 0"},
		{"expect", head("POST / HTTP/1.1", "Host: h", "Expect: 100-Continue", "Content-Length: 1"), "POST / h 1 expect"},
		{"expect without body", head("POST / HTTP/1.1", "Host: h", "Expect: 100-continue"), "POST / h 0"},
		{"expect something else", head("POST / HTTP/1.1", "Host: h", "Expect: rain", "Content-Length: 1"), "POST / h 1"},
		{"trailers", head("GET / HTTP/1.1", "Host: h", "TE: gzip, Trailers", "Connection: TE"), "GET / h 0 trailers"},
		{"no trailers", head("GET / HTTP/1.1", "Host: h", "TE: gzip"), "GET / h 0"},

		{"upgrade", head("GET / HTTP/1.1", "Host: h", "connection: keep-alive, Upgrade", "upgrade: WebSocket"), "GET / h 0 upgrade=WebSocket"},
		{"upgrade not asked for", head("GET / HTTP/1.1", "Host: h", "Upgrade: websocket"), "GET / h 0"},
		{"upgrade to nothing", head("GET / HTTP/1.1", "Host: h", "Connection: upgrade"), "GET / h 0"},
		{"h2c", head("GET / HTTP/1.1", "Host: h", "Connection: Upgrade, HTTP2-Settings", "Upgrade: H2C", "HTTP2-Settings: AAMAAABkAAQAAP__"), "GET / h 0"},
		{"h2c in a list", head("GET / HTTP/1.1", "Host: h", "Connection: Upgrade", "Upgrade: websocket, h2c"), "GET / h 0"},
		{"h2c in quotes", head("GET / HTTP/1.1", "Host: h", "Connection: Upgrade", `Upgrade: "h2c"`), "GET / h 0"},
		{"h2c with a version", head("GET / HTTP/1.1", "Host: h", "Connection: Upgrade", "Upgrade: H2c/1"), "GET / h 0"},
		{"no protocol", head("GET / HTTP/1.1", "Host: h", "Connection: Upgrade", "Upgrade: a b"), "GET / h 0"},
		{"protocol with a version", head("GET / HTTP/1.1", "Host: h", "Connection: Upgrade", "Upgrade: ,IRC/6.9, x"), "GET / h 0 upgrade=,IRC/6.9, x"},
		{"h2c beside another", head("GET / HTTP/1.1", "Host: h", "Connection: Upgrade", "Upgrade: h2c", "Upgrade: websocket"), "GET / h 0 upgrade=websocket"},
		{"as many fields as may be", "GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("a: b\r\n", maxFields-1) + "\r\n", "GET / h 0"},
	}
}

func summary(q *Request) string {
	s := fmt.Sprintf("%s %s %s %d", q.Method, q.Target, q.Host, q.Length)
	if q.HTTP10 {
		s += " 1.0"
	}
	if q.Close {
		s += " close"
	}
	if q.Expect {
		s += " expect"
	}
	if q.Trailers {
		s += " trailers"
	}
	if q.Upgrade != nil {
		s += " upgrade=" + string(q.Upgrade)
	}
	return s
}

func TestRequestAccepted(t *testing.T) {
	var q Request // one for all: nothing of a head may last
	for _, c := range accepted() {
		t.Run(c[0], func(t *testing.T) {
			if n := headEnd([]byte(c[1]), 0); n != len(c[1]) {
				t.Fatalf("headEnd %d of %d", n, len(c[1]))
			}
			if err := q.parse([]byte(c[1])); err != nil {
				t.Fatal(err)
			}
			if got := summary(&q); got != c[2] {
				t.Errorf("read %q, want %q", got, c[2])
			}
		})
	}
}

type refusal struct {
	name, head string
	want       error
}

// refused are heads that another parser may take for something else.
func refused() []refusal {
	get := func(fields ...string) string {
		return head(append([]string{"GET / HTTP/1.1", "Host: h"}, fields...)...)
	}
	return []refusal{
		{"line ends without CR", "GET / HTTP/1.1\nHost: h\n\n", ErrMalformed},
		{"one line end without CR", "GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", ErrMalformed},
		{"request line without CR", "GET / HTTP/1.1\nHost: h\r\n\r\n", ErrMalformed},
		{"empty line without CR", "GET / HTTP/1.1\r\nHost: h\r\n\n", ErrMalformed},
		{"CR alone in a value", get("X: a\rb"), ErrMalformed},
		{"CR twice", get("X: a\r"), ErrMalformed},
		{"CR alone in a target", head("GET /\ra HTTP/1.1", "Host: h"), ErrMalformed},
		{"NUL in a value", get("X: a\x00b"), ErrMalformed},
		{"NUL in a name", get("X\x00: a"), ErrMalformed},
		{"DEL in a value", get("X: a\x7f"), ErrMalformed},
		{"folding", get("X: a", " b"), ErrMalformed},
		{"folding by tab", get("X: a", "\tb"), ErrMalformed},
		{"folding of the first line", head("GET / HTTP/1.1", " Host: h"), ErrMalformed},
		{"blank before colon", get("X : a"), ErrMalformed},
		{"tab before colon", get("X\t: a"), ErrMalformed},
		{"TE with blank before colon", get("Transfer-Encoding : chunked"), ErrMalformed},
		{"no colon", get("X"), ErrMalformed},
		{"no name", get(": a"), ErrMalformed},
		{"name with high byte", get("X\xe4: a"), ErrMalformed},
		{"name with blank", get("X Y: a"), ErrMalformed},
		{"more fields than may be", "GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("a: b\r\n", maxFields) + "\r\n", ErrTooLarge},

		{"no target", head("GET HTTP/1.1", "Host: h"), ErrMalformed},
		{"empty target", head("GET  HTTP/1.1", "Host: h"), ErrMalformed},
		{"two blanks before the target", head("GET  / HTTP/1.1", "Host: h"), ErrMalformed},
		{"two blanks before the version", head("GET /  HTTP/1.1", "Host: h"), ErrMalformed},
		{"blank behind the version", head("GET / HTTP/1.1 ", "Host: h"), ErrMalformed},
		{"blank first", head(" GET / HTTP/1.1", "Host: h"), ErrMalformed},
		{"blank in the target", head("GET /a b HTTP/1.1", "Host: h"), ErrMalformed},
		{"tabs between", head("GET\t/\tHTTP/1.1", "Host: h"), ErrMalformed},
		{"fragment", head("GET /a#b HTTP/1.1", "Host: h"), ErrMalformed},
		{"method with colon", head("GET: / HTTP/1.1", "Host: h"), ErrMalformed},
		{"no version", head("GET /", "Host: h"), ErrMalformed},
		{"version in lower case", head("GET / http/1.1", "Host: h"), ErrMalformed},
		{"another protocol", head("GET / RTSP/1.1", "Host: h"), ErrMalformed},
		{"long version", head("GET / HTTP/1.10", "Host: h"), ErrMalformed},
		{"HTTP/2.0", head("PRI * HTTP/2.0"), ErrVersion},
		{"HTTP/0.9", head("GET / HTTP/0.9", "Host: h"), ErrVersion},
		{"HTTP/1.2", head("GET / HTTP/1.2", "Host: h"), ErrVersion},
		{"HTTP/3.0", head("GET / HTTP/3.0", "Host: h"), ErrVersion},

		{"no host", head("GET / HTTP/1.1", "X: h"), ErrMalformed},
		{"no field at all", head("GET / HTTP/1.1"), ErrMalformed},
		{"empty host", head("GET / HTTP/1.1", "Host:"), ErrMalformed},
		{"host twice", get("Host: h"), ErrMalformed},
		{"host twice in HTTP/1.0", head("GET / HTTP/1.0", "Host: h", "Host: g"), ErrMalformed},
		{"host with path", head("GET / HTTP/1.1", "Host: h/x"), ErrMalformed},
		{"host with user", head("GET / HTTP/1.1", "Host: u@h"), ErrMalformed},
		{"host list", head("GET / HTTP/1.1", "Host: a, b"), ErrMalformed},
		{"absolute with user", head("GET http://u@h/ HTTP/1.1", "Host: h"), ErrMalformed},
		{"absolute without authority", head("GET http:///x HTTP/1.1", "Host: h"), ErrMalformed},
		{"absolute without anything", head("GET http:// HTTP/1.1", "Host: h"), ErrMalformed},
		{"absolute, bad host beside", head("GET http://h/ HTTP/1.1", "Host: a b"), ErrMalformed},
		{"absolute without host", head("GET http://h/ HTTP/1.1"), ErrMalformed},
		{"other scheme", head("GET ftp://h/ HTTP/1.1", "Host: h"), ErrMalformed},
		{"relative", head("GET x HTTP/1.1", "Host: h"), ErrMalformed},
		{"GET *", head("GET * HTTP/1.1", "Host: h"), ErrMalformed},
		{"CONNECT", head("CONNECT h:443 HTTP/1.1", "Host: h:443"), ErrMalformed},
		{"CONNECT, origin form", head("CONNECT /x HTTP/1.1", "Host: h"), ErrMalformed},
		{"CONNECT, absolute form", head("CONNECT http://h/ HTTP/1.1", "Host: h"), ErrMalformed},

		{"lengths that differ", get("Content-Length: 5", "Content-Length: 6"), ErrFraming},
		{"lengths that agree", get("Content-Length: 5", "Content-Length: 5"), ErrFraming},
		{"list of lengths", get("Content-Length: 5, 5"), ErrFraming},
		{"empty length", get("Content-Length:"), ErrFraming},
		{"length with sign", get("Content-Length: +5"), ErrFraming},
		{"negative length", get("Content-Length: -1"), ErrFraming},
		{"length in hex", get("Content-Length: 0x5"), ErrFraming},
		{"length with fraction", get("Content-Length: 5.0"), ErrFraming},
		{"length with blank", get("Content-Length: 1 0"), ErrFraming},
		{"length above 2^63", get("Content-Length: 9223372036854775813"), ErrFraming},
		{"length above 2^64", get("Content-Length: 18446744073709551621"), ErrFraming},
		{"length then coding", get("Content-Length: 6", "Transfer-Encoding: chunked"), ErrFraming},
		{"coding then length", get("Transfer-Encoding: chunked", "Content-Length: 6"), ErrFraming},
		{"a length by another name", get("Content_Length: 5"), ErrFraming},
		{"a length by another name, beside one", get("Content-Length: 5", "CONTENT_LENGTH: 50"), ErrFraming},
		{"chunked by another name", get("Transfer_Encoding: chunked"), ErrFraming},
		{"chunked twice", get("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), ErrFraming},
		{"chunked in HTTP/1.0", head("POST / HTTP/1.0", "Transfer-Encoding: chunked"), ErrMalformed},
		{"unknown coding", get("Transfer-Encoding: xchunked"), ErrCoding},
		{"unknown coding and length", get("Transfer-Encoding: xchunked", "Content-Length: 5"), ErrCoding},
		{"identity", get("Transfer-Encoding: identity"), ErrCoding},
		{"chunked, identity", get("Transfer-Encoding: chunked, identity"), ErrCoding},
		{"gzip, chunked", get("Transfer-Encoding: gzip, chunked"), ErrCoding},
		{"chunked, chunked", get("Transfer-Encoding: chunked, chunked"), ErrCoding},
		{"chunked with comma", get("Transfer-Encoding: chunked,"), ErrCoding},
		{"chunked with parameter", get("Transfer-Encoding: chunked;q=1"), ErrCoding},
		{"quoted chunked", get(`Transfer-Encoding: "chunked"`), ErrCoding},
		{"empty coding", get("Transfer-Encoding:"), ErrCoding},
		{"vertical tab before chunked", get("Transfer-Encoding: \x0bchunked"), ErrMalformed},
	}
}

func TestRequestRefused(t *testing.T) {
	var q Request
	for _, c := range refused() {
		t.Run(c.name, func(t *testing.T) {
			if n := headEnd([]byte(c.head), 0); n != len(c.head) {
				t.Fatalf("headEnd %d of %d", n, len(c.head))
			}
			if err := q.parse([]byte(c.head)); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
}

func TestRequestQuestions(t *testing.T) {
	var q Request
	if err := q.parse([]byte(head("HEAD /p/q?r HTTP/1.1", "Host: h", "X-Who: a", "x-who: b"))); err != nil {
		t.Fatal(err)
	}
	if !q.IsHead() || string(q.Path()) != "/p/q" {
		t.Errorf("IsHead %v, path %q", q.IsHead(), q.Path())
	}
	if bare := (Request{Target: []byte("/p")}); string(bare.Path()) != "/p" {
		t.Errorf("path of a target without query: %q", bare.Path())
	}
	for _, c := range []struct {
		name  string
		value string
		there bool
	}{{"x-who", "a", true}, {"X-WHO", "a", true}, {"x-wh", "", false}, {"x-whom", "", false}} {
		if v, ok := q.FieldFold(c.name); string(v) != c.value || ok != c.there {
			t.Errorf("FieldFold(%s) = %q, %v", c.name, v, ok)
		}
	}
	if v, ok := q.Field("x-who"); string(v) != "a" || !ok {
		t.Errorf("Field = %q, %v", v, ok)
	}
	if !q.HasFieldValue("x-who", "b") || q.HasFieldValue("x-who", "c") || q.HasFieldValue("host", "a") {
		t.Error("HasFieldValue does not look at every line of the name, or at others")
	}
}

func TestIdempotent(t *testing.T) {
	for method, want := range map[string]bool{
		"GET": true, "HEAD": true, "OPTIONS": true, "PUT": true, "DELETE": true, "TRACE": true,
		"POST": false, "PATCH": false, "CONNECT": false, "get": false, "LOCK": false,
	} {
		if q := (Request{Method: []byte(method)}); q.Idempotent() != want {
			t.Errorf("%s: %v", method, q.Idempotent())
		}
	}
}

// A request owns its bytes: what it was parsed from may be used again.
func TestRequestOwnsItsBytes(t *testing.T) {
	raw := []byte(head("GET /a HTTP/1.1", "Host: h", "X: y"))
	var q Request
	if err := q.parse(raw); err != nil {
		t.Fatal(err)
	}
	clear(raw)
	if got := summary(&q); got != "GET /a h 0" {
		t.Errorf("after the source was cleared: %q", got)
	}
}
