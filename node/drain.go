package node

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
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

// How often a drain says how far it is: so many times until its deadline, but
// within these.
const (
	drainWords = 10
	wordLeast  = time.Second
	wordMost   = 10 * time.Second
)

// drainInfo is how far the drain is; nil where there is none.
func (n *Node) drainInfo() *api.Drain {
	n.mu.Lock()
	end, cutting, aside := n.drain, n.cutting, n.aside
	n.mu.Unlock()
	if end.IsZero() && !aside {
		return nil
	}
	report, left := n.proxy.Report(), 0.0
	if !end.IsZero() {
		left = max(0, time.Until(end).Seconds())
	}
	d := &api.Drain{Deadline: end, Left: left, Phase: api.NoticePhase, Finished: report.Finished, Cut: report.Cut}
	if n.proxy.Draining() {
		d.Phase = api.TurningPhase
	}
	select {
	case <-cutting:
		d.Phase = api.CuttingPhase
	default:
	}
	return d
}

// sayHowFar logs how far the drain is, until it has ended; limit 0 is none.
func (n *Node) sayHowFar(limit time.Duration, ended <-chan struct{}) {
	every := wordMost
	if limit > 0 {
		every = min(max(limit/drainWords, wordLeast), wordMost)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case now := <-tick.C:
			d, oldest := n.drainInfo(), time.Duration(0)
			for _, s := range n.proxy.Streams(1) {
				oldest = now.Sub(s.Started)
			}
			n.log.Info("still draining", "phase", d.Phase, "streams", n.proxy.InFlight(), "waiting", n.proxy.Waiting(), "finished", d.Finished,
				"oldest", oldest.Round(time.Second), "left", time.Until(d.Deadline).Round(time.Second))
		}
	}
}

// sayDrained is the last that a node says: what its drain finished, what it cut, and
// why. The streams are counted by why they ended, as in starling_streams_total.
func (n *Node) sayDrained(ctx context.Context, took time.Duration) {
	report, ends := n.Drained(), n.proxy.Ends()
	about := []any{"finished", report.Finished, "cut", report.Cut, "took", took.Round(time.Millisecond)}
	if report.Cut > 0 {
		why := "told to hurry"
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			why = "deadline"
		}
		about = append(about, "cut_by", why)
	}
	var by []any
	for _, why := range backend.Reasons() {
		if ends[why] > 0 {
			by = append(by, slog.Int64(string(why), ends[why]))
		}
	}
	n.log.Info("drained", append(about, slog.Group("ended", by...))...)
}
