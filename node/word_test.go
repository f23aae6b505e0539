package node

import (
	"testing"
	"time"

	"github.com/starling-lb/starling/shards/meta"
)

// A word is heeded once: in full where it is news, for what it has left where it was
// found at a start, and not at all where it is long over.
func TestAWordIsHeededOnce(t *testing.T) {
	const now, length = 1_800_000_000_000, 10 * time.Second
	none := meta.Word{}
	out := func(ago time.Duration) meta.Word {
		return meta.Word{Number: uint64(now - ago.Milliseconds()), Length: int64(length)}
	}
	in := func(ago time.Duration) meta.Word { return meta.Word{Number: uint64(now - ago.Milliseconds())} }
	for _, c := range []struct {
		name  string
		last  meta.Word
		known bool
		cut   bool // off, until just now
		word  meta.Word
		order order
		left  time.Duration
	}{
		{"at a start: no word", none, false, false, none, noOrder, 0},
		{"at a start: out for some time more", none, false, false, out(4 * time.Second), outOrder, 6 * time.Second},
		{"at a start, by a clock that is behind", none, false, false, out(-time.Hour), outOrder, length},
		{"at a start: it was out", none, false, false, out(11 * time.Second), noOrder, 0},
		{"at a start: it was let in", none, false, false, in(time.Second), noOrder, 0},
		{"news", none, true, false, out(300 * time.Millisecond), outOrder, length},
		{"news, by a clock that is ahead", none, true, false, out(50 * time.Second), outOrder, length},
		{"news of long ago, of who was cut off", none, true, true, out(2 * time.Minute), lateOrder, 0},
		{"news, by a clock that is far behind", none, true, false, out(time.Hour), outOrder, length},
		{"let in, by a clock that is far behind", out(time.Hour), true, false, in(time.Hour - time.Second), inOrder, 0},
		{"news of who was cut off", none, true, true, out(30 * time.Second), outOrder, length},
		{"heeded before", out(time.Second), true, false, out(time.Second), noOrder, 0},
		{"out once more", out(5 * time.Second), true, false, out(time.Second), outOrder, length},
		{"let in", out(time.Second), true, false, in(0), inOrder, 0},
		{"let in by a word of long ago", out(time.Hour), true, true, in(30 * time.Minute), lateOrder, 0},
		{"taken back", out(time.Second), true, false, none, backOrder, 0},
		{"taken back when it was in", in(time.Second), true, false, none, noOrder, 0},
	} {
		order, left := due(c.last, c.known, !c.cut, c.word, time.UnixMilli(now))
		if order != c.order || left != c.left {
			t.Errorf("%s: order %d for %v, want %d for %v", c.name, order, left, c.order, c.left)
		}
	}
}
