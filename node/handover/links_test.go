package handover

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
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
		k := Known{line: ours, asked: make(chan listed, 1), one: make(chan struct{}, 1)}
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

// TestAnswersThatComeLate: an elder works off the last question alone, and what comes too
// late for who asked is for who asks next, if it is what that one wants.
func TestAnswersThatComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		worked, work := make(chan int), make(chan struct{})
		link := NewLink("", 7)
		link.reach = func(context.Context, visit) (net.Conn, error) { return theirs, nil }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			link.Tell(ctx, time.Hour, func() Counts { return Counts{} }, func(limit int) []json.RawMessage {
				worked <- limit
				<-work
				return make([]json.RawMessage, limit)
			})
		}()
		links := NewLinks("", new(fakeHost), slog.New(slog.DiscardHandler))
		go links.listen(ours, visit{Boot: 7})
		synctest.Wait()
		k := links.Elders()[0]
		streams := func(limit int) int {
			list, ok := links.Streams(t.Context(), k, limit)
			if !ok {
				return -1
			}
			return len(list)
		}
		first := make(chan int, 1)
		go func() { first <- streams(5) }()
		if n := <-worked; n != 5 {
			t.Fatalf("it lists %d", n)
		}
		if n := <-first; n != -1 {
			t.Errorf("it has listed %d", n)
		}
		for _, limit := range []int{8, 9, 7} { // nobody waits for these
			short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, _ = links.Streams(short, k, limit)
			cancel()
		}
		work <- struct{}{} // five, which are too few for seven
		last := make(chan int, 1)
		go func() { last <- streams(6) }()
		if n := <-worked; n != 6 && n != 7 {
			t.Errorf("it works off a question for %d, for which nobody waits", n)
		}
		work <- struct{}{}
		if n := <-last; n != 6 {
			t.Errorf("who asked for six gets %d", n)
		}
		_ = ours.Close()
		cancel()
		go func() {
			for range worked {
			}
		}()
		close(work)
		<-ended
		close(worked)
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
