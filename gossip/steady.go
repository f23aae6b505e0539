package gossip

import (
	"math"
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
	began  time.Time
	paused atomic.Int64 // when the last pause was noticed, in ns since began: a clock that is set cannot move it
}

func newSteadiness(now time.Time) *steadiness {
	s := &steadiness{began: now}
	s.paused.Store(math.MinInt64 / 2)
	return s
}

// beat is called at every turn. The clock on the wall goes on while a machine
// is suspended, the one that Go measures with does not: either tells.
func (s *steadiness) beat(now time.Time, usual time.Duration) {
	if !s.last.IsZero() {
		gap := max(now.Sub(s.last), now.Round(0).Sub(s.last.Round(0)))
		if gap > usual+lateBy {
			s.paused.Store(int64(now.Sub(s.began)))
		}
	}
	s.last = now
}

func (s *steadiness) pausedWithin(d time.Duration, now time.Time) bool {
	return now.Sub(s.began)-time.Duration(s.paused.Load()) <= d
}

// Steady tells whether this node's view of the others can be trusted: false for
// a moment after it was paused, and while it is overloaded. Verdicts made of
// that view are to be left as they are meanwhile.
func (c *Cluster) Steady() bool {
	return !c.steady.pausedWithin(settleFor, time.Now()) && c.score() < tooLate
}
