package wire

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// relay is one between two scripts.
func relay(from, to *script, length int64) *Relay {
	stock := &Buffers{}
	a, b := newEnd(from, stock), newEnd(to, stock)
	return &Relay{From: &a, To: &b, Length: length, ReadIdle: time.Minute, WriteIdle: time.Minute, Sent: &atomic.Int64{}, Read: &atomic.Bool{}}
}

func TestRelayWholeBodies(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for _, c := range []struct {
		name   string
		length int64
		pieces []string
		want   []string // writes; one for each read
		left   string
	}{
		{"nothing", 0, []string{"next"}, nil, ""},
		{"length", 5, []string{"he", "llo", "next"}, []string{"he", "llo"}, ""},
		{"length, more behind", 5, []string{"he", "llonext"}, []string{"he", "llo"}, "next"},
		{"chunked", Chunked, []string{"5\r\nhello\r\n", "1\r", "\nx\r\n0\r\n\r\n"}, []string{"5\r\nhello\r\n", "1\r", "\nx\r\n0\r\n\r\n"}, ""},
		{"chunked, more behind", Chunked, []string{"0\r\n\r\nnext"}, []string{"0\r\n\r\n"}, "next"},
		{"chunked, end in two", Chunked, []string{"0\r\n\r", "\nnext"}, []string{"0\r\n\r", "\n"}, "next"},
		{"until close", UntilClose, []string{"a", "b"}, []string{"a", "b"}, ""},
		{"empty until close", UntilClose, nil, nil, ""},
		{"long", 200_000, []string{long}, []string{long[:largeBuffer], long[largeBuffer:]}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := scripted(c.pieces...), scripted()
			r := relay(from, to, c.length)
			if err := r.Run(nil); err != nil {
				t.Fatal(err)
			}
			if strings.Join(to.writes, "|") != strings.Join(c.want, "|") {
				t.Errorf("writes %.200q, want %.200q", to.writes, c.want)
			}
			if got := string(r.From.Buffered()); got != c.left {
				t.Errorf("left over: %q, want %q", got, c.left)
			}
			if n := int64(len(strings.Join(c.want, ""))); r.Sent.Load() != n {
				t.Errorf("counted %d bytes of %d", r.Sent.Load(), n)
			}
			if whole := c.length > 0 || c.length == Chunked; r.Read.Load() != whole {
				t.Errorf("read to its end: %v", r.Read.Load())
			}
		})
	}
}

// The head goes out with what of the body has come, in one write where both
// are small, and without waiting for any.
func TestRelayHead(t *testing.T) {
	big := strings.Repeat("x", smallBuffer)
	for _, c := range []struct {
		name     string
		length   int64
		plain    bool
		buffered string
		pieces   []string
		want     []string
	}{
		{"no body", 0, false, "", nil, []string{"HEAD"}},
		{"no body, next behind", 0, false, "next", nil, []string{"HEAD"}},
		{"body with it", 5, false, "hello", nil, []string{"HEADhello"}},
		{"part with it", 5, false, "he", []string{"llo"}, []string{"HEADhe", "llo"}},
		{"body later", 5, false, "", []string{"hello"}, []string{"HEAD", "hello"}},
		{"more than the body", 2, false, "hello", nil, []string{"HEADhe"}},
		{"too large to copy", smallBuffer, false, big, nil, []string{"HEAD", big}},
		{"chunks with it", Chunked, false, "1\r\nx\r\n", []string{"0\r\n\r\n"}, []string{"HEAD1\r\nx\r\n", "0\r\n\r\n"}},
		{"trailers with it", Chunked, false, "1\r\nx\r\n0\r\nA: b\r\n\r\n", nil, []string{"HEAD1\r\nx\r\n0\r\n", "A: b\r\n\r\n"}},
		{"plain", Chunked, true, "1\r\nx\r\n2\r\nyz\r\n0\r\n\r\n", nil, []string{"HEAD", "x", "yz"}},
		{"until close", UntilClose, false, "a", []string{"b"}, []string{"HEADa", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := scripted()
			r := relay(scripted(c.pieces...), to, c.length)
			r.Plain = c.plain
			r.From.Reserve(max(len(c.buffered), 1))
			r.From.w = copy(r.From.buf, c.buffered)
			if err := r.Run([]byte("HEAD")); err != nil {
				t.Fatal(err)
			}
			if strings.Join(to.writes, "|") != strings.Join(c.want, "|") {
				t.Errorf("writes %.200q, want %.200q", to.writes, c.want)
			}
		})
	}
}

