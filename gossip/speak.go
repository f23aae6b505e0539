package gossip

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// How often a node speaks. What changes after a pause goes out at the next look;
// what changes soon after goes together. Where many change, more of them go
// together, and every entry is up to a second old.
const (
	lookEvery    = 50 * time.Millisecond
	speakEvery   = 150 * time.Millisecond // between two chunks of changes
	speakPerNode = 4 * time.Millisecond   // but so much for each node, where they are many
	speakRarest  = time.Second
	rateWindow   = 5 * time.Second        // of that rate: a short burst stretches nothing
	freeRate     = 10                     // changed entries per second, up to which speakEvery holds
	nudgeGap     = 2 * time.Millisecond   // between two turns that a nudge brings
	nudgeEvery   = 200 * time.Millisecond // of these, on average
	nudgeBurst   = 20                     // and as many at once
	softWait     = time.Second            // that a change waits which does not matter at once
	fullEvery    = 10 * time.Second       // all there is to say
	hearEvery    = 2 * time.Millisecond   // between two sums, where they cost little
	hearRarest   = 50 * time.Millisecond
	hearIdle     = time.Second // at the latest, so that what expired is out
)

// speaker is what this node said last. Only speakLoop uses it, but for the
// atomics.
type speaker struct {
	number    uint64 // of the last chunk for all
	looks     uint64 // since
	tails     int    // empty chunks since the last that was not
	lastSaid  time.Time
	questions uint64
	said      map[uint64]spoken
	greeted   map[string]greeting
	lastFull  time.Time
	rate      float64 // of changed entries, per second
	lastRate  time.Time
	slow      bool // it was said that it speaks rarely
	nudges    allowance

	latest   atomic.Pointer[snapshot]
	interval atomic.Int64                      // in ns
	ids      atomic.Pointer[map[uint64]string] // our backends by mark
}

// snapshot is all there was to say at a turn, and the version of that. It never
// changes.
type snapshot struct {
	entries []entry
	seq     uint64
}

// A change that is the last one for a while is followed by empty chunks: who
// missed it would learn of that from nothing else before the next full report.
func tailAfter() []time.Duration { return []time.Duration{time.Second, 3 * time.Second} }

// spoken is what was said of one backend, and when.
type spoken struct {
	entry
	at     time.Time
	looked time.Time // the newest look in it
	heard  int64
}

// urgency of a change.
type urgency int

const (
	calm urgency = iota
	soft         // goes with others, or when it has waited
	hard         // goes at the next turn
)

// change tells how urgent it is to say r, coded as e.
func (s spoken) change(r backend.Report, e entry, doubt bool, now time.Time) urgency {
	looks := func() urgency {
		if len(r.Looks) == 0 {
			return calm
		}
		newest := slices.MaxFunc(r.Looks, func(a, b backend.Look) int { return a.At.Compare(b.At) })
		switch {
		case !newest.At.After(s.looked):
			return calm
		case newest.Finding != backend.LookOK || len(s.looks) == 0 || findings()[s.looks[0].finding] != newest.Finding:
			return hard
		}
		return calm
	}
	switch {
	case e.inFlight != s.inFlight, e.draining != s.draining, e.wanting != s.wanting, abs(e.phantoms-s.phantoms) >= 4, (e.phantoms == 0) != (s.phantoms == 0):
		return hard
	case doubt && r.Heard > s.heard && now.Sub(s.at) >= softWait/2, looks() == hard:
		return hard
	case e.running != s.running, e.phantoms != s.phantoms, abs(int(e.speed)-int(s.speed)) >= speedSteps(r.ID):
		return soft
	}
	return calm
}

func abs(n int) int { return max(n, -n) }

// speakLoop tells the others what this node carries.
func (c *Cluster) speakLoop(ctx context.Context) {
	s := &c.speaker
	s.said, s.greeted, s.lastRate = map[uint64]spoken{}, map[string]greeting{}, time.Now()
	s.lastFull = s.lastRate.Add(-rand.N(fullEvery)) // nodes that start together do not say all together
	s.tails = len(tailAfter())
	for {
		nudged, ok := c.awaitTurn(ctx)
		if !ok {
			return
		}
		now := time.Now()
		c.steady.beat(now, lookEvery)
		c.turn(nudged, now)
	}
}

