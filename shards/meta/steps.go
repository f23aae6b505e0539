package meta

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Limits of what moves at the same time.
const (
	copiesPerNode    = 2
	copiesPerCluster = 4
)

// follow ends a shard's step once its group is as it should be, and changes it
// where a node it waits for will not come, or one that was to stay has died.
func (p *plan) follow(i int) {
	s := p.m.Shards[i]
	g, ok := p.seen.Groups[i]
	if ok && s.Step.Kind == Regain && g.Incarnation >= s.Incarnation {
		p.regain(i, s, g)
		return
	}
	if !ok || g.Incarnation != s.Incarnation {
		return
	}
	if g.as(s.Replicas) {
		s.Step = nil
		p.setShard(i, s)
		return
	}
	for _, r := range s.Replicas {
		if m, _ := g.member(r); p.m.Nodes[r.Node].State == Dead || m.Node == "" && p.seen.Peers[r.Node].Failed || (m.Node == "" || m.Voter != r.Voter) && !p.fit(r.Node) && r.Voter {
			p.rethink(i, s, g)
			return
		}
	}
}

// regain takes a shard as its group is, after a recovery from a map that may not
// know of its last steps. Who is in no group lets go of its replica then.
func (p *plan) regain(i int, s Shard, g Group) {
	now := s.Replicas
	s.Incarnation, s.Phase, s.Replicas = g.Incarnation, Ready, nil
	for _, m := range g.Members {
		if n, known := p.m.Nodes[m.Node]; !known || n.State == Removed {
			continue // it is gone, or will be a node of the cluster again
		}
		if r, twice := s.Wants(m.Node); !twice || m.Life > r.Life {
			s.Replicas = add(without(s.Replicas, m.Node), Replica{m.Node, m.Life, m.Voter})
		}
	}
	step := Step{Kind: Replace, Node: g.Leader, Reason: "shard 0 was recovered, and the group is as it says itself"}
	var old []string
	if s.Step != nil {
		old, step.Node = s.Step.Leaving, s.Step.Node
	}
	for _, r := range now {
		old = append(slices.Clip(old), r.Node)
	}
	for _, m := range g.Members {
		old = append(old, m.Node)
	}
	step.Leaving = s.leaving(old)
	s.Step = &step
	p.setShard(i, s)
}

// rethink begins again from the members there are; dead ones without a vote are
// worth nothing.
func (p *plan) rethink(i int, s Shard, g Group) {
	s.Replicas = nil
	for _, m := range g.Members {
		if !m.Voter && p.m.Nodes[m.Node].State == Dead {
			continue
		}
		if r, twice := s.Wants(m.Node); !twice {
			s.Replicas = add(s.Replicas, Replica{m.Node, m.Life, m.Voter})
		} else if m.Life > r.Life {
			s.Replicas = add(without(s.Replicas, m.Node), Replica{m.Node, m.Life, m.Voter})
		}
	}
	for _, kind := range []func(int, Shard) bool{p.shrink, p.replace, p.grow, p.evacuate} {
		if kind(i, s) {
			return
		}
	}
	p.step(i, s, s.Replicas, Step{Kind: s.Step.Kind, Node: s.Step.Node, Reason: "a node that was to come or stay is gone"})
}

// step has a shard's replicas become others. Nodes that lose theirs keep them
// until the group has let them go.
func (p *plan) step(i int, s Shard, next []Replica, step Step) {
	now := p.m.Shards[i]
	if now.Step != nil && slices.EqualFunc(now.Replicas, next, func(a, b Replica) bool { return a.Node == b.Node && a.Voter == b.Voter }) {
		return // that is under way
	}
	old := []string{}
	for _, r := range slices.Concat(now.Replicas, s.Replicas) {
		old = append(old, r.Node)
	}
	if now.Step != nil {
		old = append(old, now.Step.Leaving...)
	}
	for _, m := range p.seen.Groups[i].Members {
		old = append(old, m.Node)
	}
	s.Replicas = next
	step.Leaving = s.leaving(old)
	s.Step = &step
	p.setShard(i, s)
}

