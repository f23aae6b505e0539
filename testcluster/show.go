package testcluster

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster/load"
)

// ShowOptions say what a Show looks like. A field left zero has the default
// that stands beside it.
type ShowOptions struct {
	Out  io.Writer     // must be set; figures are refreshed in place if it is a terminal
	Load load.Options  // URL is the cluster's
	Up   time.Duration // 15s; with all backends in order, then one is killed
	Down time.Duration // 15s; until it is started again
}

const (
	look  = 200 * time.Millisecond // how often the show looks, and refreshes its figures
	grace = 15 * time.Second       // for what a step comes to, beyond its time: on a busy machine all is later
)

// Show drives a load through the cluster until ctx ends, kills one backend
// after the other and tells on Out what can be seen of it: at the clients, and
// in the node's admin API. Its error is that of a failed switch of a backend.
func (c *Cluster) Show(ctx context.Context, o ShowOptions) (load.Snapshot, error) {
	if o.Up == 0 {
		o.Up = 15 * time.Second
	}
	if o.Down == 0 {
		o.Down = 15 * time.Second
	}
	o.Load.URL = c.Node(0).URL()
	for _, n := range c.nodes[1:] {
		o.Load.More = append(o.Load.More, n.URL())
	}
	l, err := load.New(o.Load)
	if err != nil {
		return load.Snapshot{}, err
	}
	s := &show{ShowOptions: o, cluster: c, load: l, screen: newScreen(o.Out), asker: newAsker(c.Node(0).AdminURL()), began: time.Now(), next: 1}
	defer s.asker.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	err = s.run(ctx)
	cancel()
	running.Wait()
	s.summary()
	return l.Snapshot(), err
}

// show is one run; one goroutine has it.
type show struct {
	ShowOptions
	cluster *Cluster
	load    *load.Load
	screen  *screen
	asker   *asker
	began   time.Time

	kills  int
	next   int      // backend to kill, round and round
	victim *Backend // which is down, or has just come back; nil: none
	down   bool     // it is
	turn   time.Time
	told   struct{ broken, left, deaf bool } // what was said of it, and that the admin API does not answer
	before load.Snapshot                     // at the last look
	killed int64                             // streams broken before the victim was killed
	seen   []api.Backend                     // at the last look
}

func (s *show) run(ctx context.Context) error {
	s.turn = s.began.Add(s.Up)
	if len(s.cluster.backends) < 2 {
		s.screen.say(s.began, "the only backend is left alone: with two or more, one is killed now and then")
	}
	every := time.NewTicker(look)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-every.C:
			if err := s.step(ctx, now); err != nil {
				return err
			}
		}
	}
}

// step looks once, tells what is new and does what is due.
func (s *show) step(ctx context.Context, now time.Time) error {
	snap := s.load.Snapshot()
	s.tellBroken(now, snap)
	s.tellFailures(now, snap)
	s.before = snap
	seen, err := s.asker.backends(ctx)
	if err == nil {
		for _, line := range changes(s.seen, seen) {
			s.screen.say(now, "%s", line)
		}
		s.seen = seen
		s.tellTraffic(now)
	} else if ctx.Err() == nil && !s.told.deaf {
		s.screen.say(now, "!! %v", err)
	}
	s.told.deaf = err != nil
	s.screen.figures(now, figures(snap, s.seen))
	if now.Before(s.turn) || len(s.cluster.backends) < 2 || s.underWay() && now.Before(s.turn.Add(grace)) {
		return nil
	}
	if s.down {
		return s.revive(now)
	}
	return s.kill(now)
}

// underWay tells whether there is something to be seen still of the last step: traffic
// that has not left the victim, or has not come back to it.
func (s *show) underWay() bool { return s.victim != nil && !(s.down && s.told.left) }

func (s *show) kill(now time.Time) error {
	s.victim = s.cluster.backends[s.next%len(s.cluster.backends)]
	s.next++
	s.kills++
	s.down, s.turn = true, now.Add(s.Down)
	s.told.broken, s.told.left = false, false
	s.killed = s.load.Snapshot().Broken
	return s.load.Hurt(s.victim.ID, s.victim.Kill)
}

func (s *show) revive(now time.Time) error {
	s.down, s.turn = false, now.Add(s.Up)
	s.screen.say(now, "%s started again: it accepts connections, and gets a stream to prove it once its checks pass", s.victim.ID)
	return s.victim.Revive()
}

func (s *show) tellBroken(now time.Time, snap load.Snapshot) {
	if s.down && !s.told.broken {
		s.told.broken = true
		s.screen.say(now, "%s killed: its %d streams broke, and it refuses connections", s.victim.ID, snap.Broken-s.killed)
	}
}