// turn looks, and says what there is to say.
func (c *Cluster) turn(nudged bool, now time.Time) {
	s := &c.speaker
	list := slices.Concat(c.opt.Reports(), c.paces())
	entries, changed, urgent, news := s.look(list, c.sums.Load().doubts, now)
	if news {
		wake(c.heard) // others may have spoken of a new backend already
	}
	all := c.members.peers.Load()
	peers := all.list
	said, pause := 0, now.Sub(s.lastSaid)
	switch {
	case now.Sub(s.lastFull) >= fullEvery:
		s.lastFull, said = now, len(changed)
		c.send(fulls(speaking(entries), c.nextChunk), peers)
		c.noteSaid(list, append(changed, entries...), now)
	case urgent && (nudged || pause >= time.Duration(s.interval.Load())):
		said = len(changed)
		c.send(deltas(changed, c.nextChunk), peers)
		c.noteSaid(list, changed, now)
	case s.tails < len(tailAfter()) && pause >= tailAfter()[s.tails]:
		s.tails++
		c.send([]chunk{c.nextChunk(false)}, peers)
	}
	if said > 0 {
		s.tails, s.lastSaid = 0, now
	}
	s.looks = min(s.looks+1, maxLooks)
	s.latest.Store(&snapshot{entries, c.laterChunk(false).seq})
	if said == 0 {
		changed = nil
	}
	c.stretch(s.loads(changed), 1+len(peers), now)
	c.greet(entries, all, now)
	c.inquire(peers, now)
}

// awaitTurn waits until the next look, which comes no later than something may
// be said again, or until a nudge, if there were not too many of late.
func (c *Cluster) awaitTurn(ctx context.Context) (nudge, ok bool) {
	s := &c.speaker
	wait := jitterLittle(lookEvery)
	if left := time.Until(s.lastSaid.Add(time.Duration(s.interval.Load()))); left > 0 {
		wait = min(wait, left)
	}
	usual := time.NewTimer(wait)
	defer usual.Stop()
	nudged := c.nudged
	if !s.nudges.any(time.Now()) {
		nudged = nil // whoever nudges waits for the usual turn
	}
	select {
	case <-usual.C:
		return false, true
	case <-nudged:
		s.nudges.take()
		select {
		case <-time.After(nudgeGap):
			return true, true
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	return false, false
}

// Nudge has this node tell soon what it carries, as when the last places at a
// backend go. It never waits.
func (c *Cluster) Nudge() { wake(c.nudged) }

// allowance lets so many things happen: nudgeBurst at once, and one for every
// nudgeEvery.
type allowance struct {
	left float64
	at   time.Time
}

func (a *allowance) any(now time.Time) bool {
	if a.at.IsZero() {
		a.left = nudgeBurst
	}
	a.left = min(nudgeBurst, a.left+float64(now.Sub(a.at))/float64(nudgeEvery))
	a.at = now
	return a.left >= 1
}

func (a *allowance) take() { a.left-- }

func jitterLittle(d time.Duration) time.Duration { return d - d/20 + rand.N(d/20+1) }

// look codes all, and finds what changed since it was said.
func (s *speaker) look(list []backend.Report, doubts map[string]bool, now time.Time) (entries, changed []entry, urgent, news bool) {
	ids := make(map[uint64]string, len(list))
	for _, r := range list {
		e := toEntry(r, now)
		if _, twice := ids[e.mark]; twice {
			continue // two ids with one mark: the first is spoken of
		}
		ids[e.mark] = r.ID
		entries = append(entries, e)
		was, ok := s.said[e.mark]
		if !ok {
			was.entry.heard = -1
		}
		switch u := was.change(r, e, doubts[r.ID], now); {
		case u == hard:
			changed, urgent = append(changed, e), true
		case u == soft:
			changed = append(changed, e)
			urgent = urgent || now.Sub(was.at) >= softWait
		}
	}
	for mark := range s.said {
		if _, still := ids[mark]; !still { // no longer configured here: say that nothing is there
			changed, urgent = append(changed, entry{mark: mark, heard: -1}), true
		}
	}
	news = !maps.Equal(ids, *s.ids.Load())
	if news {
		s.ids.Store(&ids)
	}
	return entries, changed, urgent, news
}

func speaking(entries []entry) []entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return !e.says() })
}

// noteSaid remembers what the others now know.
func (c *Cluster) noteSaid(list []backend.Report, entries []entry, now time.Time) {
	s := &c.speaker
	byMark := make(map[uint64]backend.Report, len(list))
	for _, r := range list {
		byMark[markOf(r.ID)] = r
	}
	for _, e := range entries {
		r, ok := byMark[e.mark]
		if !ok {
			delete(s.said, e.mark)
			continue
		}
		said := spoken{entry: e, at: now, heard: r.Heard}
		for _, l := range r.Looks {
			if l.At.After(said.looked) {
				said.looked = l.At
			}
		}
		s.said[e.mark] = said
	}
}

