package store

import (
	"context"
	"errors"
	"testing"
)

// A write that is queued behind the stalled one must not cost the committer the
// news that it shall stop: both come by the same wake.
func TestStopWithAWriteQueued(t *testing.T) {
	f := &faults{}
	st, err := New(Options{Path: path(t), Wrap: f.wrap})
	must(t, err)
	must(t, st.Start(t.Context()))
	a, b := open(t, st, key(1)), open(t, st, key(2))
	ch := make(chan struct{})
	f.stall.Store(&ch)
	appended := make(chan error, 2)
	go func() { appended <- a.StoreLogs(entries(1, 1, 1)) }()
	eventually(t, "the disk is busy", func() bool { return f.stalled.Load() == 1 })
	go func() { appended <- b.StoreLogs(entries(1, 1, 1)) }()
	eventually(t, "another write waits", func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return len(st.queue) == 1
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := st.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Stop: %v", err)
	}
	f.stall.Store(nil)
	close(ch)
	stop(t, st)
	for range 2 {
		<-appended
	}
}
