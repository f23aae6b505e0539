package quorum

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestStopDoesNotWaitForWhatHangs: a loop hangs, as at a disk that does. Stop and
// Release wait for it as long as they may, and no longer.
func TestStopDoesNotWaitForWhatHangs(t *testing.T) {
	for name, end := range map[string]func(*Quorum, context.Context) error{
		"stop":    (*Quorum).Stop,
		"release": func(q *Quorum, ctx context.Context) error { return q.Release(ctx, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir() // before the wait for replicas, which write there to the end
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { // replicas that were not waited for end behind Stop, and log
				eventually(t, func() string {
					if err := goleak.Find(before); err != nil {
						return err.Error()
					}
					return ""
				})
			})
			w := &town{peers: make(map[string]Peer)}
			q := w.settle(t, "a", dir, 1)
			ended := make(chan struct{})
			defer close(ended)
			q.start(func(context.Context) { <-ended })
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- end(q, ctx) }()
			select {
			case err := <-done:
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("it says %v", err)
				}
			case <-time.After(patience):
				t.Fatal("it waits for a loop that hangs")
			}
		})
	}
}
