package node

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/quorum"
	"github.com/starling-lb/starling/shards/meta"
)

const (
	ruleTime  = 5 * time.Second  // for the cluster to agree on what shall become of a node
	resetTime = 20 * time.Second // and of a shard, where nodes that died may have to be seen dead first
)

// LeaveNode answers POST /v1/node/leave: the cluster takes this node's replicas
// off it, and then counts without it. Left says when; streams go on until then,
// and until the node is stopped.
func (n *Node) LeaveNode(ctx context.Context) error {
	return n.rule(ctx, ruleTime, (*quorum.Quorum).Leave, "it is in no cluster, and to have it end, stop it")
}

// StayNode answers POST /v1/node/undrain: it takes DrainNode and LeaveNode back.
func (n *Node) StayNode(ctx context.Context) error {
	back, err := n.takeBack()
	if err != nil {
		return err
	}
	if back {
		n.agreeAside(ctx)
		if !n.leaves() {
			return nil
		}
	}
	return n.rule(ctx, ruleTime, (*quorum.Quorum).Stay, "it was not set aside, and there is nothing to take back")
}

// leaves tells whether it is agreed that this node leaves for good.
func (n *Node) leaves() bool { return n.agreedNodes()[n.dir.id].Leaving }

// rule has the cluster agree on something; alone says why a node without one cannot.
func (n *Node) rule(ctx context.Context, within time.Duration, verb func(*quorum.Quorum, context.Context) error, alone string) error {
	q := n.quorum.Load()
	if q == nil || !n.cfg().Cluster.On() {
		return refuse(admin.Conflict, "this node is alone: %s", alone)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := verb(q, ctx)
	switch {
	case errors.Is(err, meta.ErrLast):
		return refuse(admin.Conflict, "%v: start another one first, or stop this one and with it the cluster", err)
	case errors.Is(err, meta.ErrInvalid):
		return refuse(admin.Conflict, "%v", err)
	case err != nil:
		return refuse(admin.Conflict, "the cluster did not agree: %v; GET /v1/shards tells whether shard 0 has a leader", err)
	}
	return nil
}

// ResetShard answers POST /v1/shards/{id}/reset and /empty.
func (n *Node) ResetShard(ctx context.Context, id string, empty bool) error {
	shard, err := strconv.Atoi(id)
	if err != nil {
		return refuse(admin.BadRequest, "%q is no number of a shard; GET /v1/shards lists them", id)
	}
	return n.rule(ctx, resetTime, func(q *quorum.Quorum, ctx context.Context) error { return q.Reset(ctx, shard, empty) },
		"its shards have no replicas but its own, and there is nothing to make them anew from")
}

// Left is closed once this node has left its cluster for good.
func (n *Node) Left() <-chan struct{} {
	if q := n.quorum.Load(); q != nil {
		return q.Left()
	}
	return nil
}
