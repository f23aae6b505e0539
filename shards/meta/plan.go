package meta

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Plan is the controller: what the leader of meta proposes, seeing what it sees.
// It is asked again and again, and remembers nothing; what was begun is in the map.
func Plan(m *Map, seen Seen) []Command {
	p := &plan{m: m, seen: seen}
	p.planNodes()
	p.planLevel()
	p.planPools()
	p.planShards()
	return p.commands
}

// plan is one time of asking.
type plan struct {
	m        *Map // with what is proposed already
	seen     Seen
	commands []Command
}

// propose adds a command, if it is one that would be done.
func (p *plan) propose(c Command) {
	if next, r := Apply(p.m, c); r.Refused == nil {
		p.m = next
		p.commands = append(p.commands, c)
	}
}

func (p *plan) setNode(id string, n Node) {
	p.propose(Command{Op: OpNode, Key: id, Seen: p.m.Nodes[id].Revision, Node: &n})
}

// planNodes writes down who is there.
func (p *plan) planNodes() {
	panics := p.panics()
	for _, id := range slices.Sorted(maps.Keys(p.seen.Peers)) {
		p.planPeer(id, p.seen.Peers[id], panics)
	}
	for _, id := range p.m.sorted(func(n Node) bool { return n.State != Removed }) {
		n := p.m.Nodes[id]
		if _, seen := p.seen.Peers[id]; !seen && !panics && p.seen.Led >= deadAfter {
			p.planPeer(id, Peer{Node: n, Gone: p.seen.Led}, panics) // gossip has forgotten it
		}
	}
}

func (p *plan) planPeer(id string, peer Peer, panics bool) {
	n, known := p.m.Nodes[id]
	next := peer.Node
	next.State, next.Leaving, next.Revision = n.State, n.Leaving, n.Revision
	next.Run, next.Since = n.Run, n.Since
	if peer.Alive && peer.Heard {
		next.Run, next.Since = cmp.Or(peer.Run, n.Run), 0
	}
	switch left := n.State == Removed && n.Leaving && peer.Boot <= n.Boot; {
	case !peer.Alive && !known, left: // it is not missed, or has not ended yet
		return
	case peer.Alive && n.forgot(peer) && !p.disown(id):
		return // first that, or it would be forgotten again
	case !peer.Alive:
		next = n
		if next.State = p.fate(id, n, peer, panics); next.State == Dead && n.State != Dead {
			next.Since = p.seen.Wall
		}
	case n.State == Draining && n.Leaving && !p.m.used(id):
		next.State = Removed
	case peer.Level < p.m.Level && n.State != Active && n.State != Draining:
		next.State = cmp.Or(n.State, Joining) // its replicas would halt at what the others do
	case n.State == Dead && n.Leaving && peer.Heard:
		next.State = Draining // it goes on leaving
	case n.State == Removed && peer.Heard, n.State == Dead && peer.Heard, n.State == Joining && peer.Heard:
		next.State, next.Leaving = Active, false
	case !known || n.State == Removed:
		next.State, next.Leaving = Joining, false
	}
	if next != n || !known {
		p.setNode(id, next)
	}
}

// fate is the state of a node that is not seen alive.
func (p *plan) fate(id string, n Node, peer Peer, panics bool) NodeState {
	switch {
	case n.State == Removed, panics:
	case n.State == Draining && n.Leaving && !p.m.used(id):
		return Removed
	case n.State != Dead && peer.Gone >= deadAfter:
		return Dead
	case n.State == Dead && !p.m.used(id) && (peer.Gone >= forgetAfter || n.Since > 0 && p.seen.Wall >= n.Since+uint64(forgetAfter.Milliseconds())):
		return Removed
	}
	return n.State
}

// panics tells whether so many nodes look dead that it is probably this one: then
// nobody is declared dead, and nothing is repaired. Who has been gone for long does
// not count: a network would be back, and meta has a majority all the while.
func (p *plan) panics() bool {
	nodes, gone := 0, 0
	for id, n := range p.m.Nodes {
		if n.State != Active && !((n.State == Dead || n.State == Draining) && p.m.used(id)) || p.seen.Peers[id].Gone >= panicFor {
			continue
		}
		nodes++
		if !p.seen.Peers[id].Alive {
			gone++
		}
	}
	return 3*gone > nodes
}

// missing tells whether a node that holds replicas is not seen alive: it comes back
// soon, or what it held is given to others first.
func (p *plan) missing() bool {
	for id := range p.m.Nodes {
		if !p.seen.Peers[id].Alive && p.m.used(id) {
			return true
		}
	}
	return false
}

// planLevel raises what the cluster does to what all of it can do.
func (p *plan) planLevel() {
	level := uint32(0)
	for _, n := range p.m.Nodes {
		if n.counts() && (level == 0 || n.Level < level) {
			level = n.Level
		}
	}
	if level > p.m.Level {
		p.propose(Command{Op: OpLevel, Level: level})
	}
}

