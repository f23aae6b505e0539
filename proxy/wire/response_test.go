package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// answers are response heads that are taken, and what is read from them; those
// whose name begins with HEAD answer one.
func answers() [][3]string {
	return [][3]string{
		{"length", head("HTTP/1.1 200 OK", "Content-Length: 5"), "200 5"},
		{"length 0", head("HTTP/1.1 200 OK", "Content-Length: 0"), "200 0"},
		{"chunked", head("HTTP/1.1 200 OK", "Transfer-Encoding: Chunked"), "200 -1"},
		{"neither", head("HTTP/1.1 200 OK"), "200 -2 close"},
		{"empty reason", head("HTTP/1.1 200 ", "Content-Length: 5"), "200 5"},
		{"no blank before the empty reason", head("HTTP/1.1 200", "Content-Length: 5"), "200 5"},
		{"reason of high bytes", head("HTTP/1.1 404 \xe4\tnix da", "Content-Length: 5"), "404 5"},
		{"close", head("HTTP/1.1 200 OK", "Content-Length: 5", "Connection: x, Close"), "200 5 close"},
		{"unknown status", head("HTTP/1.1 999 x", "Content-Length: 5"), "999 5"},

		{"HTTP/1.0", head("HTTP/1.0 200 OK", "Content-Length: 5"), "200 5 close"},
		{"HTTP/1.0 keep-alive", head("HTTP/1.0 200 OK", "Content-Length: 5", "Connection: keep-alive"), "200 5"},
		{"HTTP/1.0 keep-alive without length", head("HTTP/1.0 200 OK", "Connection: keep-alive"), "200 -2 close"},
		{"HTTP/1.0, close above keep-alive", head("HTTP/1.0 200 OK", "Content-Length: 5", "Connection: close", "Connection: keep-alive"), "200 5 close"},

		{"both framings", head("HTTP/1.1 200 OK", "Content-Length: 5", "Transfer-Encoding: chunked"), "200 -1 close tainted"},
		{"both, the other way", head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "Content-Length: 5"), "200 -1 close tainted"},
		{"204", head("HTTP/1.1 204 No Content"), "204 0"},
		{"204 with length", head("HTTP/1.1 204 No Content", "Content-Length: 5"), "204 0"},
		{"204 chunked", head("HTTP/1.1 204 No Content", "Transfer-Encoding: chunked"), "204 0"},
		{"304", head("HTTP/1.1 304 Not Modified"), "304 0"},
		{"304 with length", head("HTTP/1.1 304 Not Modified", "Content-Length: 500"), "304 0"},
		{"304 that closes", head("HTTP/1.1 304 Not Modified", "Connection: close"), "304 0 close"},
		{"HEAD", head("HTTP/1.1 200 OK"), "200 0"},
		{"HEAD with length", head("HTTP/1.1 200 OK", "Content-Length: 12345"), "200 0"},
		{"HEAD chunked", head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked"), "200 0"},
		{"HEAD both framings", head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "Content-Length: 5"), "200 0 close tainted"},
		{"100", head("HTTP/1.1 100 Continue"), "100 0 interim"},
		{"102 with length", head("HTTP/1.1 102 Processing", "Content-Length: 5"), "102 0 interim"},
		{"103", head("HTTP/1.1 103 Early Hints", "Link: </a.css>; rel=preload"), "103 0 interim"},
		{"101", head("HTTP/1.1 101 Switching Protocols", "Connection: upgrade", "Upgrade: websocket"), "101 0"},
	}
}

func TestResponseAccepted(t *testing.T) {
	var p Response // one for all: nothing of a head may last
	for _, c := range answers() {
		t.Run(c[0], func(t *testing.T) {
			if err := p.parse([]byte(c[1]), strings.HasPrefix(c[0], "HEAD")); err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%d %d", p.Status, p.Length)
			for _, is := range []struct {
				word string
				is   bool
			}{{" close", p.Close}, {" tainted", p.tainted}, {" interim", p.Interim()}} {
				if is.is {
					got += is.word
				}
			}
			if got != c[2] {
				t.Errorf("read %q, want %q", got, c[2])
			}
		})
	}
}

