package quorum

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/starling-lb/starling/consensus/transport"
)

// TestPlainErrors: what a person reads beside a node's name says no more than it has to.
func TestPlainErrors(t *testing.T) {
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("it did not answer within 2s"))
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want string
	}{
		{t.Context(), &transport.RemoteError{Node: "n", Service: lookService, Text: "starling.yaml:3: it is wrong"}, "starling.yaml:3: it is wrong"},
		{t.Context(), fmt.Errorf("call: %w", &transport.RefusedError{Code: transport.RefusedService, Text: "there is none"}), ErrOlder.Error()},
		{t.Context(), errors.Join(transport.ErrNotSent, errors.New("dial n: connection refused")), "not sent: dial n: connection refused"},
		{over, fmt.Errorf("no answer: %w", context.Canceled), "it did not answer within 2s"},
	} {
		if got := plain(c.ctx, c.err); got == nil || got.Error() != c.want {
			t.Errorf("%v is told as %q, want %q", c.err, got, c.want)
		}
	}
	if err := plain(over, nil); err != nil {
		t.Errorf("an answer is told as %v", err)
	}
}
