package meta

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
)

// sizes is how many replicas a shard shall have by now, and how many of them
// vote: an odd number always, since two voters would only be one more way to lose
// the quorum. A dead node counts as long as replicas wait for it or for another, and so
// does one that is set aside: a shard does not shrink because nodes die or rest, only because they leave.
func (m *Map) sizes() (replicas, voters int) {
	hosts := 0
	for id, n := range m.Nodes {
		if n.Hosts && (n.State == Active || (n.State == Dead || n.rests()) && m.used(id)) {
			hosts++
		}
	}
	replicas = min(m.Replicas, hosts)
	return replicas, max(0, (replicas-1)|1) * min(replicas, 1)
}

// fit tells whether a node may get replicas.
func (n Node) fit() bool { return n.Hosts && n.State == Active }

// rests tells whether operators have set the node aside, and it is to stay.
func (n Node) rests() bool { return n.State == Draining && !n.Leaving }

// loads counts the wanted replicas of sessions' shards by node.
func (m *Map) loads() map[string]int {
	loads := make(map[string]int)
	for _, s := range m.Shards[1:] {
		for _, r := range s.Replicas {
			loads[r.Node]++
		}
	}
	return loads
}

// preference is a number that is another for each pair of shard and node, so that
// shards do not all prefer the same nodes.
func preference(shard int, node string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strconv.Itoa(shard) + " " + node)) // never fails
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// crowd is how many of the nodes are in the same zone as the node; itself not.
func (m *Map) crowd(node string, among []Replica) (n int) {
	zone := m.Nodes[node].Zone
	for _, r := range among {
		if r.Node != node && zone != "" && m.Nodes[r.Node].Zone == zone {
			n++
		}
	}
	return n
}

// best returns the fit node that is to hold the shard beside those there are: in
// a zone of its own, with few replicas, preferred; "": there is none.
func (m *Map) best(shard int, beside []Replica, loads map[string]int, may func(string) bool) string {
	var can []string
	for _, id := range m.sorted(Node.fit) {
		if !slices.ContainsFunc(beside, func(r Replica) bool { return r.Node == id }) && may(id) {
			can = append(can, id)
		}
	}
	if len(can) == 0 {
		return ""
	}
	return slices.MinFunc(can, func(a, b string) int {
		return cmp.Or(
			cmp.Compare(m.crowd(a, beside), m.crowd(b, beside)),
			cmp.Compare(loads[a], loads[b]),
			cmp.Compare(preference(shard, b), preference(shard, a)),
		)
	})
}

// Leaders says which node should lead each shard, "" where none can be named: a
// function of the map alone, so that all nodes want the same.
func Leaders(m *Map) []string {
	leaders, led := make([]string, len(m.Shards)), make(map[string]int)
	less := func(shard int) func(a, b string) int {
		return func(a, b string) int {
			return cmp.Or(cmp.Compare(led[a], led[b]), cmp.Compare(preference(shard, b), preference(shard, a)))
		}
	}
	for i, s := range m.Shards {
		if can := m.leading(s); len(can) > 0 {
			leaders[i] = slices.MinFunc(can, less(i))
			led[leaders[i]]++
		}
	}
	for again := true; again; { // what the order of shards has spoilt; each turn evens out two nodes, so it ends
		again = false
		for i, s := range m.Shards {
			for _, id := range m.leading(s) {
				if led[id]+1 < led[leaders[i]] {
					led[id], led[leaders[i]], leaders[i], again = led[id]+1, led[leaders[i]]-1, id, true
				}
			}
		}
	}
	return leaders
}

// leading returns the nodes that may lead a shard.
func (m *Map) leading(s Shard) (ids []string) {
	if s.Phase != Ready {
		return nil
	}
	for _, r := range s.Replicas {
		if r.Voter && m.Nodes[r.Node].fit() {
			ids = append(ids, r.Node)
		}
	}
	return ids
}
