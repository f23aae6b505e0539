package meta

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// office is what the leader of meta remembers. It dies with the term: a successor
// sees for itself.
type office struct {
	term   uint64
	since  time.Duration
	heard  map[string]hearing      // by node: its last report
	groups map[int]hearing         // by shard: its leader's last report
	named  map[named]time.Duration // when a live node named the backend last
	begun  map[int]beginning       // by shard: the incarnation that the map has
}

// beginning is since when a shard's incarnation is there, as far as the office knows.
type beginning struct {
	incarnation uint32
	at          time.Duration
}

type named struct{ pool, id string }

type hearing struct {
	at    time.Duration
	group Group
	hash  uint64 // of names
	names map[string]Named

	run  uint64
	runs []uint64
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
	k.observe()
	st, open := k.o.Groups.Status(0)
	if !open || !st.Open || !k.leads() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.office = nil
		return nil
	}
	own := question{Groups: k.led(), Run: k.o.Run, Runs: k.runs}
	if k.name(&own); k.o.Names != nil {
		own.Names = k.o.Names()
	}
	k.hear(k.o.Self, own)
	m, _ := k.o.Machine.Map()
	for _, c := range Plan(m, k.see()) {
		if _, err := k.propose(ctx, c); err != nil {
			return err // what was planned after it may not hold
		}
		k.o.Log.Info("meta has decided", "op", string(c.Op), "key", c.Key, "number", c.Number, "step", c.step())
	}
	return nil
}

// observe returns the nodes that gossip knows, and those of the map that it has
// forgotten, and for how long each is gone. Every node counts that, whoever leads
// meta: a new leader need not begin to.
func (k *Keeper) observe() map[string]Peer {
	peers, m := k.o.Neighbours.Peers(), k.Map()
	if m == nil {
		return peers
	}
	for id, n := range m.Nodes {
		if _, known := peers[id]; !known && n.State != Removed {
			peers[id] = Peer{Node: n}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.o.Now()
	maps.DeleteFunc(k.gone, func(id string, _ time.Duration) bool { p, known := peers[id]; return !known || p.Alive })
	for id, p := range peers {
		if p.Alive {
			continue
		}
		if _, gone := k.gone[id]; !gone {
			k.gone[id] = now
		}
		p.Gone = now - k.gone[id]
		peers[id] = p
	}
	return peers
}

// Pauses says why nothing is repaired while the nodes are as they are; "": it is.
func (k *Keeper) Pauses() string {
	m := k.Map()
	switch {
	case m == nil:
		return ""
	case k.fenced():
		return "the cluster was recovered without this node, which waits for the map of those that did it"
	case !(&plan{m: m, seen: Seen{Peers: k.observe()}}).panics():
		return ""
	}
	return fmt.Sprintf("more than a third of the nodes look dead, which is probably the network: no node is declared dead, and no replica is replaced, before those have been gone for %v", panicFor)
}

// step says what a command does to a shard, for the log.
func (c Command) step() string {
	if c.Shard == nil || c.Shard.Step == nil {
		return ""
	}
	return string(c.Shard.Step.Kind) + ": " + c.Shard.Step.Reason
}

// hear takes a node's report, while meta is led here, and returns the hash of what
// it knows the node to name.
func (k *Keeper) hear(from string, q question) uint64 {
	st, _ := k.o.Groups.Status(0)
	shards := len(k.o.machineShards())
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.o.Now()
	if k.office == nil || k.office.term != st.Term {
		k.office = &office{term: st.Term, since: now, heard: make(map[string]hearing), groups: make(map[int]hearing), named: make(map[named]time.Duration), begun: make(map[int]beginning)}
	}
	o := k.office
	h := o.heard[from]
	h.at, h.run, h.runs = now, q.Run, q.Runs
	if q.Names != nil || q.Hash == 0 {
		h.hash, h.names = q.Hash, q.Names
	}
	o.heard[from] = h
	for shard, g := range q.Groups {
		old := o.groups[shard]
		if g.Leader == from && shard < shards && (g.Incarnation > old.group.Incarnation || g.Incarnation == old.group.Incarnation && g.Term >= old.group.Term) {
			o.groups[shard] = hearing{at: now, group: g}
		}
	}
	return h.hash
}

// see is what the controller sees now.
func (k *Keeper) see() Seen {
	peers := k.observe()
	k.mu.Lock()
	defer k.mu.Unlock()
	now, o := k.o.Now(), k.office
	seen := Seen{Peers: make(map[string]Peer), Groups: make(map[int]Group), Silent: make(map[int]time.Duration), Led: now - o.since, Wall: uint64(time.Now().UnixMilli())}
	k.seeNames(&seen)
	for id, p := range peers {
		h, heard := o.heard[id]
		p.Heard, p.Run, p.Runs = heard && now-h.at < fresh, h.run, h.runs
		seen.Peers[id] = p
	}
	for shard, s := range k.o.machineShards() {
		h, heard := o.groups[shard]
		began := o.beginning(shard, s.Incarnation, now)
		if heard && now-h.at < fresh {
			seen.Groups[shard] = h.group
		} else {
			seen.Silent[shard] = now - max(began, h.at)
		}
	}
	return seen
}

// beginning is since when the map has a shard's incarnation. How long the one before
// was silent is no fault of it.
func (o *office) beginning(shard int, incarnation uint32, now time.Duration) time.Duration {
	b, known := o.begun[shard]
	if !known {
		b = beginning{incarnation, o.since}
	} else if b.incarnation != incarnation {
		b = beginning{incarnation, now}
	}
	o.begun[shard] = b
	return b.at
}

// seeNames adds what live nodes name, and what no live node does; the lock is held.
func (k *Keeper) seeNames(seen *Seen) {
	now, o := k.o.Now(), k.office
	seen.Named, seen.Missed = make(map[string]map[string]Named), make(map[string]map[string]time.Duration)
	for id, h := range o.heard {
		if now-h.at >= fresh || h.names == nil {
			continue
		}
		seen.Named[id] = make(map[string]Named)
		for pool, n := range h.names {
			n.Backends = slices.DeleteFunc(slices.Clone(n.Backends), func(b Backend) bool { return (Pool{Backends: []Backend{b}}).check() != nil })
			seen.Named[id][pool] = n
			for _, b := range n.Backends {
				o.named[named{pool, b.ID}] = now
			}
		}
	}
	m, _ := k.o.Machine.Map()
	for pool, p := range m.Pools {
		seen.Missed[pool] = make(map[string]time.Duration)
		for _, b := range p.Backends {
			seen.Missed[pool][b.ID] = now - max(o.since, o.named[named{pool, b.ID}])
		}
	}
	maps.DeleteFunc(o.named, func(n named, at time.Duration) bool { return now-at > 2*deadAfter })
}

func (o Options) machineShards() []Shard {
	m, _ := o.Machine.Map()
	return m.Shards
}
