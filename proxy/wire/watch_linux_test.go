package wire

import (
	"net"
	"runtime"
	"testing"
	"time"
)

// Connections come and go; the news of one that has gone never reaches the
// next that has its descriptor and its slot.
func TestStaleNews(t *testing.T) {
	w, stock := newWatcher(t), &Buffers{}
	for range 300 {
		near, far := pair(t)
		old := NewConn(near, stock, w, newLeaver())
		go far.Close()
		runtime.Gosched()
		old.Close()
		near, far = pair(t)
		l := newLeaver()
		next := NewConn(near, stock, w, l)
		send(t, far, "x")
		if got, err := read(&next.End, 1, bound{idle: time.Minute}); err != nil || got != "x" {
			t.Fatalf("%q, %v", got, err)
		}
		if l.times.Load() != 0 || next.Gone() {
			t.Fatal("another's leaving was heard")
		}
		next.Close()
		far.Close()
	}
	if n := len(w.slots.all); n > 10 {
		t.Errorf("%d slots for two connections at a time", n)
	}
}

// All that leave are heard, also more at once than one look at the kernel
// takes.
func TestManyLeave(t *testing.T) {
	w, stock, l := newWatcher(t), &Buffers{}, newLeaver()
	const n = 400
	var fars []*net.TCPConn
	for range n {
		near, far := pair(t)
		c := NewConn(near, stock, w, l)
		t.Cleanup(c.Close)
		fars = append(fars, far)
	}
	for _, far := range fars {
		go far.Close()
	}
	eventually(t, "all were heard", func() bool { return l.times.Load() >= n })
}
