package wirecase

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
)

// The parsers judge others, so each thing they must not let pass has a row.
func TestRequestDefects(t *testing.T) {
	for _, tt := range []struct{ name, raw, want string }{
		{"plain", "GET /a HTTP/1.1\r\nHost: h\r\nX-A:b\r\nX-Empty:\r\n\r\n", ""},
		{"1.0 without Host", "GET /a HTTP/1.0\r\n\r\n", ""},
		{"chunked", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n", ""},
		{"bare LF", "GET /a HTTP/1.1\nHost: h\r\n\r\n", "line end"},
		{"bare LF at the end", "GET /a HTTP/1.1\r\nHost: h\r\n\n", "line end"},
		{"bare CR", "GET /a HTTP/1.1\r\nHost: h\r\nX-A: b\rc\r\n\r\n", "bare CR"},
		{"NUL", "GET /a HTTP/1.1\r\nHost: h\r\nX-A: b\x00c\r\n\r\n", "NUL"},
		{"folding", "GET /a HTTP/1.1\r\nHost: h\r\nX-A: b\r\n c: d\r\n\r\n", "folding"},
		{"blank before colon", "GET /a HTTP/1.1\r\nHost : h\r\n\r\n", "no token"},
		{"empty name", "GET /a HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n", "no token"},
		{"odd name", "GET /a HTTP/1.1\r\nHost: h\r\nX(A): b\r\n\r\n", "no token"},
		{"no colon", "GET /a HTTP/1.1\r\nHost: h\r\nX-A\r\n\r\n", "without a colon"},
		{"no Host", "GET /a HTTP/1.1\r\nX-A: b\r\n\r\n", "0 Host"},
		{"two Hosts", "GET /a HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", "2 Host"},
		{"two lengths", "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", "not one number"},
		{"list of lengths", "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0, 0\r\n\r\n", "not one number"},
		{"signed length", "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: +0\r\n\r\n", "not one number"},
		{"empty length", "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n", "not one number"},
		{"length and coding", "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", "beside"},
		{"two codings", "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "single chunked"},
		{"list of codings", "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "single chunked"},
		{"empty coding", "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n\r\n", "single chunked"},
		{"version", "GET /a HTTP/1.2\r\nHost: h\r\n\r\n", "version"},
		{"lower-case version", "GET /a http/1.1\r\nHost: h\r\n\r\n", "version"},
		{"no version", "GET /a\r\nHost: h\r\n\r\n", "request line"},
		{"two blanks", "GET  /a HTTP/1.1\r\nHost: h\r\n\r\n", "request line"},
		{"empty line before", "\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n", "empty line"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := readHead(bufio.NewReader(strings.NewReader(tt.raw)))
			if err != nil {
				t.Fatal(err)
			}
			m.asRequest()
			wantDefect(t, m.Defects, tt.want)
			if string(m.Raw) != tt.raw {
				t.Errorf("raw is %q", m.Raw)
			}
		})
	}
}

func TestResponseDefects(t *testing.T) {
	for _, tt := range []struct{ name, raw, method, want string }{
		{"plain", "HTTP/1.1 200 OK\r\n\r\n", "GET", ""},
		{"empty reason", "HTTP/1.1 200 \r\n\r\n", "GET", ""},
		{"length of a HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", ""},
		{"no blank after the status", "HTTP/1.1 200\r\n\r\n", "GET", "status line"},
		{"status of four digits", "HTTP/1.1 2000 OK\r\n\r\n", "GET", "status line"},
		{"signed status", "HTTP/1.1 +20 OK\r\n\r\n", "GET", "status line"},
		{"status out of range", "HTTP/1.1 600 OK\r\n\r\n", "GET", "status line"},
		{"version", "HTTP/2 200 OK\r\n\r\n", "GET", "status line"},
		{"length in a 204", "HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n", "GET", "in a 204"},
		{"coding in a 204", "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", "in a 204"},
		{"both", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", "beside"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := readHead(bufio.NewReader(strings.NewReader(tt.raw)))
			if err != nil {
				t.Fatal(err)
			}
			m.asResponse(tt.method)
			wantDefect(t, m.Defects, tt.want)
		})
	}
}

func TestBody(t *testing.T) {
	const hello = "5\r\nhello\r\n"
	for _, tt := range []struct {
		name string
		f    framing
		raw  string
		want string
		err  error
	}{
		{"counted", framing{counted, 5}, "hello", "hello", nil},
		{"counted, short", framing{counted, 6}, "hello", "hello", io.ErrUnexpectedEOF},
		{"until close", framing{kind: untilClose}, "hello", "hello", nil},
		{"chunked", framing{kind: chunked}, hello + "A;x=y\r\n0123456789\r\n0\r\n\r\n", "hello0123456789", nil},
		{"no last chunk", framing{kind: chunked}, hello, "hello", io.ErrUnexpectedEOF},
		{"no end after the last chunk", framing{kind: chunked}, hello + "0\r\n", "hello", io.ErrUnexpectedEOF},
		{"half a chunk", framing{kind: chunked}, "a\r\n123", "123", io.ErrUnexpectedEOF},
		{"too long a chunk", framing{kind: chunked}, "4\r\nhello\r\n0\r\n\r\n", "hell", errFraming},
		{"bare LF after the size", framing{kind: chunked}, "5\nhello\r\n0\r\n\r\n", "", errFraming},
		{"bare LF after the data", framing{kind: chunked}, "5\r\nhello\n0\r\n\r\n", "hello", errFraming},
		{"0x", framing{kind: chunked}, "0x5\r\nhello\r\n0\r\n\r\n", "", errFraming},
		{"blank after the size", framing{kind: chunked}, "5 \r\nhello\r\n0\r\n\r\n", "", errFraming},
		{"empty size", framing{kind: chunked}, "\r\nhello\r\n0\r\n\r\n", "", errFraming},
		{"size beyond 64 bits", framing{kind: chunked}, "10000000000000005\r\nhello\r\n0\r\n\r\n", "", errFraming},
		{"trailer that is none", framing{kind: chunked}, hello + "0\r\nno colon\r\n\r\n", "hello", errFraming},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []byte
			b := bodyReader{r: bufio.NewReader(strings.NewReader(tt.raw)), piece: func(p []byte) { got = append(got, p...) }}
			if err := b.read(tt.f); !errors.Is(err, tt.err) || string(got) != tt.want {
				t.Errorf("got %q, %v; want %q, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestTrailers(t *testing.T) {
	b := bodyReader{r: bufio.NewReader(strings.NewReader("0\r\nX-Sum: abc\r\nX-Late: 1\r\n\r\nnext")), piece: func([]byte) {}}
	if err := b.read(framing{kind: chunked}); err != nil {
		t.Fatal(err)
	}
	if got := lines(b.tail.Trailers, "x-sum"); len(got) != 1 || got[0] != "abc" || len(b.tail.Trailers) != 2 {
		t.Errorf("trailers are %v", b.tail.Trailers)
	}
	if rest, _ := io.ReadAll(b.r); string(rest) != "next" {
		t.Errorf("%q is left, want the next message", rest)
	}
}

func wantDefect(t *testing.T, defects []string, want string) {
	t.Helper()
	all := strings.Join(defects, "; ")
	if want == "" && all != "" || !strings.Contains(all, want) {
		t.Errorf("defects are %q, want %q", all, want)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nX: y\r\n\r\n")
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	f.Fuzz(func(t *testing.T, raw string) {
		for _, read := range []func(*Message) framing{(*Message).asRequest, func(m *Message) framing { return m.asResponse("GET") }} {
			r := bufio.NewReader(strings.NewReader(raw))
			m, err := readHead(r)
			if err != nil {
				continue
			}
			b := bodyReader{r: r, piece: m.take}
			m.end(&b, b.read(read(m)))
			if !strings.HasPrefix(raw, string(m.Raw)) || len(m.Raw)+len(m.Body) > len(raw) || m.Complete && m.Cut {
				t.Errorf("%q became head %q and body %q", raw, m.Raw, m.Body)
			}
		}
	})
}
