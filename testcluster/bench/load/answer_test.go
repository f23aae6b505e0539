package load

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// collect is a body that takes anything.
type collect struct{ got []byte }

func (c *collect) take(p []byte, _ int64) error { c.got = append(c.got, p...); return nil }
func (c *collect) end() error                   { return nil }

func TestAnswerThroughAnySplit(t *testing.T) {
	tests := []struct{ name, wire, body string }{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello"},
		{"empty", "HTTP/1.1 200 OK\r\nX: y\r\ncontent-length:0\r\n\r\n", ""},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n", "hello"},
		{"chunks with trailers", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n00A\r\n0123456789\r\n0\r\nA: b\r\nC: d\r\n\r\n", "0123456789"},
	}
	for _, tt := range tests {
		for cut := 1; cut < len(tt.wire); cut++ {
			var a answer
			var b collect
			first, err := a.feed([]byte(tt.wire[:cut]), &b, 0)
			if first || err != nil {
				t.Fatalf("%s cut at %d: first part: done %v, err %v", tt.name, cut, first, err)
			}
			done, err := a.feed([]byte(tt.wire[cut:]), &b, 0)
			if !done || err != nil || string(b.got) != tt.body {
				t.Errorf("%s cut at %d: done %v, err %v, body %q", tt.name, cut, done, err, b.got)
			}
		}
		feedOctets(t, tt.name, tt.wire, tt.body)
	}
}

func feedOctets(t *testing.T, name, wire, body string) {
	t.Helper()
	var a answer
	var b collect
	for i := range len(wire) {
		done, err := a.feed([]byte{wire[i]}, &b, 0)
		if err != nil || done != (i == len(wire)-1) {
			t.Fatalf("%s octet by octet: at %d done %v, err %v", name, i, done, err)
		}
	}
	if string(b.got) != body {
		t.Errorf("%s octet by octet: body %q, want %q", name, b.got, body)
	}
}

func TestWrongAnswersAreErrors(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	tests := map[string]string{
		"status":                     "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
		"version":                    "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
		"no framing":                 ok + "\r\nhello",
		"length twice":               ok + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
		"length and chunks":          ok + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
		"length not a number":        ok + "Content-Length: +5\r\n\r\nhello",
		"unknown coding":             ok + "Transfer-Encoding: gzip, chunked\r\n\r\n",
		"field without a colon":      ok + "oops\r\nContent-Length: 5\r\n\r\nhello",
		"surplus behind length":      ok + "Content-Length: 5\r\n\r\nhello!",
		"surplus behind chunks":      ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nx",
		"size missing":               ok + "Transfer-Encoding: chunked\r\n\r\n\r\n",
		"size not hex":               ok + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
		"size too long":              ok + "Transfer-Encoding: chunked\r\n\r\n1234567890\r\n",
		"chunk longer than its size": ok + "Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
		"no CR behind chunk":         ok + "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\n",
		"endless head":               ok + strings.Repeat("X: y\r\n", maxHead),
	}
	for name, wire := range tests {
		var a answer
		if done, err := a.feed([]byte(wire), &collect{}, 0); err == nil {
			t.Errorf("%s: taken for right (done %v)", name, done)
		}
	}
}

func TestExactBody(t *testing.T) {
	want := Pattern(1000)
	e := &exact{want: want}
	for range 2 { // it starts anew after the end
		if err := errors.Join(e.take(want[:400], 0), e.take(want[400:], 0), e.end()); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&exact{want: want}).take(want[1:], 0); err == nil {
		t.Error("a body without its first byte passes")
	}
	if err := (&exact{want: want[:10]}).take(want[:11], 0); err == nil {
		t.Error("a longer body passes")
	}
	if err := (&exact{want: want}).end(); err == nil {
		t.Error("a shorter body passes")
	}
}

func TestEvents(t *testing.T) {
	log := &eventLog{form: newEvent(100), recording: true}
	stream := func() *events { return &events{stream: 7, log: log} }
	event := func(due int64, id, number uint32) []byte {
		e := newEvent(100)
		fillEvent(e, due, id, number)
		return e
	}
	both := append(event(1000, 7, 0), event(2000, 7, 1)...)
	for cut := range len(both) {
		s := stream()
		if err := errors.Join(s.take(both[:cut], 3000), s.take(both[cut:], 3000)); err != nil || s.next != 2 || s.lastDue != 2000 {
			t.Fatalf("cut at %d: %v, next %d, last due %d", cut, err, s.next, s.lastDue)
		}
	}
	if max := log.delay.Max(); max != 2000 {
		t.Errorf("longest delay %v, want 2000 ns", max)
	}
	garbled := bytes.Replace(event(0, 7, 0), []byte("xxx"), []byte("xyx"), 1)
	notHex := bytes.Replace(event(0, 7, 0), []byte("00000007"), []byte("0000000g"), 1)
	for name, e := range map[string][]byte{
		"lost": event(0, 7, 1), "of another stream": event(0, 8, 0), "garbled": garbled, "not hex": notHex,
	} {
		if err := stream().take(e, 0); err == nil {
			t.Errorf("an event that is %s passes", name)
		}
	}
}
