package wire

import (
	"bytes"
	"io"
	"sync/atomic"
	"testing"
	"time"
)

// Two pieces arrive as one, whatever the kernel takes of them at once.
func TestWriteBoth(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, then int
		direct      bool
	}{
		{"copied", 100, 200, true}, {"in one call", 100, joined, true}, {"more than the kernel takes", 100, 8 << 20, true},
		{"more than it takes of the first", 8 << 20, 100, true}, {"no descriptor at hand", 100, 200, false}, {"nor small", 100, 1 << 20, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			near, far := pair(t)
			e := newEnd(near, &Buffers{})
			if c.direct {
				e.fd = edgeFD(near)
			}
			p, q := bytes.Repeat([]byte("p"), c.first), bytes.Repeat([]byte("q"), c.then)
			done := async(func() error { return e.WriteBoth(p, q, 10*time.Second) })
			got := make([]byte, c.first+c.then)
			if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, append(p, q...)) {
				t.Errorf("other bytes came, %v", err)
			}
			if err := await(t, done, "the write"); err != nil {
				t.Error(err)
			}
		})
	}
}

// The next answer finds a buffer like the last one needed; nothing else does.
func TestRoomForTheNextAnswer(t *testing.T) {
	for _, c := range []struct {
		name  string
		body  int64
		edges bool
		read  *atomic.Bool
		want  int
	}{
		{"small", 8 << 10, true, nil, 0}, {"16 KiB and a head", smallBuffer, true, nil, bodyBuffer}, {"64 KiB and a head", bodyBuffer, true, nil, largeBuffer},
		{"the plain loop", bodyBuffer, false, nil, 0}, {"a request", bodyBuffer, true, new(atomic.Bool), 0},
	} {
		r := relay(scripted(), scripted(), c.body)
		r.From.byEdges, r.data, r.Read = c.edges, c.body, c.read
		if got := r.nextRoom(); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	r := relay(scripted(), scripted(), Chunked)
	r.From.room = largeBuffer
	if r.fit(); r.From.room != bodyBuffer {
		t.Errorf("a body of unknown length gets %d", r.From.room)
	}
}
