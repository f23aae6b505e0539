package node

import (
	"fmt"
	"time"

	"github.com/starling-lb/starling/consensus"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards"
)

// planned shows the shards' planners what this node sees of its pools.
type planned struct{ n *Node }

var _ shards.Pools = planned{}

// Plan is the pool's settings, as operators have switched them, and its load.
func (p planned) Plan(pool string) (c backend.RebalanceConfig, v shards.View, ok bool) {
	c = p.n.cfg().Pools[pool].Rebalance
	c.Enabled = p.n.rebalances(pool)
	for _, at := range p.n.proxy.Pools() {
		if at.Name == pool {
			return c, seen(at, time.Now()), true
		}
	}
	return c, v, false
}

// Names are the pools with sessions.
func (p planned) Names() (all []string) {
	for name, c := range p.n.cfg().Pools {
		if c.Sticky != nil {
			all = append(all, name)
		}
	}
	return all
}

// seen is a pool as a planner wants it. It is stale where what any of the active
// backends' other streams are is not known any more.
func seen(p *backend.Pool, now time.Time) shards.View {
	v := shards.View{Knee: p.Knee(), Panic: p.Panic(), Requests: p.Started(), Elsewhere: p.PaceElsewhere()}
	for _, b := range p.Backends() {
		takes := b.Standing().State == backend.Active
		v.Backends = append(v.Backends, shards.Load{ID: b.ID, Streams: b.Crowd(now), Speed: b.Speed(), Cap: b.Terms().Cap, Takes: takes})
		v.Stale = v.Stale || takes && b.Elsewhere().Stale
	}
	return v
}

// rebalances tells whether a pool's sessions are moved to even out load.
func (n *Node) rebalances(pool string) bool {
	if word, ok := n.rests.Load(pool); ok && word != "" {
		return word == "on"
	}
	return n.cfg().Pools[pool].Rebalance.Enabled
}

// SetRebalance answers POST /v1/pools/{pool}/rebalance.
func (n *Node) SetRebalance(pool string, want api.Rebalancing) error {
	word := "off"
	if want.Enabled {
		word = "on"
	}
	return n.supply.rest(pool, word)
}

// rebalanced is what the planners of this node did lately.
func (n *Node) rebalanced(pool string) api.Rebalance {
	out := api.Rebalance{Enabled: n.cfg().Pools[pool].Sticky != nil && n.rebalances(pool)}
	q := n.quorum.Load()
	if q == nil || q.Router() == nil {
		return out
	}
	if r := q.Router().Rebalanced()[pool]; r.Last.Reason != "" {
		at := time.Now().Add(r.At - consensus.Now())
		out.LastDecision, out.Reason = &at, fmt.Sprintf("shard %d: %v", r.Shard, r.Last)
	}
	return out
}
