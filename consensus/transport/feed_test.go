package transport

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// ticker feeds the opening message, then each message it is sent.
func ticker(next <-chan []byte) func(context.Context, string, []byte, *Feed) error {
	return func(ctx context.Context, _ string, opening []byte, f *Feed) error {
		if err := f.Send(opening); err != nil {
			return err
		}
		for {
			select {
			case m, ok := <-next:
				if !ok {
					return errors.New("over")
				}
				if err := f.Send(m); err != nil {
					return err
				}
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// TestFeedGoesOnWhereItBroke: in order, and opened anew with the reader's place.
func TestFeedGoesOnWhereItBroke(t *testing.T) {
	at := &addresses{}
	a, b := newPeer(t, at, "a"), newPeer(t, at, "b")
	b.Serve("count", Service{MaxQuestion: 10, Concurrent: 1, Feed: func(ctx context.Context, _ string, from []byte, f *Feed) error {
		for i := byte(0); i < 10; i++ { // ten at a time, then it breaks
			if err := f.Send([]byte{from[0] + i}); err != nil {
				return err
			}
		}
		f.out.settle()
		return errors.New("broken on purpose")
	}})
	a.up(t)
	b.up(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []byte
	a.Follow(ctx, "b", "count", Reader{
		Open: func() []byte { return []byte{byte(len(got))} },
		Take: func(m []byte) error {
			if got = append(got, m...); len(got) == 25 {
				cancel()
			}
			return nil
		},
	})
	for i, n := range got {
		if int(n) != i {
			t.Fatalf("message %d is %d: %v", i, n, got)
		}
	}
}

func TestOneFeedTooManyIsRefused(t *testing.T) {
	at := &addresses{}
	a, b := newPeer(t, at, "a"), newPeer(t, at, "b")
	b.Serve("feed", Service{MaxQuestion: 10, Concurrent: 1, Feed: ticker(nil)})
	a.up(t)
	b.up(t)
	ctx, cancel := context.WithCancel(t.Context())
	var both sync.WaitGroup
	defer both.Wait()
	defer cancel()
	first := make(chan struct{})
	both.Go(func() {
		a.Follow(ctx, "b", "feed", Reader{Open: func() []byte { return nil }, Take: func([]byte) error { close(first); return nil }})
	})
	<-first
	lost := make(chan error, 1)
	both.Go(func() {
		a.Follow(ctx, "b", "feed", Reader{Open: func() []byte { return nil }, Take: func([]byte) error { return nil }, Lost: func(err error) {
			select {
			case lost <- err:
			default:
			}
		}})
	})
	if err := <-lost; !refused(RefusedBusy)(err) {
		t.Errorf("got %v", err)
	}
}

// TestSlowReaderEndsTheFeed: what waits for it is bounded, and Send never waits.
func TestSlowReaderEndsTheFeed(t *testing.T) {
	at := &addresses{}
	a, b := newPeer(t, at, "a"), newPeer(t, at, "b")
	ended := make(chan error, 1)
	b.Serve("flood", Service{MaxQuestion: 10, Concurrent: 1, Feed: func(ctx context.Context, _ string, _ []byte, f *Feed) error {
		m := make([]byte, 64<<10)
		for range 10000 {
			if err := f.Send(m); err != nil {
				ended <- err
				return err
			}
		}
		ended <- nil
		return nil
	}})
	a.up(t)
	b.up(t)
	ctx, cancel := context.WithCancel(t.Context())
	var reader sync.WaitGroup
	reader.Go(func() {
		a.Follow(ctx, "b", "flood", Reader{Open: func() []byte { return nil }, Take: func([]byte) error { <-ctx.Done(); return nil }})
	})
	if err := <-ended; !errors.Is(err, ErrSlow) {
		t.Errorf("got %v", err)
	}
	cancel()
	reader.Wait()
}

// TestASilentFeedStays: beats keep it, and the service hears when the reader leaves.
func TestASilentFeedStays(t *testing.T) {
	at := &addresses{}
	a, b := newPeer(t, at, "a"), newPeer(t, at, "b")
	left := make(chan struct{})
	open := make(chan struct{})
	b.Serve("quiet", Service{MaxQuestion: 10, Concurrent: 1, Feed: func(ctx context.Context, _ string, _ []byte, f *Feed) error {
		close(open)
		<-ctx.Done()
		close(left)
		return nil
	}})
	a.up(t)
	b.up(t)
	ctx, cancel := context.WithCancel(t.Context())
	var reader sync.WaitGroup
	reader.Go(func() {
		a.Follow(ctx, "b", "quiet", Reader{Open: func() []byte { return nil }, Take: func([]byte) error { return nil }})
	})
	<-open
	cancel()
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("the service does not know that its reader left")
	}
	reader.Wait()
}
