package quorum

import "github.com/starling-lb/starling/consensus"

// Leaders is how the groups are that this node has a replica of, by shard.
func (q *Quorum) Leaders() map[int]consensus.State {
	all := make(map[int]consensus.State)
	for _, g := range q.groups.All() {
		all[int(g.ID.Shard)] = g.State()
	}
	return all
}