// stretch lets a node on which much changes speak more rarely, and tells.
func (c *Cluster) stretch(changed, nodes int, now time.Time) {
	s := &c.speaker
	passed := now.Sub(s.lastRate).Seconds()
	s.lastRate = now
	keep := math.Exp(-passed / rateWindow.Seconds())
	s.rate = s.rate*keep + float64(changed)/rateWindow.Seconds()
	usual := min(max(speakEvery, speakPerNode*time.Duration(nodes)), speakRarest)
	is := min(max(time.Duration(float64(usual)*s.rate/freeRate), usual), speakRarest)
	s.interval.Store(int64(is))
	c.sayPace(is, usual)
}

// sayPace logs when the node begins to speak much more rarely, and when it is
// back.
func (c *Cluster) sayPace(is, usual time.Duration) {
	switch s := &c.speaker; {
	case !s.slow && is > max(speakRarest/2, usual):
		s.slow = true
		c.log.Info("much changes here: reports go out up to a second apart", "changed_per_second", int(s.rate))
	case s.slow && is == usual:
		s.slow = false
		c.log.Info("reports go out at their usual pace again")
	}
}

// nextChunk and laterChunk are for speakLoop alone: the versions of its chunks
// are in the order in which it looked. The next chunk goes to all.
func (c *Cluster) nextChunk(full bool) chunk {
	c.speaker.number++
	c.speaker.looks = 0
	return c.laterChunk(full)
}

// laterChunk says what was seen at the last look: at one look, under one
// version, always the same.
func (c *Cluster) laterChunk(full bool) chunk {
	return chunk{origin: markOf(c.opt.ID), boot: c.boot, seq: c.speaker.number<<lookBits | c.speaker.looks, full: full}
}

// send gives each chunk to each peer: sealed once, since it is the same.
func (c *Cluster) send(chunks []chunk, to []peer) {
	if len(to) == 0 {
		return
	}
	for _, ch := range chunks {
		body := ch.encode()
		if len(body) > maxChunk {
			panic("BUG: a chunk larger than its bound")
		}
		c.net.broadcast(kindReport, body, to)
	}
}

// onReport takes another node's chunk from the wire.
func (c *Cluster) onReport(body []byte, now time.Time) error {
	ch, err := decodeChunk(body)
	if err != nil {
		return refuse(causeBroken, "%v", err)
	}
	p := c.members.peers.Load()
	i, ok := p.byMark[ch.origin]
	switch {
	case !ok:
		return refuse(causeStranger, "")
	case p.list[i].boot != ch.boot:
		return refuse(causeOld, "")
	}
	ch.received = now
	if c.reports.merge(ch) {
		wake(c.heard)
	}
	return nil
}

// hearLoop makes the sums anew when something new was said, or somebody came or
// went.
func (c *Cluster) hearLoop(ctx context.Context) {
	pause := hearEvery
	for {
		select {
		case <-c.heard:
		case <-time.After(hearIdle):
		case <-ctx.Done():
			return
		}
		start := time.Now()
		c.hear(start)
		// At most a fiftieth of a core; but a turn that took long because others had
		// the core must not make this node deaf.
		pause = min(max(hearEvery, 50*time.Since(start)), hearRarest)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

func (c *Cluster) hear(now time.Time) {
	p := c.members.peers.Load()
	ids := c.speaker.ids.Load()
	before := c.sums.Load()
	s := c.reports.sum(before, p, ids, now)
	c.sums.Store(s)
	news := News{Elsewhere: s.elsewhere, Looked: s.looked, Paces: s.paces}
	if p != before.peers { // who checks what may have changed
		news.Looked = slices.Collect(maps.Values(*ids))
	}
	c.opt.Hear(news)
}

// News is what the others say of this node's backends.
type News struct {
	Elsewhere map[string]backend.Elsewhere // of all, by id
	Paces     map[string]float64           // requests a second that begin at the others, by pool
	Looked    []string                     // those whose testimonies are not the same as last time, or about whose checks others decide now
}

// Said is what the others' reports say of a backend's health, at most a moment
// old.
func (c *Cluster) Said(id string) []Testimony { return c.sums.Load().said[id] }
