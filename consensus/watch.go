package consensus

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/starling-lb/starling/consensus/store"
)

const (
	parkedRest   = 2 * time.Second
	parkedRestTo = time.Minute
	jamFactor    = 3 // heartbeats for which a transfer may refuse commands
	hintStep     = 250 * time.Millisecond
)

// report returns how the parts of a life say that it must end. It never waits.
func (g *Group) report(l *life) func(cause) {
	return func(c cause) {
		select {
		case g.causes <- report{l, c}:
		default: // the first is enough
		}
	}
}

func (g *Group) kick() {
	select {
	case g.observed <- raft.Observation{}:
	default: // it will look anyway
	}
}

// watchLoop is all that happens to a replica by itself. What Raft tells wakes it
// and no more: it looks for itself what is so now, and so misses nothing.
func (g *Group) watchLoop() {
	tick := time.NewTicker(g.o.Timing.Heartbeat)
	defer tick.Stop()
	w := watch{g: g, lag: make(map[raft.ServerID]lag), rest: g.rest}
	w.hurry()
	for {
		select {
		case <-g.ctx.Done():
			if l := g.current(); l != nil { // also one that began as the group was stopped
				l.end(g.ctx, ErrStopped)
				<-l.ended
			}
			return
		case <-g.observed:
		case <-tick.C:
			w.inspect()
		case r := <-g.causes:
			if r.from == g.current() {
				w.replace(r.from, r.cause)
			}
		case node := <-g.hints:
			w.hint(node)
		case <-w.campaign:
			w.run()
		case <-w.again:
			w.begin()
		}
		w.look()
	}
}

// watch is what the loop remembers.
type watch struct {
	g     *Group
	lag   map[raft.ServerID]lag // of followers, while leader
	rest  time.Duration
	again <-chan time.Time // when to begin after a failure

	campaign <-chan time.Time // when to ask for the office of gone
	gone     string
}

// lag is how far a follower was, and since when it has not got further.
type lag struct {
	match uint64
	since time.Duration
}

// look opens a term that began, and tells what changed.
func (w *watch) look() {
	g := w.g
	l := g.current()
	s := g.State()
	if l != nil && s.Led && l.led != s.Term {
		l.led = s.Term
		l.batch.open()
	}
	g.mu.Lock()
	same := s == g.told
	g.told = s
	g.mu.Unlock()
	if same {
		return
	}
	if l != nil {
		l.wire.acks.kick() // who waits for a proof may wait in vain
	}
	if g.changed != nil {
		g.changed(s)
	}
}

// replace ends a life, and begins another where that helps.
func (w *watch) replace(l *life, c cause) {
	g := w.g
	g.mu.Lock()
	g.life, g.fault = nil, c.err
	g.mu.Unlock()
	w.look() // says so before the wait
	l.end(g.ctx, fmt.Errorf("%v: %w: %w", g.ID, ErrStopped, c.err))
	<-l.ended // two lives on the same logs would be two voters
	switch c.kind {
	case halted:
		g.log.Error("replica has halted and stays so; the others go on without it", "err", c.err)
	case parked:
		w.later("replica is out: its disk failed; it is tried again", c.err)
	case renewed:
		g.log.Warn("replica was stuck and starts anew", "err", c.err)
		w.begin()
	}
}

// begin starts the next life, or plans to try again.
func (w *watch) begin() {
	g := w.g
	w.again = nil
	if g.ctx.Err() != nil {
		return
	}
	l, err := g.begin()
	g.mu.Lock()
	g.life, g.fault = l, err
	g.mu.Unlock()
	if err != nil {
		w.later("replica does not start; it is tried again", err)
		return
	}
	w.hurry()
}

// later plans the next try. A store that has failed has said so itself, once for
// all replicas.
func (w *watch) later(text string, err error) {
	level := slog.LevelError
	if errors.Is(err, store.ErrFailed) {
		level = slog.LevelDebug
	}
	w.g.log.Log(w.g.ctx, level, text, "err", err, "in", w.rest)
	w.again = time.After(w.rest)
	w.rest = min(2*w.rest, parkedRestTo)
}

// hurry has the only voter of a group lead at once: there is no other to wait for.
func (w *watch) hurry() {
	l := w.g.current()
	if l == nil {
		return
	}
	voters := 0
	for _, s := range l.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter {
			voters++
		}
	}
	if voters == 1 && l.votes(w.g.name) {
		w.gone, w.campaign = "", time.After(0)
	}
}