// planShards gives the shards what they lack, first the one that has least of it.
func (p *plan) planShards() {
	joining := len(p.m.sorted(func(n Node) bool { return n.State == Joining })) > 0
	for i := range p.m.Shards {
		switch s := p.m.Shards[i]; {
		case i > 0 && p.seen.Groups[i].Incarnation > s.Incarnation:
			p.regain(i, s, p.seen.Groups[i]) // a generation of which this map does not know has made it anew, perhaps more often than this one
		case s.Phase == Planned && !p.early() && (!joining || p.seen.Led >= joinWait):
			p.create(i, Create, "the cluster is founded")
		case s.Phase == Creating:
			p.attend(i)
		case s.Phase == Ready && s.Step != nil:
			p.follow(i)
		}
	}
	kinds := []func(int, Shard) bool{p.replace, p.grow, p.evacuate, p.shrink, p.spread}
	switch {
	case p.panics():
		kinds = kinds[1:2] // to grow takes nothing from anybody
	case p.missing():
		kinds = kinds[:4] // nothing is even while a node that is gone is counted
	}
	for _, kind := range kinds {
		for i := range p.m.Shards[1:] {
			if s := p.m.Shards[i+1]; s.Phase == Ready && s.Step == nil && p.known(i+1) {
				kind(i+1, s)
			}
		}
	}
	p.planMeta()
}

// planMeta changes meta's own members last, and only while no other shard is on
// its way that could get there: the ground is not moved while one stands on it.
// But for growth, which comes first: until then one node holds it all.
func (p *plan) planMeta() {
	s := p.m.Shards[0]
	if s.Step != nil || !p.known(0) || p.grow(0, s) || p.anyStep() {
		return
	}
	if p.panics() || p.replace(0, s) || p.evacuate(0, s) || p.shrink(0, s) {
		return
	}
}

// anyStep tells whether a shard that has a leader is under way.
func (p *plan) anyStep() bool {
	for i, s := range p.m.Shards {
		if s.Step != nil && p.known(i) {
			return true
		}
	}
	return false
}

// known tells whether the leader of the shard's present life has reported.
func (p *plan) known(i int) bool {
	g, ok := p.seen.Groups[i]
	return ok && g.Incarnation == p.m.Shards[i].Incarnation
}

func (p *plan) setShard(i int, s Shard) {
	p.propose(Command{Op: OpShard, Number: i, Seen: p.m.Shards[i].Revision, Shard: &s})
}

// create has a shard made: all its replicas are named at once, and one of them
// begins, the one that begins fewest.
func (p *plan) create(i int, kind Kind, reason string) {
	replicas, voters := p.m.sizes()
	s := Shard{Incarnation: p.m.Shards[i].Incarnation + 1, Phase: Creating}
	loads, begun := p.m.loads(), make(map[string]int)
	for _, o := range p.m.Shards[1:] {
		begun[o.Founder]++
	}
	for range replicas {
		if to := p.m.best(i, s.Replicas, loads, p.lives); to != "" {
			s.Replicas = add(s.Replicas, Replica{Node: to})
		}
	}
	if len(s.Replicas) == 0 {
		return
	}
	s.Founder = slices.MinFunc(s.Replicas, func(a, b Replica) int { return begun[a.Node] - begun[b.Node] }).Node
	vote(i, s.Replicas, voters, s.Founder)
	s.Step = &Step{Kind: kind, Node: s.Founder, Reason: reason}
	p.setShard(i, s)
}

// attend waits for a shard's founder.
func (p *plan) attend(i int) {
	s := p.m.Shards[i]
	founder := p.m.Nodes[s.Founder]
	switch {
	case p.known(i) && p.seen.Groups[i].within(s.Replicas):
		s.Phase = Ready
		p.setShard(i, s)
	case p.known(i): // a recovered map is of when it was made, and it has gone on
		p.regain(i, s, p.seen.Groups[i])
	case p.early():
	case s.Step != nil && s.Step.Kind == Reset:
		if gone := fmt.Sprintf("node %s, which was to make it anew, is dead; reset it again", p.name(s.Founder)); founder.State == Dead && s.Step.Reason != gone {
			s.Step = &Step{Kind: Reset, Node: s.Founder, Reason: gone}
			p.setShard(i, s)
		} else if p.seen.Peers[s.Founder].Alive && p.seen.Silent[i] >= deadAfter {
			s.Incarnation++ // what is left of it is there and nowhere else
			s.Replicas = []Replica{{Node: s.Founder, Voter: true}}
			p.setShard(i, s)
		}
	case founder.State == Dead || founder.State == Removed || p.seen.Peers[s.Founder].Alive && p.seen.Silent[i] >= deadAfter:
		p.create(i, Create, fmt.Sprintf("node %s did not create incarnation %d", p.name(s.Founder), s.Incarnation))
	}
}

// early tells whether meta was recovered, from a map that may not know what was made,
// and leaders of shards may not have had the time to say that they lead.
func (p *plan) early() bool { return p.m.Generation() > 1 && p.seen.Led < joinWait }

func (p *plan) name(id string) string { return p.m.name(id) }

// lives tells whether a node is there and can keep what it gets.
func (p *plan) lives(id string) bool { return p.seen.Peers[id].Alive && !p.seen.Peers[id].Failed }

// fit tells whether a node may get replicas, and keep those that it has.
func (p *plan) fit(id string) bool { return p.m.Nodes[id].fit() && !p.seen.Peers[id].Failed }