// tellFailures tells what nobody did on purpose.
func (s *show) tellFailures(now time.Time, snap load.Snapshot) {
	had := map[string]int64{}
	for _, f := range s.before.Failed {
		had[f.Kind] = f.Count
	}
	for _, f := range snap.Failed {
		if n := f.Count - had[f.Kind]; n > 0 {
			s.screen.say(now, "!! %d streams FAILED, %s: %v", n, f.Kind, f.Last)
		}
	}
	if n := snap.Skipped - s.before.Skipped; n > 0 {
		s.screen.say(now, "!! %d requests SKIPPED: %d streams are open already", n, snap.Open)
	}
}

// tellTraffic tells when it has left the victim, and when it has come back.
func (s *show) tellTraffic(now time.Time) {
	if s.victim == nil {
		return
	}
	there, out := share(s.seen, s.victim.ID), s.state(s.victim.ID) != backend.Active
	switch {
	case !s.told.left && s.down && out && there == 0:
		s.told.left = true
		s.screen.say(now, "traffic has left %s: %s", s.victim.ID, shares(s.seen))
	case !s.down && s.told.left && there >= 0.5/float64(len(s.seen)):
		s.screen.say(now, "traffic is back at %s: %s", s.victim.ID, shares(s.seen))
		s.victim = nil
	}
}

// state is a backend's as the node tells it.
func (s *show) state(id string) backend.State {
	for _, b := range s.seen {
		if b.ID == id {
			return b.State
		}
	}
	return ""
}

func (s *show) summary() {
	now, snap := time.Now(), s.load.Snapshot()
	s.tellFailures(now, snap)
	s.screen.clear()
	fmt.Fprintf(s.Out, "\n%v: %d streams finished, %d broken (backends killed: %d), %d cut at the end, %d failed; %d tokens; ttfb p50 %v p99 %v\n",
		now.Sub(s.began).Round(time.Second), snap.Done, snap.Broken, s.kills, snap.Stopped, snap.Failures(), snap.Tokens,
		short(snap.AllFirst.P50), short(snap.AllFirst.P99))
	if snap.Turns > 0 {
		fmt.Fprintf(s.Out, "  %d turns of %d sessions, %d of them at another backend than the turn before\n", snap.Turns, s.Load.Sessions, snap.Moved)
	}
	for _, f := range snap.Failed {
		fmt.Fprintf(s.Out, "  failed %d times, %s; the last: %v\n", f.Count, f.Kind, f.Last)
	}
}

// changes are the changes of state from one look to the next, in words.
func changes(before, after []api.Backend) (lines []string) {
	was := map[string]api.Backend{}
	for _, b := range before {
		was[b.ID] = b
	}
	for _, b := range after {
		old, known := was[b.ID]
		switch {
		case !known || old.Since.Equal(b.Since):
		case b.State == backend.Ejected && old.State == backend.Ejected:
			lines = append(lines, fmt.Sprintf("%s stays ejected%s (%s)", b.ID, until(b), b.Reason))
		case b.State == backend.Active:
			lines = append(lines, fmt.Sprintf("%s is active again (%s)", b.ID, b.Reason))
		default:
			lines = append(lines, fmt.Sprintf("%s is %s%s (%s)", b.ID, b.State, until(b), b.Reason))
		}
	}
	return lines
}

func until(b api.Backend) string {
	if b.EjectedUntil == nil {
		return ""
	}
	from := b.Since
	if b.EjectedUntil.Before(from) {
		return " until a stream succeeds there" // it was out before, for another reason too
	}
	return fmt.Sprintf(" for %v", b.EjectedUntil.Sub(from).Round(time.Second))
}

// figures is the live line; with three backends it fits 80 columns.
func figures(snap load.Snapshot, seen []api.Backend) string {
	failed := ""
	if n := snap.Failures(); n > 0 {
		failed = fmt.Sprintf("%d FAILED  ", n)
	}
	return fmt.Sprintf("%s%d streams %.0f tokens/s  ttfb p50 %v p99 %v  %s",
		failed, snap.Open, snap.Rate, short(snap.FirstByte.P50), short(snap.FirstByte.P99), shares(seen))
}

// shares says where the streams are, and who gets none.
func shares(seen []api.Backend) string {
	parts := make([]string, len(seen))
	for i, b := range seen {
		if part := share(seen, b.ID); part > 0 || b.State == backend.Active {
			parts[i] = fmt.Sprintf("%s %.0f%%", b.ID, 100*part)
		} else {
			parts[i] = fmt.Sprintf("%s %s", b.ID, b.State)
		}
	}
	return strings.Join(parts, " ")
}

// share is a backend's part of the node's streams.
func share(seen []api.Backend, id string) float64 {
	var all, own int64
	for _, b := range seen {
		all += b.InFlight.Local
		if b.ID == id {
			own += b.InFlight.Local
		}
	}
	return float64(own) / float64(max(all, 1))
}

func short(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
