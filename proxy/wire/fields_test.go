package wire

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestHeadEnd(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int
	}{
		{"", 0}, {"\r", 0}, {"\r\n", 0}, {"a\r\n", 0}, {"a\r\n\r", 0},
		{"a\r\n\r\n", 5}, {"a\r\n\r\nb", 5}, {"a\r\nb\r\n\r\n", 8},
		{"a\n\n", 3}, {"a\r\n\n", 4}, {"a\n\r\n", 4}, // ends, for the parser to refuse
		{"a\r\n\rb\r\n", 0}, {"a\r\r\n", 0}, {"\r\n\r\n", 4}, {"\n\n", 2},
	} {
		if got := headEnd([]byte(c.in), 0); got != c.want {
			t.Errorf("headEnd(%q) = %d, want %d", c.in, got, c.want)
		}
	}
}

// However the bytes of a head come in, its end is found once it is there, and
// not before.
func TestHeadEndInPieces(t *testing.T) {
	for _, h := range []string{"a\r\nb: c\r\n\r\nrest", "a\nb\n\nrest", "a\r\n\nrest", "a\n\r\nrest", "a\r\n\rx\r\n\r\nrest"} {
		end := headEnd([]byte(h), 0)
		for from := 0; from < end; from++ {
			for to := from; to <= len(h); to++ {
				want := 0
				if to >= end {
					want = end
				}
				if got := headEnd([]byte(h[:to]), from); got != want {
					t.Fatalf("headEnd(%q, %d) = %d, want %d", h[:to], from, got, want)
				}
			}
		}
	}
}

func TestParseLength(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "5": 5, "0005": 5, "999999999999999999": 999999999999999999,
		"": -1, "-1": -1, "+1": -1, " 1": -1, "1 ": -1, "0x1": -1, "1e3": -1, "1,1": -1, "\xb2": -1,
		"9999999999999999999": -1, "18446744073709551621": -1, "0000000000000000000": -1,
	} {
		n, ok := parseLength([]byte(in))
		if ok != (want >= 0) || ok && n != want {
			t.Errorf("parseLength(%q) = %d, %v", in, n, ok)
		}
	}
}

func TestLists(t *testing.T) {
	for _, c := range []struct {
		list, element string
		want          bool
	}{
		{"close", "close", true}, {"CLOSE", "close", true}, {" close\t", "close", true}, {"a,close", "close", true},
		{"a, close ,b", "close", true}, {"a,,close", "close", true}, {"close,", "close", true},
		{"", "close", false}, {",", "close", false}, {"closed", "close", false}, {"clos", "close", false},
		{"x-close", "close", false}, {"close;q=1", "close", false}, {"a close", "close", false}, {`"close"`, "close", false},
	} {
		if got := has([]byte(c.list), c.element); got != c.want {
			t.Errorf("has(%q, %q) = %v", c.list, c.element, got)
		}
		if got := names([]byte(c.list), []byte(strings.ToUpper(c.element))); got != c.want {
			t.Errorf("names(%q, %q) = %v", c.list, c.element, got)
		}
	}
}

// The bit sets say what RFC 9110 section 5.6.2 and 5.5 list.
func TestBytes(t *testing.T) {
	const tokens = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for i := range 256 {
		b := byte(i)
		if got, want := isTokenByte(b), strings.IndexByte(tokens, b) >= 0; got != want {
			t.Errorf("isTokenByte(%q) = %v", b, got)
		}
		if got, want := isValueByte(b), b == '\t' || b >= 0x20 && b != 0x7f; got != want {
			t.Errorf("isValueByte(%q) = %v", b, got)
		}
		if got, want := lower(b), bytes.ToLower([]byte{b})[0]; b < 0x80 && got != want || b >= 0x80 && got != b {
			t.Errorf("lower(%q) = %q", b, got)
		}
		d, ok := hexDigit(b)
		if want := strings.IndexByte("0123456789abcdef", lower(b)); ok != (want >= 0) || ok && int(d) != want {
			t.Errorf("hexDigit(%q) = %d, %v", b, d, ok)
		}
	}
	for name, want := range map[string]bool{"X-Request-ID": true, "": false, "a b": false, "a:": false, "\xe4": false} {
		if ValidFieldName(name) != want {
			t.Errorf("ValidFieldName(%q) = %v", name, !want)
		}
	}
}

// kindOf is a switch over lengths: every name that a proxy acts on is found, in
// any case, and nothing like it.
func TestKindOf(t *testing.T) {
	kinds := map[string]kind{
		"te": te, "host": host, "date": date, "expect": expect, "upgrade": upgrade, "connection": connection,
		"keep-alive": hopByHop, "proxy-connection": hopByHop, "content-length": contentLength, "transfer-encoding": transferEncoding,
		"x-forwarded-for": forwardedFor, "x-forwarded-host": forwardedHost, "x-forwarded-proto": forwardedProto,
		"x-forwarded-port": forwardedElse, "x-forwarded-anything": forwardedElse, "forwarded": forwardedElse, "x-real-ip": forwardedElse,
		"client-ip": forwardedElse, "x-client-ip": forwardedElse, "true-client-ip": forwardedElse, "x-cluster-client-ip": forwardedElse,
		"front-end-https": forwardedElse,
	}
	for name, want := range kinds {
		mixed := []byte(name)
		for i := range mixed {
			if rand.IntN(2) == 0 {
				mixed[i] = bytes.ToUpper(mixed[i : i+1])[0]
			}
		}
		for _, n := range [][]byte{[]byte(name), bytes.ToUpper(mixed), mixed} {
			if got := kindOf(n); got != want {
				t.Errorf("kindOf(%s) = %d, want %d", n, got, want)
			}
		}
		for i := range name {
			other := []byte(name)
			other[i] = 'q'
			want := plain
			if bytes.HasPrefix(other, []byte(forwardedPrefix)) {
				want = forwardedElse // whatever else it is
			}
			if got := kindOf(other); got != want {
				t.Errorf("kindOf(%s) = %d, want %d", other, got, want)
			}
		}
	}
	for _, name := range []string{"", "a", "cookie", "trailer", "via", "content-lengt", "content-length-", "content_length", "x-forwarded", "x-forwarded-", "x_forwarded_for"} {
		if got := kindOf([]byte(name)); got != plain {
			t.Errorf("kindOf(%s) = %d", name, got)
		}
	}
}

func TestBuffers(t *testing.T) {
	var stock Buffers
	for _, c := range []struct{ ask, got int }{
		{1, smallBuffer}, {smallBuffer, smallBuffer}, {smallBuffer + 1, bodyBuffer}, {bodyBuffer, bodyBuffer},
		{bodyBuffer + 1, largeBuffer}, {largeBuffer, largeBuffer}, {largeBuffer + 1, largeBuffer + 1},
	} {
		b := stock.take(c.ask)
		if len(b) != c.got {
			t.Errorf("take(%d) gave %d bytes, want %d", c.ask, len(b), c.got)
		}
		stock.give(b)
	}
	stock.give(make([]byte, 7)) // of no shelf's size: must never come out
	if got := len(stock.take(1)); got != smallBuffer {
		t.Errorf("an odd buffer of %d bytes came off the shelf", got)
	}
}

func TestDescriptorLimit(t *testing.T) {
	if n := DescriptorLimit(); n < 16 || n > 1<<30 {
		t.Errorf("%d descriptors", n)
	}
}
