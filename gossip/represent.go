package gossip

import (
	"cmp"
	"slices"
	"time"
)

// Who checks a backend's health: k nodes that all agree on without a word, by
// rendezvous hash over those that are alive. Where a node dies its backends fall
// to others, and nobody else's move.

// candidate is a node that may represent the others.
type candidate struct {
	id   string
	mark uint64
	zone string
}

// representatives are the k for a backend, best first: one of each zone before
// a second of any. It is a pure function: who sees the same nodes comes to the
// same.
func representatives(backend uint64, nodes []candidate, k int) []candidate {
	type ranked struct {
		candidate
		score uint64
		round int // how many of its zone stand before it
	}
	list := make([]ranked, len(nodes))
	for i, n := range nodes {
		list[i] = ranked{candidate: n, score: mix(n.mark ^ mix(backend))}
	}
	slices.SortFunc(list, func(a, b ranked) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.id, b.id)) })
	zones := map[string]int{}
	for i := range list {
		list[i].round = zones[list[i].zone]
		zones[list[i].zone]++
	}
	slices.SortStableFunc(list, func(a, b ranked) int { return cmp.Compare(a.round, b.round) })
	var out []candidate
	for _, r := range list[:min(k, len(list))] {
		out = append(out, r.candidate)
	}
	return out
}

// mix spreads every bit over all (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// candidates are the live nodes, this one among them. Those that drain are
// passed over as long as anybody else is there.
func (c *Cluster) candidates() []candidate {
	c.mu.Lock()
	zone, draining := c.self.Zone, c.self.Draining
	c.mu.Unlock()
	self := candidate{c.opt.ID, markOf(c.opt.ID), zone}
	var staying, all []candidate
	for _, p := range append(slices.Clone(c.members.peers.Load().list), peer{id: self.id, mark: self.mark, zone: zone, draining: draining}) {
		n := candidate{p.id, p.mark, p.zone}
		all = append(all, n)
		if !p.draining {
			staying = append(staying, n)
		}
	}
	if len(staying) == 0 {
		return all
	}
	return staying
}

// Represents tells whether this node is to check a backend for all, and how
// many do.
func (c *Cluster) Represents(id string, k int) (self bool, of int) {
	chosen := representatives(markOf(id), c.candidates(), k)
	return slices.ContainsFunc(chosen, func(n candidate) bool { return n.id == c.opt.ID }), len(chosen)
}

// Assigned tells whether this node is to check a backend now: it does where it
// represents the others, and where fewer than two of those who should have told
// anything lately. Every is the usual time between two checks.
func (c *Cluster) Assigned(id string, k int, every time.Duration) bool {
	self, of := c.Represents(id, k)
	if self {
		return true
	}
	// A look that found what the last one found goes out with the full report.
	since := time.Now().Add(-fullEvery - 3*every)
	fresh := 0
	for _, t := range c.Said(id) {
		if len(t.Looks) > 0 && t.Looks[0].At.After(since) {
			fresh++
		}
	}
	return fresh < min(2, of)
}
