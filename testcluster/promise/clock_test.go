package promise_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
)

// TestClocksJumpByADay: the clock of one node after the other is set forward by a day,
// leaders among them: no session ends, and none moves.
func TestClocksJumpByADay(t *testing.T) {
	t.Parallel()
	const nodes, sessions = 3, 30
	s := newStage(t, nodes, func(*node.Config) {}, nil)
	was := s.populate(t, sessions, nodes)
	epochs := make([]uint32, sessions)
	for i := range was {
		epochs[i] = uint32(s.session(t, i%nodes, fmt.Sprint("s", i)).Epoch)
	}
	for jumped := range nodes {
		s.Node(jumped).Clock().Jump(24 * time.Hour)
		pauseFor(t.Context(), time.Second) // two looks for what is old
		for i, home := range was {
			eventually(t, settleTime, func() string { // for a moment the node may have no lease and guess
				if at := s.at(t, (jumped+i)%nodes, fmt.Sprint("s", i)); at != home {
					return fmt.Sprintf("after node %d's jump s%d is at %s, and was at %s", jumped, i, at, home)
				}
				return ""
			})
		}
	}
	pauseFor(t.Context(), 3*time.Second) // the leases of before
	for i, home := range was {
		if v := s.session(t, i%nodes, fmt.Sprint("s", i)); v.Backend != home || uint32(v.Epoch) != epochs[i] {
			t.Errorf("s%d was at %s in epoch %d, and is %+v", i, home, epochs[i], v)
		}
	}
}