// A body that breaks off is an error, and nothing is made up behind it.
func TestRelayBrokenBodies(t *testing.T) {
	gone := errors.New("gone")
	for _, c := range []struct {
		name   string
		length int64
		plain  bool
		pieces []string
		end    error
		want   string // all that goes out
		cause  error
	}{
		{"length", 10, false, []string{"hello"}, io.EOF, "hello", io.ErrUnexpectedEOF},
		{"nothing of it", 10, false, nil, io.EOF, "", io.ErrUnexpectedEOF},
		{"reset", 10, false, []string{"hello"}, gone, "hello", gone},
		{"until close, reset", UntilClose, false, []string{"hello"}, gone, "hello", gone},
		{"no last chunk", Chunked, false, []string{"5\r\nhello\r\n"}, io.EOF, "5\r\nhello\r\n", io.ErrUnexpectedEOF},
		{"half a chunk", Chunked, false, []string{"a\r\n123"}, io.EOF, "a\r\n123", io.ErrUnexpectedEOF},
		{"half an end", Chunked, false, []string{"0\r\n"}, io.EOF, "0\r\n", io.ErrUnexpectedEOF},
		{"half a trailer", Chunked, false, []string{"0\r\nA: b\r\n"}, io.EOF, "0\r\n", io.ErrUnexpectedEOF},
		{"bad size", Chunked, false, []string{"1\r\nx\r\nzz\r\n0\r\n\r\n"}, io.EOF, "1\r\nx\r\n", ErrChunk},
		{"wrapping size", Chunked, false, []string{"10000000000000005\r\nhello\r\n0\r\n\r\n"}, io.EOF, "100000000000000", ErrChunk},
		{"bad trailer", Chunked, false, []string{"0\r\nA : b\r\n\r\n"}, io.EOF, "0\r\n", ErrChunk},
		{"plain", Chunked, true, []string{"5\r\nhel"}, io.EOF, "hel", io.ErrUnexpectedEOF},
		{"plain, bad", Chunked, true, []string{"1\r\nxzz"}, io.EOF, "x", ErrChunk},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := scripted(c.pieces...), scripted()
			from.end = c.end
			r := relay(from, to, c.length)
			r.Plain = c.plain
			err := r.Run(nil)
			var source *SourceError
			if !errors.As(err, &source) || !errors.Is(err, c.cause) || !strings.Contains(err.Error(), "read body") {
				t.Errorf("error %v, want that of a source: %v", err, c.cause)
			}
			if got := strings.Join(to.writes, ""); got != c.want {
				t.Errorf("sent %q, want %q", got, c.want)
			}
			if r.Read.Load() {
				t.Error("said to be read to its end")
			}
		})
	}
}

func TestRelayBrokenReceiver(t *testing.T) {
	gone := errors.New("gone")
	for name, run := range map[string]func(*Relay) error{
		"body": func(r *Relay) error { return r.Run(nil) }, "head": func(r *Relay) error { return r.Run([]byte("HEAD")) },
		"plain": func(r *Relay) error { r.Length, r.Plain = Chunked, true; return r.Run(nil) },
	} {
		to := scripted()
		to.broken = gone
		err := run(relay(scripted("5\r\nhello\r\n"), to, 10))
		var sink *SinkError
		if !errors.As(err, &sink) || !errors.Is(err, gone) || !strings.Contains(err.Error(), "send body") {
			t.Errorf("%s: error %v, want that of a sink", name, err)
		}
	}
}

// The end of a body that is too long never goes out: the receiver would take
// it for a whole one.
func TestRelayLimit(t *testing.T) {
	const limit = 8
	for _, c := range []struct {
		name   string
		length int64
		body   string
		fits   bool
	}{
		{"length at the limit", 8, "12345678", true},
		{"length above", 9, "123456789", false},
		{"chunked at the limit", Chunked, "5\r\n12345\r\n3\r\n678\r\n0\r\n\r\n", true},
		{"chunked above", Chunked, "5\r\n12345\r\n4\r\n6789\r\n0\r\n\r\n", false},
		{"chunked above, one chunk", Chunked, "9\r\n123456789\r\n0\r\n\r\n", false},
		{"until close above", UntilClose, "123456789", false},
	} {
		for size := 1; size <= len(c.body); size++ {
			var pieces []string
			for p := c.body; len(p) > 0; p = p[min(size, len(p)):] {
				pieces = append(pieces, p[:min(size, len(p))])
			}
			to := scripted()
			r := relay(scripted(pieces...), to, c.length)
			r.Limit = limit
			err := r.Run(nil)
			sent := strings.Join(to.writes, "")
			whole := len(sent) >= len(c.body)
			if _, err := unchunk(sent, len(sent)+1); c.length == Chunked {
				whole = err == nil
			}
			if c.fits && (err != nil || sent != c.body) || !c.fits && (!errors.Is(err, ErrBodyTooLarge) || whole) {
				t.Errorf("%s in pieces of %d: %v, sent %q", c.name, size, err, sent)
			}
		}
	}
}

