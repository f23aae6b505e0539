package wire

import (
	"errors"
	"sync/atomic"
	"testing"
)

type resumed chan struct{}

func (r resumed) Resume() { r <- struct{}{} }

// A stream that is given up between the end of its Run and its Detach is resumed
// all the same, though its backend stays silent.
func TestInterruptBeforeDetach(t *testing.T) {
	t.Parallel()
	w, stock := newWatcher(t), &Buffers{}
	near, _ := pair(t)
	c := NewConn(near, stock, w, newLeaver())
	t.Cleanup(c.Close)
	near, _ = pair(t)
	l := NewLink(near, stock, w)
	t.Cleanup(l.Close)
	again := make(resumed, 1)
	r := &Relay{From: &l.End, To: &c.End, Length: UntilClose, Sent: new(atomic.Int64), Later: again}
	if err := r.Run(nil); !errors.Is(err, ErrDetached) {
		t.Fatalf("silence: %v", err)
	}
	l.Interrupt()
	r.Detach()
	await(t, again, "the relay is resumed")
	wants(t, r.Continue(), ErrInterrupted)
}

// Each time that a stream detaches its silence is timed, also when none was
// left in between.
func TestDetachedSilenceEnds(t *testing.T) {
	t.Parallel()
	w, stock := newWatcher(t), &Buffers{}
	for range 2 {
		near, _ := pair(t)
		c := NewConn(near, stock, w, newLeaver())
		t.Cleanup(c.Close)
		near, _ = pair(t)
		l := NewLink(near, stock, w)
		t.Cleanup(l.Close)
		again := make(resumed, 1)
		r := &Relay{From: &l.End, To: &c.End, Length: UntilClose, ReadIdle: patience + 1, Sent: new(atomic.Int64), Later: again}
		if err := r.Run(nil); !errors.Is(err, ErrDetached) {
			t.Fatalf("silence: %v", err)
		}
		r.Detach()
		await(t, again, "the silence is over")
		wants(t, r.Continue(), ErrIdle)
	}
}
