package wire

import (
	"strings"
	"testing"
)

// bodies are chunked bodies and what they carry.
func bodies() [][2]string {
	return [][2]string{
		{"0\r\n\r\n", ""},
		{"000000000000000\r\n\r\n", ""},
		{"5\r\nhello\r\n0\r\n\r\n", "hello"},
		{"5\r\nhello\r\nA\r\n0123456789\r\nb\r\nabcdefghijk\r\n0\r\n\r\n", "hello0123456789abcdefghijk"},
		{"000000000000005\r\n\r\n\r\n0\r\n0\r\n\r\n", "\r\n\r\n0"},
		{"2;a=b;c=\"d, e\"\r\n\r\n\r\n0;last\r\n\r\n", "\r\n"},
		{"1;\r\nx\r\n0\r\nX-Sum: abc\r\nEmpty:\r\n\r\n", "x"},
		{"3\r\n0\r\n\r\n0\r\nA:\t b \t\xe4\r\n\r\n", "0\r\n"},
	}
}

// brokenBodies are refused at their last byte, and not before.
func brokenBodies() []string {
	return []string{
		"\r", "\n", " ", "x", "-", "+", ";", "0x", "g",
		"5 ", "5\t", "5\n", "5\rx", "5\r\r", "5,", "5;a\n", "5;\x00", "5;a\rb", "5;\x7f",
		"1\r\nxy", "1\r\nx\n", "1\r\nx\rx", "1\r\nx\r\n\r", "1\r\nx\r\nx", "5\r\nhelloo",
		"0\r\n\n", "0\r\n\rx", "0\r\n:", "0\r\n ", "0\r\nX ", "0\r\nX\r", "0\r\nX: a\n", "0\r\nX: a\rb", "0\r\nX: \x00", "0\r\nX: a\r\n ", "0\r\nX: a\r\n\n",
		"1000000000000000",                          // 2^60 and more do not count, though the sender may mean less
		"0000000000000000",                          // nor do zeros without end
		"10000000000000005"[:16],                    // 2^64+5 is not 5
		"1;" + strings.Repeat("x", maxExtensions+1), // nor extensions
		"0\r\n" + strings.Repeat("x", maxTrailers+1),
		"0\r\n" + strings.Repeat("a:b\r\n", maxTrailers/5) + "xx",
	}
}

func TestChunksAtEverySplit(t *testing.T) {
	for _, b := range bodies() {
		whole := b[0] + "GET / "
		for i := range len(whole) {
			for j := i; j <= len(whole); j++ {
				var c Chunks
				total := 0
				for _, p := range []string{whole[:i], whole[i:j], whole[j:]} {
					n, done, err := c.Scan([]byte(p))
					if total += n; err != nil || done != (total == len(b[0])) || done != c.Done() || !done && n != len(p) {
						t.Fatalf("%q cut at %d and %d: %d of %q taken, done %v, error %v", whole, i, j, n, p, done, err)
					}
				}
				if total != len(b[0]) {
					t.Fatalf("%q cut at %d and %d ends at %d", whole, i, j, total)
				}
			}
		}
	}
}

func TestChunksData(t *testing.T) {
	for _, b := range bodies() {
		for size := 1; size <= len(b[0]); size++ {
			if data, err := unchunk(b[0], size); data != b[1] || err != nil {
				t.Errorf("%q in pieces of %d: %q, %v", b[0], size, data, err)
			}
		}
	}
}

// unchunk decodes a body that comes in pieces; it fails also where the body
// has no end.
func unchunk(body string, size int) (data string, err error) {
	var c Chunks
	for ; len(body) > 0 && !c.Done(); body = body[min(size, len(body)):] {
		for p := []byte(body[:min(size, len(body))]); len(p) > 0 && !c.Done(); {
			d, used, err := c.Next(p)
			if err != nil {
				return data, err
			}
			data += string(d)
			p = p[used:]
		}
	}
	if !c.Done() {
		return data, ErrChunk
	}
	return data, nil
}

func TestChunksRefused(t *testing.T) {
	for _, b := range brokenBodies() {
		good := b[:len(b)-1]
		for _, cut := range []int{0, len(good) / 2, len(good)} {
			var c Chunks
			n, done, err := c.Scan([]byte(good[:cut]))
			if n != cut || done || err != nil {
				t.Errorf("%.40q: %d of %d, done %v, %v", good[:cut], n, cut, done, err)
				continue
			}
			n, done, err = c.Scan([]byte(b[cut:]))
			if n != len(b)-1-cut || done || err != ErrChunk {
				t.Errorf("%.40q cut at %d: %d bytes taken, done %v, error %v", b, cut, n, done, err)
			}
		}
	}
}

func TestChunksLargest(t *testing.T) {
	var c Chunks
	if _, _, err := c.Scan([]byte("fffffffffffffff\r\nx")); err != nil || c.left != 1<<60-2 {
		t.Errorf("%d left, %v", c.left, err)
	}
}

func TestAtTrailers(t *testing.T) {
	var c Chunks
	for _, step := range []struct {
		in   string
		want bool
	}{{"1\r\nx", false}, {"\r\n0\r", false}, {"\n", true}, {"X: y\r", false}, {"\n", true}, {"\r", false}, {"\n", false}} {
		if _, _, err := c.Scan([]byte(step.in)); err != nil || c.atTrailers() != step.want {
			t.Fatalf("after %q: at trailers %v, %v", step.in, c.atTrailers(), err)
		}
	}
}
