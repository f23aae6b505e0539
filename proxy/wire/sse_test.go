package wire

import (
	"bytes"
	"strings"
	"testing"
)

func TestEvents(t *testing.T) {
	tests := []struct {
		name             string
		stream           string
		events, comments int64
	}{
		{"nothing", "", 0, 0},
		{"one", "data: a\n\n", 1, 0},
		{"one by CR", "data: a\r\r", 1, 0},
		{"one by CRLF", "data: a\r\n\r\n", 1, 0},
		{"ends mixed", "data: a\r\n\ndata: b\r\n\rdata: c\n\r\n", 3, 0},
		{"CRLF is one end", "data: a\r\ndata: b\r\n\r\n", 1, 0},
		{"LF CR are two", "data: a\n\r", 1, 0},
		{"two lines of data", "data: a\ndata: b\n\n", 1, 0},
		{"empty data", "data\n\ndata:\n\n", 2, 0},
		{"data by a colon alone", "data:a\n\n", 1, 0},
		{"data first, others behind", "data: a\nid: 1\nevent: x\n\n", 1, 0},
		{"without data", "event: ping\nid: 7\n\n", 0, 0},
		{"empty lines", "\n\n\r\n\n", 0, 0},
		{"unfinished", "data: a\n\ndata: b\n", 1, 0},
		{"unfinished line", "data: a", 0, 0},
		{"comments", ": keep-alive\n\n:\n\ndata: a\n:mid\n\n", 1, 3},
		{"an unfinished comment", ": keep", 0, 0},
		{"other names", "datas: a\n\ndat: b\n\nDATA: c\n\n data: d\n\ndata : e\n\n", 0, 0},
		{"a colon in data", "data:: no comment\n\n", 1, 0},
		{"byte order mark", "\xEF\xBB\xBFdata: a\n\n", 1, 0},
		{"byte order mark, then a comment", "\xEF\xBB\xBF: a\n\n", 0, 1},
		{"two byte order marks", "\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\n", 0, 0},
		{"a late byte order mark", "\n\xEF\xBB\xBFdata: a\n\n", 0, 0},
		{"half a byte order mark", "\xEF\xBBdata: a\n\n\xEF\n\n", 0, 0},
		{"a broken byte order mark is a line", "data: a\n\xEF\n\n", 1, 0},
		{"NUL and text", "data: \x00€\n\n", 1, 0},
		{"OpenAI", "data: {\"a\":1}\n\ndata: {\"a\":2}\n\ndata: [DONE]\n\n", 3, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, piece := range []int{1, 2, 3, 5, len(tt.stream) + 1} {
				var e Events
				total := 0
				for p := []byte(tt.stream); len(p) > 0; p = p[min(piece, len(p)):] {
					total += e.Scan(p[:min(piece, len(p))])
				}
				if e.Count() != tt.events || int64(total) != tt.events || e.Comments() != tt.comments {
					t.Errorf("in pieces of %d: %d events (%d in sum), %d comments; want %d, %d", piece, e.Count(), total, e.Comments(), tt.events, tt.comments)
				}
			}
		})
	}
}

func TestEventsDoNotAllocate(t *testing.T) {
	p := []byte("data: {\"a\":1}\n\n: ping\r\n\r\n")
	var e Events
	if n := testing.AllocsPerRun(100, func() { e.Scan(p) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzEvents compares with a reading by whole lines.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{"data: a\n\n", "data\r\n\r\n:x\r\r", "\xEF\xBB\xBFdata:\n\n", "data: a\n\rdata: b\r\n\n", "\r\n", "\n\r\n\r"} {
		f.Add([]byte(s), uint8(1))
	}
	f.Fuzz(func(t *testing.T, p []byte, piece uint8) {
		var e Events
		for rest := p; len(rest) > 0; rest = rest[min(int(piece)+1, len(rest)):] {
			e.Scan(rest[:min(int(piece)+1, len(rest))])
		}
		if events, comments := readEvents(string(p)); e.Count() != events || e.Comments() != comments {
			t.Fatalf("%d events, %d comments; want %d, %d", e.Count(), e.Comments(), events, comments)
		}
	})
}

func readEvents(s string) (events, comments int64) {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(s, "\xEF\xBB\xBF"))
	lines := strings.Split(s, "\n")
	data := false
	for _, line := range lines[:len(lines)-1] { // the last has no end
		name, _, _ := strings.Cut(line, ":")
		switch {
		case line == "":
			if data {
				events++
			}
			data = false
		case name == "":
			comments++
		case name == "data":
			data = true
		}
	}
	return events, comments
}

func BenchmarkEvents(b *testing.B) {
	p := bytes.Repeat([]byte("data: "+strings.Repeat("x", 200)+"\n\n"), 20)
	b.SetBytes(int64(len(p)))
	var e Events
	for b.Loop() {
		e.Scan(p)
	}
}