// leaving are those of the nodes, each once, that no replica is wanted of.
func (s Shard) leaving(nodes []string) (leaving []string) {
	for _, node := range slices.Compact(slices.Sorted(slices.Values(nodes))) {
		if _, stays := s.Wants(node); !stays {
			leaving = append(leaving, node)
		}
	}
	return leaving
}

// swap gives a replica to another node, if there is one for it.
func (p *plan) swap(i int, s Shard, from Replica, step Step) bool {
	beside := without(s.Replicas, from.Node)
	may := p.mayCopy(i)
	to := p.m.best(i, s.Replicas, p.m.loads(), may)
	if to == "" {
		return false
	}
	p.step(i, s, add(beside, Replica{Node: to, Voter: from.Voter}), step)
	return true
}

// replace replaces a dead node.
func (p *plan) replace(i int, s Shard) bool {
	for _, r := range s.Replicas {
		if p.m.Nodes[r.Node].State == Dead {
			return p.swap(i, s, r, Step{Kind: Replace, Node: r.Node, Reason: fmt.Sprintf("node %s is dead", p.name(r.Node))})
		}
	}
	return false
}

// grow adds the replicas and votes that there are nodes for now, all at once: with
// an even number of voters the shard would be no safer.
func (p *plan) grow(i int, s Shard) bool {
	replicas, voters := p.m.sizes()
	if len(s.Replicas) >= replicas && s.Voters() >= voters {
		return false
	}
	next, first := slices.Clone(s.Replicas), ""
	for len(next) < replicas {
		to := p.m.best(i, next, p.m.loads(), p.mayCopy(i))
		if to == "" {
			break
		}
		next = add(next, Replica{Node: to})
		first = cmp.Or(first, to)
	}
	votes := min(voters, (len(next)-1)|1)
	if votes < s.Voters() || len(next) == len(s.Replicas) && votes == s.Voters() {
		return false
	}
	vote(i, next, votes, "")
	for _, r := range next {
		if was, _ := s.Wants(r.Node); r.Voter && !was.Voter {
			first = cmp.Or(first, r.Node)
		}
	}
	p.step(i, s, next, Step{Kind: Grow, Node: first, Reason: fmt.Sprintf("there are nodes for %d replicas, %d of them with a vote", len(next), votes)})
	return true
}

// evacuate takes a replica off a node that is to have none.
func (p *plan) evacuate(i int, s Shard) bool {
	for _, r := range s.Replicas {
		n := p.m.Nodes[r.Node]
		failed := p.seen.Peers[r.Node].Failed
		if p.fit(r.Node) || n.State == Dead {
			continue
		}
		reason := fmt.Sprintf("node %s is %s", p.name(r.Node), n.State)
		if failed {
			reason = fmt.Sprintf("the disk of node %s has failed", p.name(r.Node))
		} else if n.State == Active {
			reason = fmt.Sprintf("node %s hosts no shards any more", p.name(r.Node))
		}
		return p.swap(i, s, r, Step{Kind: Move, Node: r.Node, Reason: reason})
	}
	return false
}

// shrink takes away what there are no nodes for any more.
func (p *plan) shrink(i int, s Shard) bool {
	replicas, voters := p.m.sizes()
	if replicas == 0 || len(s.Replicas) <= replicas && s.Voters() <= voters {
		return false
	}
	next, last := slices.Clone(s.Replicas), ""
	for len(next) > replicas {
		last = slices.MaxFunc(next, func(a, b Replica) int {
			return cmp.Or(cmp.Compare(p.burden(a), p.burden(b)), cmp.Compare(preference(i, b.Node), preference(i, a.Node)))
		}).Node
		next = without(next, last)
	}
	vote(i, next, voters, p.firm(next))
	p.step(i, s, next, Step{Kind: Shrink, Node: last, Reason: fmt.Sprintf("there are nodes for %d replicas, %d of them with a vote", replicas, voters)})
	return true
}

