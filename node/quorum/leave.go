package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/starling-lb/starling/shards/meta"
)

// Leave has the cluster agree that this node leaves for good.
func (q *Quorum) Leave(ctx context.Context) error { return q.keeper.Leave(ctx, q.o.Self.ID) }

// Stay takes that back.
func (q *Quorum) Stay(ctx context.Context) error { return q.keeper.Stay(ctx, q.o.Self.ID) }

// SetAside has the cluster agree that this node is set aside, or not any more, and
// goes on trying until it has: the node is, whoever agrees.
func (q *Quorum) SetAside(ctx context.Context, aside bool) {
	q.aside.Store(aside)
	q.agreeAside(ctx)
}

const asideEvery = 2 * time.Second

// asideLoop has the map say what this node is.
func (q *Quorum) asideLoop(ctx context.Context) {
	tick := time.NewTicker(asideEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			q.agreeAside(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// agreeAside asks for it, if the map says something else.
func (q *Quorum) agreeAside(ctx context.Context) {
	m := q.Map()
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, asideEvery)
	defer cancel()
	var err error
	switch n := m.Nodes[q.o.Self.ID]; {
	case n.Leaving:
	case q.aside.Load() && (n.State == meta.Active || n.State == meta.Joining):
		err = q.keeper.SetAside(ctx, q.o.Self.ID)
	case !q.aside.Load() && n.State == meta.Draining:
		err = q.Stay(ctx)
	}
	if err != nil && ctx.Err() == nil {
		q.log.Info("the cluster has not agreed yet whether this node is set aside; it is asked again", "err", err)
	}
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

// Reset has a shard that lost its majority made anew from what is left of it, or
// empty where nothing is.
//
// Right after a node has died it is there still, by gossip's word, and silent: Reset asks
// again until it is seen dead, or ctx ends.
func (q *Quorum) Reset(ctx context.Context, shard int, empty bool) error {
	founder, err := q.keeper.Reset(ctx, shard, empty)
	for told := false; errors.Is(err, meta.ErrSilent) && rest(ctx, resetRest); told = true {
		if !told {
			q.log.Info("the reset of a shard waits for a node's word", "shard", shard, "err", err)
		}
		again, cause := q.keeper.Reset(ctx, shard, empty)
		if cause != nil && ctx.Err() != nil && again == "" {
			break // nothing was asked for yet, and what was said before says more
		}
		founder, err = again, cause
	}
	if err == nil {
		q.log.Warn("a shard is made anew; what only its lost replicas knew is lost", "shard", shard, "from", founder)
	}
	return err
}

const resetRest = 500 * time.Millisecond // between two times of asking

// rest tells whether ctx has not ended meanwhile.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
