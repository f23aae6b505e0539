package meta

import (
	"context"
	"time"
)

// office is what the leader of meta remembers. It dies with the term: a successor
// sees for itself.
type office struct {
	term   uint64
	since  time.Duration
	gone   map[string]time.Duration // by node: since when gossip has not seen it alive
	heard  map[string]hearing       // by node: its last report
	groups map[int]hearing          // by shard: its leader's last report
}

type hearing struct {
	at    time.Duration
	group Group
}

// decide decides, if meta is led here.
func (k *Keeper) decide() {
	ctx, cancel := context.WithTimeout(k.ctx, stepTime)
	defer cancel()
	if err := k.control(ctx); err != nil && k.ctx.Err() == nil {
		k.o.Log.Warn("a decision was not written; it is made again", "err", err)
	}
}

// control makes one round of decisions.
func (k *Keeper) control(ctx context.Context) error {
	st, open := k.o.Groups.Status(0)
	if !open || !st.Open || !k.leads() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.office = nil
		return nil
	}
	k.hear(k.o.Self, question{Node: k.o.Neighbours.Peers()[k.o.Self].Node, Groups: k.led()})
	m, _ := k.o.Machine.Map()
	for _, c := range Plan(m, k.see()) {
		if _, err := k.propose(ctx, c); err != nil {
			return err // what was planned after it may not hold
		}
		k.o.Log.Info("meta has decided", "op", string(c.Op), "key", c.Key, "number", c.Number, "step", c.step())
	}
	return nil
}

// step says what a command does to a shard, for the log.
func (c Command) step() string {
	if c.Shard == nil || c.Shard.Step == nil {
		return ""
	}
	return string(c.Shard.Step.Kind) + ": " + c.Shard.Step.Reason
}

// hear takes a node's report, while meta is led here.
func (k *Keeper) hear(from string, q question) {
	st, _ := k.o.Groups.Status(0)
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.o.Now()
	if k.office == nil || k.office.term != st.Term {
		k.office = &office{term: st.Term, since: now, gone: make(map[string]time.Duration), heard: make(map[string]hearing), groups: make(map[int]hearing)}
	}
	o := k.office
	o.heard[from] = hearing{at: now}
	for shard, g := range q.Groups {
		old := o.groups[shard]
		if g.Leader == from && (g.Incarnation > old.group.Incarnation || g.Incarnation == old.group.Incarnation && g.Term >= old.group.Term) {
			o.groups[shard] = hearing{now, g}
		}
	}
}

// see is what the controller sees now.
func (k *Keeper) see() Seen {
	peers := k.o.Neighbours.Peers()
	k.mu.Lock()
	defer k.mu.Unlock()
	now, o := k.o.Now(), k.office
	seen := Seen{Peers: make(map[string]Peer), Groups: make(map[int]Group), Silent: make(map[int]time.Duration), Led: now - o.since}
	for id, p := range peers {
		if p.Alive {
			delete(o.gone, id)
		} else if _, known := o.gone[id]; !known {
			o.gone[id] = now
		}
		if !p.Alive {
			p.Gone = now - o.gone[id]
		}
		h, heard := o.heard[id]
		p.Heard = heard && now-h.at < fresh
		seen.Peers[id] = p
	}
	for shard := range k.o.machineShards() {
		h, heard := o.groups[shard]
		switch {
		case !heard:
			seen.Silent[shard] = now - o.since
		case now-h.at < fresh:
			seen.Groups[shard] = h.group
		default:
			seen.Silent[shard] = now - h.at
		}
	}
	return seen
}

func (o Options) machineShards() []Shard {
	m, _ := o.Machine.Map()
	return m.Shards
}
