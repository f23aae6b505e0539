package gossip

import (
	"sync/atomic"
	"time"
)

// A node that was stopped for a while, or that cannot keep up, sees everybody
// else late and must not blame them for it.

const (
	lateBy    = time.Second     // that a turn may come later than it should
	settleFor = 3 * time.Second // after a pause: by then the others' words of now are here
	tooLate   = 4               // of memberlist's health score, which goes to 8
)

// steadiness notices pauses of this process.
type steadiness struct {
	last   time.Time // of the last turn; only speakLoop uses it
	paused atomic.Int64
}

// beat is called at every turn. The clock on the wall goes on while a machine
// is suspended, the one that Go measures with does not: either tells.
func (s *steadiness) beat(now time.Time, usual time.Duration) {
	if !s.last.IsZero() {
		gap := max(now.Sub(s.last), now.Round(0).Sub(s.last.Round(0)))
		if gap > usual+lateBy {
			s.paused.Store(now.UnixNano())
		}
	}
	s.last = now
}

// Steady tells whether this node's view of the others can be trusted: false for
// a moment after it was paused, and while it is overloaded. Verdicts made of
// that view are to be left as they are meanwhile.
func (c *Cluster) Steady() bool {
	at := c.steady.paused.Load()
	return time.Since(time.Unix(0, at)) > settleFor && c.score() < tooLate
}
