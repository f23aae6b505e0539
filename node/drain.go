package node

import (
	"context"
	"time"
)

// A drain begins with a notice: the node says that it is not ready, and serves
// all the same, until a balancer in front can have looked. Where nobody looks
// there is nothing to wait for.
const (
	noticeMost  = 5 * time.Second
	noticeShare = 10          // a notice takes at most one in so many parts of the drain
	pollGap     = time.Minute // who asks twice within it will ask again
)

// polls is when the node last said that it is ready, twice.
type polls [2]time.Time

func (p *polls) note(now time.Time) { p[0], p[1] = p[1], now }

// notice is how long it is, in a drain that ends by a time; zero: never.
func (p polls) notice(now, by time.Time) time.Duration {
	if p[0].IsZero() || now.Sub(p[0]) > pollGap {
		return 0
	}
	if by.IsZero() {
		return noticeMost
	}
	return max(0, min(noticeMost, by.Sub(now)/noticeShare))
}

// giveNotice returns when the notice is over, or ctx.
func (n *Node) giveNotice(ctx context.Context, length time.Duration) {
	if length == 0 {
		return
	}
	over := time.NewTimer(length)
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
	}
}
