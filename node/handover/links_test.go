package handover

import (
	"context"
	"encoding/json"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Who asks an elder waits no longer than it wants to, also for its turn.
func TestStreamsOfABusyElder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		k := Known{line: ours, asked: make(chan []json.RawMessage, 1), one: make(chan struct{}, 1)}
		ask := func(patience time.Duration) chan time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			took, began := make(chan time.Duration, 1), time.Now()
			go func() {
				defer cancel()
				if _, ok := new(Links).Streams(ctx, k, 1); ok {
					t.Error("nobody has answered")
				}
				took <- time.Since(began)
			}()
			return took
		}
		go func() { _, _ = readFrame(theirs) }() // it hears the question, and says nothing
		first := ask(2 * time.Second)
		synctest.Wait()
		second := ask(time.Second)
		if a, b := <-second, <-first; a != time.Second || b != 2*time.Second {
			t.Errorf("one waited %v, another who asked meanwhile %v", b, a)
		}
	})
}
