package handover

import (
	"context"
	"encoding/json"
	"errors"
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

// TestAnHeirIsFoundAtOnce: an elder looks for its heir from the moment it begins to let
// go, which may take it long. The heir takes nobody in before it has heard of it.
func TestAnHeirIsFoundAtOnce(t *testing.T) {
	for _, after := range []time.Duration{0, 100 * time.Millisecond, 700 * time.Millisecond, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			there := time.Now().Add(after)
			ours, theirs := net.Pipe()
			link := NewLink("", 7)
			link.reach = func(context.Context, visit) (net.Conn, error) {
				if time.Now().Before(there) {
					return nil, errors.New("nobody is there")
				}
				return ours, nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				link.Tell(ctx, time.Hour, func() Counts { return Counts{} }, nil)
			}()
			if _, err := readFrame(theirs); err != nil {
				t.Error(err)
			}
			if late := time.Since(there); late > 150*time.Millisecond {
				t.Errorf("%v after it was looked for an heir is there, and found %v later", after, late)
			}
			go func() { _, _ = readFrame(theirs) }() // the last word
			cancel()
			<-ended
			_ = theirs.Close()
		})
	}
}