// Trailers go on, less those that say how a message goes; however they come.
func TestRelayTrailers(t *testing.T) {
	const body = "1\r\nx\r\n0\r\nX-Sum: abc\r\nContent-Length: 5\r\nTransfer-Encoding: gzip\r\nHost: evil\r\nConnection: close\r\nx-late:1\r\n\r\n"
	const want = "1\r\nx\r\n0\r\nX-Sum: abc\r\nx-late:1\r\n\r\n"
	for size := 1; size <= len(body); size++ {
		var pieces []string
		for p := body; len(p) > 0; p = p[min(size, len(p)):] {
			pieces = append(pieces, p[:min(size, len(p))])
		}
		to := scripted()
		r := relay(scripted(pieces...), to, Chunked)
		if err := r.Run(nil); err != nil || strings.Join(to.writes, "") != want || !r.Read.Load() {
			t.Fatalf("in pieces of %d: %v, read %v, sent\n%q\nwant\n%q", size, err, r.Read.Load(), strings.Join(to.writes, ""), want)
		}
	}
}

// Take is for the first write; Run carries what is left.
func TestRelayTake(t *testing.T) {
	for _, c := range []struct {
		name     string
		length   int64
		buffered string
		want     string
		ended    bool
		left     string
		err      error
	}{
		{"none", 0, "next", "", true, "next", nil},
		{"all", 5, "hellonext", "hello", true, "next", nil},
		{"part", 5, "he", "he", false, "", nil},
		{"chunks", Chunked, "1\r\nx\r\n", "1\r\nx\r\n", false, "", nil},
		{"all chunks", Chunked, "1\r\nx\r\n0\r\n\r\nnext", "1\r\nx\r\n0\r\n\r\n", true, "next", nil},
		{"all with trailers", Chunked, "0\r\nA: b\r\nHost: c\r\n\r\nnext", "0\r\nA: b\r\n\r\n", true, "next", nil},
		{"bad chunks", Chunked, "1\r\nxx", "1\r\nx", false, "x", ErrChunk},
		{"too long", 10, "0123456789", "", false, "0123456789", ErrBodyTooLarge},
	} {
		r := relay(scripted(), scripted(), c.length)
		r.Limit = 9
		r.From.Reserve(1)
		r.From.w = copy(r.From.buf, c.buffered)
		got, err := r.Take([]byte(">"))
		if string(got) != ">"+c.want || r.Ended() != c.ended || !errors.Is(err, c.err) || string(r.From.Buffered()) != c.left {
			t.Errorf("%s: took %q, ended %v, left %q, %v", c.name, got, r.Ended(), r.From.Buffered(), err)
		}
		if r.Read.Load() != c.ended {
			t.Errorf("%s: read to its end: %v", c.name, r.Read.Load())
		}
	}
}

// A body on its way holds a buffer that fits it, and no other when it is done.
func TestRelayBuffers(t *testing.T) {
	for _, c := range []struct {
		length int64
		want   int
	}{{10, smallBuffer}, {smallBuffer + 1, bodyBuffer}, {bodyBuffer + 1, largeBuffer}, {1 << 40, largeBuffer}, {Chunked, smallBuffer}, {UntilClose, smallBuffer}} {
		r := relay(scripted("1"), scripted(), c.length)
		_ = r.Run(nil) // breaks off after the one byte
		if got := len(r.From.buf); got != c.want {
			t.Errorf("a body of %d is read into %d bytes, want %d", c.length, got, c.want)
		}
	}
	r := relay(scripted(strings.Repeat("x", 100_000)), scripted(), UntilClose)
	if err := r.Run(nil); err != nil || len(r.From.buf) != bodyBuffer {
		t.Errorf("a busy stream is read into %d bytes, want %d (%v)", len(r.From.buf), bodyBuffer, err)
	}
}
