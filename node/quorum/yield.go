package quorum

import (
	"context"
	"time"

	"github.com/starling-lb/starling/consensus"
)

const (
	yieldTime = 3 * time.Second // for all leaderships
	heardTime = time.Second     // who has answered since then may lead next
)

// Yield hands the leaderships of this node to others that keep up, one after the
// other, until ctx ends: for a node that is about to stop. A shard without such a
// voter is left to its election.
func (q *Quorum) Yield(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, yieldTime)
	defer cancel()
	leaving := make(map[string]bool)
	for _, p := range q.peers() {
		leaving[p.ID] = !p.Alive || p.Ends
	}
	for i, g := range q.groups.All() {
		if g.State().Led {
			q.yield(ctx, g, i, leaving)
		}
	}
}

func (q *Quorum) yield(ctx context.Context, g *consensus.Group, turn int, leaving map[string]bool) {
	all := g.Status().Replicas
	for i := range all {
		r := all[(i+turn)%len(all)] // so that not one gets them all
		if !r.Voter || r.Node == q.o.Self.ID || leaving[r.Node] || r.Match == 0 || r.Heard > heardTime {
			continue
		}
		err := q.groups.Transfer(ctx, g, r.Node)
		if err == nil {
			return
		}
		q.log.Info("a leadership was not handed over", "shard", g.ID.Shard, "to", r.Node, "err", err)
	}
}
