package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-lb/starling/proxy"
)

// TestTurnsWaitForTheNodeToComeUp: a turn that comes in while the node starts waits
// until its disk is read, and for nothing once it is up, or will not come up.
func TestTurnsWaitForTheNodeToComeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{up: make(chan struct{})}
		n.conf.Store(&Config{Pools: map[string]proxy.PoolConfig{"llm": {}}})
		asked := 0
		turn := func(ctx context.Context) chan string {
			at := make(chan string, 1)
			go func() {
				turn, err := sessions{n}.Turn(ctx, "llm", []byte("me"), 0, func() string { asked++; return "b1" })
				if err != nil {
					t.Error(err)
				}
				at <- turn.Home().Backend
			}()
			synctest.Wait()
			return at
		}
		late, gone := turn(t.Context()), func() chan string {
			ctx, cancel := context.WithCancel(t.Context())
			at := turn(ctx)
			cancel()
			return at
		}()
		<-gone
		if asked != 1 || len(late) > 0 {
			t.Errorf("before the node was up, %d turns were placed", asked)
		}
		close(n.up)
		<-late
		began := time.Now()
		if at := <-turn(t.Context()); at != "b1" || time.Since(began) > 0 {
			t.Errorf("a turn waited %v for a node that is up, and went to %q", time.Since(began), at)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := &Node{up: make(chan struct{})}
		began := time.Now()
		if n.comeUp(t.Context()); time.Since(began) != upTime {
			t.Errorf("it waited %v", time.Since(began))
		}
	})
}
