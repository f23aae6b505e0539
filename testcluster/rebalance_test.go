package testcluster_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/testcluster"
)

// TestOperatorMovesASession: asked at any node, and in force at all of them.
func TestOperatorMovesASession(t *testing.T) {
	c := agreeing(t, 3, exposed)
	k := newTalk(t, c, 10)
	k.take(t, 3, 0, 1, 2)
	for s, home := range k.homes {
		asked := admin(t, c.Node(s%3))
		was := sessionOf(t, c.Node(s%3), fmt.Sprint("session ", s))
		if was.Backend != home || was.Epoch == 0 || was.Provisional || was.LastUse == nil {
			t.Errorf("session %d at %s is shown as %+v", s, home, was)
		}
		to := map[string]string{"b1": "b2", "b2": "b3", "b3": "b1"}[home]
		insist(t, func() error {
			return asked.Post(t.Context(), api.Destination{Backend: to}, "sessions", testcluster.PoolName, fmt.Sprint("session ", s), "move")
		})
		is := sessionOf(t, c.Node((s+1)%3), fmt.Sprint("session ", s))
		if is.Backend != to || is.Epoch <= was.Epoch || is.Held {
			t.Errorf("session %d was moved from %+v to %s, and is shown as %+v", s, was, to, is)
		}
		k.homes[s] = to
	}
	k.take(t, 3, 0, 1, 2)
	for _, bad := range []struct {
		key, to string
		status  int
	}{{"never seen", "b1", 404}, {"session 1", "b9", 409}} {
		eventually(t, settleTime, func() string {
			var refused *client.RefusedError
			err := admin(t, c.Node(0)).Post(t.Context(), api.Destination{Backend: bad.to}, "sessions", testcluster.PoolName, bad.key, "move")
			if !errors.As(err, &refused) || refused.Status != bad.status && refused.Status != http.StatusServiceUnavailable {
				t.Fatalf("move of %q to %s: %v", bad.key, bad.to, err)
			}
			if refused.Status != bad.status {
				return err.Error() // nobody leads at the moment
			}
			return ""
		})
	}
}
