package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-lb/starling/shards"
)

// deaf is a way to others that nobody answers at for a time.
type deaf struct {
	until time.Time
	heard chan time.Time
}

func (d deaf) Call(context.Context, string, string, []byte) ([]byte, error) { return nil, nil }

func (d deaf) Feed(ctx context.Context, _, _ string, _ []byte, _ func([]byte) error) error {
	if time.Now().Before(d.until) {
		return errors.New("nobody is there")
	}
	d.heard <- time.Now()
	<-ctx.Done()
	return ctx.Err()
}

// An older process follows its feeds again as soon as its heir answers: its leases
// lapse 2 s after it let go, however long the heir has taken.
func TestBeyondIsFoundAtOnce(t *testing.T) {
	for _, gap := range []time.Duration{0, 300 * time.Millisecond, 1300 * time.Millisecond, 1800 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			d := deaf{time.Now().Add(gap), make(chan time.Time, 1)}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				reader := shards.Reader{Open: func() []byte { return nil }, Take: func([]byte) error { return nil }, Lost: func(error) {}}
				followBeyond(ctx, d, "n", "s", reader)
			}()
			if late := (<-d.heard).Sub(d.until); late > 150*time.Millisecond {
				t.Errorf("%v after it let go its heir answers, and is found %v later", gap, late)
			}
			cancel()
			<-ended
		})
	}
}
