package proxy

import (
	"encoding/hex"
	"regexp"
	"testing"
)

func TestParseTraceparent(t *testing.T) {
	const ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
	tests := []struct{ name, value, continued string }{
		{"sampled", "00-" + ids + "-01", "00-" + ids + "-01"},
		{"not sampled", "00-" + ids + "-00", "00-" + ids + "-00"},
		{"random", "00-" + ids + "-03", "00-" + ids + "-03"},
		{"unknown flags", "00-" + ids + "-fd", "00-" + ids + "-01"},
		{"a later version", "01-" + ids + "-03", "00-" + ids + "-01"},
		{"a later version with more", "cc-" + ids + "-01-what-the-future-is", "00-" + ids + "-01"},
		{"a later version with a dash", "cc-" + ids + "-01-", "00-" + ids + "-01"},
		{"a later version glued", "cc-" + ids + "-01.what", ""},
		{"a later version, short", "cc-" + ids + "-0", ""},
		{"version ff", "ff-" + ids + "-01", ""},
		{"version 00 with more", "00-" + ids + "-01-x", ""},
		{"version 00 with a dash", "00-" + ids + "-01-", ""},
		{"version of one digit", "0-" + ids + "-01-", ""},
		{"version no number", "0g-" + ids + "-01", ""},
		{"version in capitals", "0A-" + ids + "-01", ""},
		{"no trace", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", ""},
		{"no span", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", ""},
		{"trace in capitals", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", ""},
		{"one capital", "00-4bf92f3577b34da6a3ce929d0e0e473F-00f067aa0ba902b7-01", ""},
		{"trace no number", "00-4bf92f3577b34da6a3ce929d0e0e473.-00f067aa0ba902b7-01", ""},
		{"span no number", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902 7-01", ""},
		{"flags no number", "00-" + ids + "-0x", ""},
		{"flags of one digit", "00-" + ids + "-1", ""},
		{"other dashes", "00_" + ids + "-01", ""},
		{"blank before", " 00-" + ids + "-01", ""},
		{"blank behind", "00-" + ids + "-01 ", ""},
		{"two in one", "00-" + ids + "-01,00-" + ids + "-01", ""},
		{"nothing", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, ok := parseTraceparent([]byte(tt.value))
			if ok != (tt.continued != "") || !ok && c != (traceContext{}) {
				t.Fatalf("got %+v, %v", c, ok)
			}
			if got := string(appendTraceparent(nil, c)); ok && got != tt.continued {
				t.Fatalf("got %s, want %s", got, tt.continued)
			}
			if ok && c.sampled() != (c.flags&1 == 1) {
				t.Errorf("sampled: %v", c.sampled())
			}
		})
	}
}

func TestNextSpan(t *testing.T) {
	c, ok := parseTraceparent([]byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
	n := c.next()
	if !ok || n.trace != c.trace || n.flags != c.flags || n.span == c.span || n.span == [8]byte{} || c.next().span == n.span {
		t.Errorf("%+v followed by %+v", c, n)
	}
}

func TestNewTrace(t *testing.T) {
	form := regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$`)
	seen := map[string]bool{}
	for i := range 100 {
		c := newTrace(i%2 == 0)
		value := string(appendTraceparent(nil, c))
		if back, ok := parseTraceparent([]byte(value)); !ok || back != c || !form.MatchString(value) || c.sampled() != (i%2 == 0) {
			t.Fatalf("%s reads as %+v, %v", value, back, ok)
		}
		seen[hex.EncodeToString(c.trace[:])] = true
	}
	if len(seen) != 100 {
		t.Errorf("%d different traces of 100", len(seen))
	}
}

func TestTraceparentDoesNotAllocate(t *testing.T) {
	value := []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	out := make([]byte, 0, traceparentSize)
	if n := testing.AllocsPerRun(100, func() {
		c, _ := parseTraceparent(value)
		appendTraceparent(out, c.next())
		newTrace(true)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseTraceparent(f *testing.F) {
	f.Add([]byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
	f.Add([]byte("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff-x"))
	f.Add([]byte("00-00000000000000000000000000000000-0000000000000000-00"))
	form := regexp.MustCompile(`^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|([1-9a-e][0-9a-f]|0[1-9a-f]|f[0-9a-e])-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?s:-.*)?)$`)
	zero := regexp.MustCompile(`^..-(0{32}-|.{32}-0{16}-)`)
	f.Fuzz(func(t *testing.T, p []byte) {
		c, ok := parseTraceparent(p)
		if want := form.Match(p) && !zero.Match(p); ok != want {
			t.Fatalf("%q: taken %v, want %v", p, ok, want)
		}
		if !ok {
			return
		}
		out := appendTraceparent(nil, c)
		if string(out[:53]) != "00"+string(p[2:53]) {
			t.Fatalf("%q became %q", p, out)
		}
	})
}