// firm names a voter that is to stay, if there is one: its vote is the last to go.
func (p *plan) firm(all []Replica) string {
	for _, r := range all {
		if r.Voter && p.burden(r) == 0 {
			return r.Node
		}
	}
	return ""
}

// burden is the higher, the sooner a replica may go.
func (p *plan) burden(r Replica) int {
	switch n := p.m.Nodes[r.Node]; {
	case n.State == Dead:
		return 4 // what waits for it may wait for ever
	case n.Leaving:
		return 3
	case !p.fit(r.Node):
		return 2
	case !r.Voter:
		return 1
	}
	return 0
}

// spread evens out zones first and numbers second.
func (p *plan) spread(i int, s Shard) bool {
	loads := p.m.loads()
	from := slices.Clone(s.Replicas)
	slices.SortStableFunc(from, func(a, b Replica) int { return cmp.Compare(loads[b.Node], loads[a.Node]) })
	for _, r := range from {
		beside := without(s.Replicas, r.Node)
		to := p.m.best(i, beside, loads, p.mayCopy(i))
		if to == "" || to == r.Node {
			continue
		}
		closer := cmp.Compare(p.m.crowd(to, beside), p.m.crowd(r.Node, beside))
		reason := ""
		switch {
		case closer < 0 && loads[to] < p.most():
			reason = fmt.Sprintf("node %s is in a zone of its own", p.name(to))
		case closer == 0 && loads[r.Node]-loads[to] >= 2:
			reason = fmt.Sprintf("node %s has %d replicas, node %s has %d", p.name(r.Node), loads[r.Node], p.name(to), loads[to])
		default:
			continue
		}
		p.step(i, s, add(beside, Replica{Node: to, Voter: r.Voter}), Step{Kind: Move, Node: r.Node, Reason: reason})
		return true
	}
	return false
}

// most is how many replicas a node may get for the zones' sake: a tenth more than
// its share.
func (p *plan) most() int {
	replicas, _ := p.m.sizes()
	hosts := max(1, len(p.m.sorted(Node.fit)))
	return (11*p.m.Count()*replicas + 10*hosts - 1) / (10 * hosts)
}

// mayCopy says which nodes may get a copy of the shard now: they live, and have
// not too many under way. One that costs next to nothing does not count.
func (p *plan) mayCopy(i int) func(string) bool {
	if p.seen.Groups[i].light() {
		return p.lives
	}
	all, copies := 0, make(map[string]int)
	for j, s := range p.m.Shards {
		g := p.seen.Groups[j]
		if s.Step == nil || j == i || g.light() {
			continue
		}
		for _, r := range s.Replicas {
			if m, ok := g.member(r); !ok || r.Voter && !m.Voter {
				copies[r.Node]++
				all++
			}
		}
	}
	return func(node string) bool { return p.lives(node) && copies[node] < copiesPerNode && all < copiesPerCluster }
}

// add returns the replicas and one more, in order.
func add(to []Replica, r Replica) []Replica {
	i, _ := slices.BinarySearchFunc(to, r.Node, func(a Replica, id string) int { return strings.Compare(a.Node, id) })
	return slices.Insert(slices.Clone(to), i, r)
}

func without(all []Replica, node string) []Replica {
	return slices.DeleteFunc(slices.Clone(all), func(r Replica) bool { return r.Node == node })
}

// vote gives so many of the replicas a vote: first to the one named, then to those
// that have one.
func vote(shard int, all []Replica, voters int, first string) {
	order := slices.Clone(all)
	slices.SortFunc(order, func(a, b Replica) int {
		return cmp.Or(
			-compare(a.Node == first, b.Node == first),
			-compare(a.Voter, b.Voter),
			cmp.Compare(preference(shard, b.Node), preference(shard, a.Node)),
		)
	})
	for i := range all {
		all[i].Voter = slices.IndexFunc(order, func(r Replica) bool { return r.Node == all[i].Node }) < voters
	}
}

func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