func badAnswers() []refusal {
	ok := func(fields ...string) string { return head(append([]string{"HTTP/1.1 200 OK"}, fields...)...) }
	return []refusal{
		{"no version", head("200 OK"), ErrMalformed},
		{"version alone", head("HTTP/1.1"), ErrMalformed},
		{"version and blank", head("HTTP/1.1      "), ErrMalformed},
		{"HTTP/2", head("HTTP/2 200 OK"), ErrVersion},
		{"HTTP/2.0", head("HTTP/2.0 200 OK"), ErrVersion},
		{"HTTP/1.2", head("HTTP/1.2 200 OK"), ErrVersion},
		{"lower case", head("http/1.1 200 OK"), ErrVersion},
		{"another protocol", head("ICY/1.0 200 OK"), ErrVersion},
		{"two blanks", head("HTTP/1.1  200 OK"), ErrMalformed},
		{"tab", head("HTTP/1.1\t200 OK"), ErrVersion},
		{"two digits", head("HTTP/1.1 20 OK"), ErrMalformed},
		{"four digits", head("HTTP/1.1 2000 OK"), ErrMalformed},
		{"letters", head("HTTP/1.1 2x0 OK"), ErrMalformed},
		{"sign", head("HTTP/1.1 +20 OK"), ErrMalformed},
		{"below 100", head("HTTP/1.1 099 OK"), ErrMalformed},
		{"no blank behind the status", head("HTTP/1.1 200-OK"), ErrMalformed},
		{"CR in the reason", head("HTTP/1.1 200 O\rK"), ErrMalformed},
		{"NUL in the reason", head("HTTP/1.1 200 O\x00K"), ErrMalformed},
		{"line end without CR", "HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\n", ErrMalformed},
		{"a line without CR", "HTTP/1.1 200 OK\r\nX: y\nContent-Length: 5\r\n\r\n", ErrMalformed},
		{"empty line first", "\r\nHTTP/1.1 200 OK\r\n\r\n", ErrMalformed},
		{"folding", ok("X: a", " b"), ErrMalformed},
		{"blank before colon", ok("X : a"), ErrMalformed},
		{"no colon", ok("X"), ErrMalformed},
		{"CR alone in a value", ok("X: a\rb"), ErrMalformed},

		// Both parsers refuse these; which of them speaks first does not matter.
		{"lengths that differ", ok("Content-Length: 5", "Content-Length: 6"), nil},
		{"two lengths and a coding", ok("Content-Length: 5", "Content-Length: 6", "Transfer-Encoding: chunked"), nil},
		{"length with sign", ok("Content-Length: +5"), nil},
		{"length above 2^64", ok("Content-Length: 18446744073709551621"), nil},
		{"bad length to HEAD", ok("Content-Length: x"), nil},
		{"unknown coding", ok("Transfer-Encoding: gzip"), nil},
		{"gzip, chunked", ok("Transfer-Encoding: gzip, chunked"), nil},
		{"chunked twice", ok("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), nil},
		{"chunked in HTTP/1.0", head("HTTP/1.0 200 OK", "Transfer-Encoding: chunked"), ErrFraming},
	}
}

func TestResponseRefused(t *testing.T) {
	var p Response
	for _, c := range badAnswers() {
		t.Run(c.name, func(t *testing.T) {
			err := p.parse([]byte(c.head), false)
			if c.want == nil && (errors.Is(err, ErrMalformed) || errors.Is(err, ErrFraming) || errors.Is(err, ErrCoding)) {
				return
			}
			if c.want == nil || !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
}

func TestResponseField(t *testing.T) {
	var p Response
	if err := p.parse([]byte(head("HTTP/1.1 200 OK", "RETRY-AFTER: 7", "Content-Length: 0")), false); err != nil {
		t.Fatal(err)
	}
	if v, ok := p.Field("retry-after"); string(v) != "7" || !ok {
		t.Errorf("Field = %q, %v", v, ok)
	}
	if _, ok := p.Field("x"); ok {
		t.Error("a field that is not there")
	}
}