// inspect looks for what Raft does not get out of by itself.
func (w *watch) inspect() {
	g := w.g
	l := g.current()
	if l == nil {
		return
	}
	if jam := l.batch.jam(); jam > jamFactor*g.o.Timing.Heartbeat && !g.noCures.jam.Load() {
		g.report(l)(cause{renewed, fmt.Errorf("commands have been refused for %v because of a leadership transfer that does not end", jam.Round(time.Millisecond))})
		return
	}
	if l.raft.State() != raft.Leader {
		clear(w.lag)
		return
	}
	if !g.noCures.behind.Load() {
		w.findBehind(l)
	}
	w.rest = g.rest // it leads: all is well
}

// findBehind asks followers to start anew that hear us and yet do not catch up.
func (w *watch) findBehind(l *life) {
	g := w.g
	term, commit, at := l.raft.CurrentTerm(), l.raft.CommitIndex(), now()
	for _, s := range l.raft.GetConfiguration().Configuration().Servers {
		if string(s.ID) == g.name {
			continue
		}
		k := l.wire.acks.of(s.ID, term)
		was, known := w.lag[s.ID]
		switch {
		case k.match >= commit || k.snaps > 0 || at-k.sent > g.o.Timing.Heartbeat: // well, being helped, or not there
			delete(w.lag, s.ID)
		case !known || k.match > was.match:
			w.lag[s.ID] = lag{k.match, at}
		case at-was.since > g.o.Timing.Behind:
			w.lag[s.ID] = lag{k.match, at}
			g.log.Warn("a follower answers heartbeats and does not catch up; it is asked to start anew", "peer", s.ID, "match", k.match, "commit", commit)
			l.start(func() { g.askToRenew(nodeOf(s.ID), term) })
		}
	}
}

// hint is told that a node's process has ended. The voters that are left ask for
// its office one after the other, in an order that is another for each shard, so
// that they do not split the votes.
func (w *watch) hint(node string) {
	l := w.g.current()
	if l == nil {
		return
	}
	_, leader := l.raft.LeaderWithID()
	if w.g.noCures.hint.Load() || nodeOf(leader) != node || l.raft.State() != raft.Follower {
		return
	}
	var left []string
	for _, s := range l.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter && nodeOf(s.ID) != node {
			left = append(left, string(s.ID))
		}
	}
	slices.SortFunc(left, func(a, b string) int { return strings.Compare(w.g.rank(a), w.g.rank(b)) })
	if i := slices.Index(left, w.g.name); i >= 0 {
		w.gone = node
		w.campaign = time.After(time.Duration(i) * hintStep)
	}
}

func (g *Group) rank(node string) string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s", g.ID.Shard, node) // never fails
	return string(h.Sum(nil))
}

// run stands for election at once, in the way of a leadership transfer: others
// vote although they have heard of a leader lately. Terms and logs decide as ever,
// so a wrong hint costs a change of leader and no more.
func (w *watch) run() {
	w.campaign = nil
	l := w.g.current()
	if l == nil || l.raft.State() != raft.Follower {
		return
	}
	// The term may have moved on: the first may have asked in vain, for want of the last entries.
	if _, leader := l.raft.LeaderWithID(); leader != "" && nodeOf(leader) != w.gone {
		return
	}
	if w.gone != "" {
		w.g.log.Info("the leader's process has ended; this node stands for election", "leader", w.gone)
	}
	l.start(func() {
		own := raft.ServerID(w.g.name)
		_ = l.wire.TimeoutNow(own, raft.ServerAddress(own), &raft.TimeoutNowRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(own), Addr: []byte(own)},
		}, &raft.TimeoutNowResponse{}) // failed: Raft's own timer elects, later
	})
}

// askToRenew is the call behind findBehind.
func (g *Group) askToRenew(node string, term uint64) {
	ctx, cancel := context.WithTimeout(g.ctx, rpcTime)
	defer cancel()
	if _, err := g.o.Transport.Call(ctx, node, renewService, encodeRenew(g.ID, term)); err != nil {
		g.log.Warn("the follower could not be asked to start anew", "peer", node, "err", err)
	}
}
