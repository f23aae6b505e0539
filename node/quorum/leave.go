package quorum

import (
	"context"

	"github.com/starling-lb/starling/shards/meta"
)

// Leave has the cluster agree that this node leaves for good.
func (q *Quorum) Leave(ctx context.Context) error { return q.keeper.Leave(ctx, q.o.Self.ID) }

// Stay takes that back.
func (q *Quorum) Stay(ctx context.Context) error { return q.keeper.Stay(ctx, q.o.Self.ID) }

// Standing is what is agreed about this node; "" before there is a cluster that
// knows it.
func (q *Quorum) Standing() meta.NodeState {
	if m := q.Map(); m != nil {
		return m.Nodes[q.o.Self.ID].State
	}
	return ""
}

// Left is closed once this node has left.
func (q *Quorum) Left() <-chan struct{} { return q.left }

// look closes Left when the map says so: of this run of the node, not of one
// before.
func (q *Quorum) look(m *meta.Map) {
	n := m.Nodes[q.o.Self.ID]
	self := neighbours{q}.Peers()[q.o.Self.ID]
	if n.State == meta.Removed && n.Leaving && n.Boot >= self.Boot {
		q.leftOnce.Do(func() { close(q.left) })
	}
}

// Reset has a shard that lost its majority made anew from what is left of it.
func (q *Quorum) Reset(ctx context.Context, shard int) error {
	founder, err := q.keeper.Reset(ctx, shard)
	if err == nil {
		q.log.Warn("a shard is made anew; what only its lost replicas knew is lost", "shard", shard, "from", founder)
	}
	return err
}
