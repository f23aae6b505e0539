package node

import (
	"sync"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards"
)

// downFor is how long a backend must have been unhealthy before its sessions are
// bound elsewhere: a verdict that is taken back a moment later moves nobody.
const downFor = 3 * time.Second

// rules are what a node's pools mean for their sessions, and what it knows of
// backends and nodes.
type rules struct {
	n     *Node
	homes *sync.Map // Node.homes
	sets  *sync.Map // pool: *revised
}

var (
	_ shards.Rules = rules{}
	_ shards.Fates = rules{}
)

func newRules(n *Node) rules { return rules{n: n, homes: &n.homes, sets: new(sync.Map)} }

// Pool is what was agreed on for a pool's sessions, else what this node's file says.
// Where nobody knows whose a session is, it has what the strictest pool would give it.
func (r rules) Pool(pool string) shards.Rule {
	if pool == "" {
		return r.strictest()
	}
	rule, most, count := shards.Rule{TTL: proxy.DefaultSession().TTL}, 0, 1 // of a pool that is gone: its sessions are forgotten
	if c := r.n.cfg().Pools[pool]; c.Sticky != nil {
		rule = shards.Rule{
			TTL: c.Sticky.TTL, Strict: c.Sticky.Strict(), Wait: c.Sticky.BindTimeout, Drain: c.Backend.DrainTimeout, Stay: c.Rebalance.MinResidence,
		}
		most = c.Sticky.MaxSessions
	}
	if q := r.n.quorum.Load(); q != nil && q.Map() != nil {
		m := q.Map()
		count = max(1, m.Count())
		if agreed := m.Pools[pool].Sticky; agreed != nil {
			rule.TTL, rule.Strict, most = time.Duration(agreed.TTL), agreed.Strict, agreed.MaxSessions
		}
	}
	rule.Max = (most + count - 1) / count
	return rule
}

// strictest is the longest and the strictest of all pools' rules.
func (r rules) strictest() (all shards.Rule) {
	names := make(map[string]bool)
	for name, c := range r.n.cfg().Pools {
		names[name] = c.Sticky != nil
	}
	if q := r.n.quorum.Load(); q != nil && q.Map() != nil {
		for name, agreed := range q.Map().Pools {
			names[name] = names[name] || agreed.Sticky != nil
		}
	}
	all, forever := shards.Rule{TTL: time.Nanosecond}, false
	for name, sticky := range names {
		if !sticky || name == "" {
			continue
		}
		one := r.Pool(name)
		forever = forever || one.TTL == 0
		all.Strict = all.Strict || one.Strict
		all.TTL, all.Drain = max(all.TTL, one.TTL), max(all.Drain, one.Drain)
		all.Wait, all.Stay = max(all.Wait, one.Wait), max(all.Stay, one.Stay)
	}
	if forever {
		all.TTL = 0
	}
	return all
}

// Of is a backend's pool. One that has left is remembered; where only one pool has
// sessions, who else could have had it?
func (r rules) Of(id string) string {
	if pool, ok := r.homes.Load(id); ok {
		return pool.(string)
	}
	only := ""
	for name, c := range r.n.cfg().Pools {
		if c.Sticky == nil {
			continue
		}
		only = name
		if p := r.pool(name); p != nil && p.Named(id) != nil {
			r.homes.Store(id, name) // ids are unique over all pools
			return name
		}
	}
	if r.sticky() == 1 {
		return only
	}
	return ""
}

// sticky is how many pools have sessions.
func (r rules) sticky() (n int) {
	for _, c := range r.n.cfg().Pools {
		if c.Sticky != nil {
			n++
		}
	}
	return n
}

func (r rules) pool(name string) *backend.Pool {
	for _, p := range r.n.proxy.Pools() {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// revised is a backend set with the moment at which it was first seen like this.
type revised struct{ shards.Set }

// Sets are the pools' agreed backend sets. Where none is agreed on, the node's own
// stand in, and their revision is the time.
func (r rules) Sets() (all []shards.Set) {
	q := r.n.quorum.Load()
	for name, c := range r.n.cfg().Pools {
		if c.Sticky == nil {
			continue
		}
		if q != nil && q.Map() != nil && len(q.Map().Pools[name].Backends) > 0 {
			agreed := q.Map().Pools[name]
			s := shards.Set{Pool: name, Revision: agreed.Number}
			for _, b := range agreed.Backends {
				if b.Removed || b.Drained {
					continue
				}
				s.Backends = append(s.Backends, shards.Backend{ID: b.ID, Weight: uint32(b.Weight)})
			}
			all = append(all, s)
			continue
		}
		if p := r.pool(name); p != nil {
			all = append(all, r.own(p))
		}
	}
	return all
}

// own is the set as this node has it.
func (r rules) own(p *backend.Pool) shards.Set {
	s := shards.Set{Pool: p.Name}
	for _, b := range p.Backends() {
		s.Backends = append(s.Backends, shards.Backend{ID: b.ID, Weight: uint32(b.Terms().Weight)})
	}
	s.Sort()
	if was, ok := r.sets.Load(p.Name); ok && was.(*revised).Same(s) {
		return was.(*revised).Set
	}
	s.Revision = uint64(time.Now().UnixMilli())
	r.sets.Store(p.Name, &revised{s})
	return s
}

// Dead says whether a node's death is agreed on.
func (r rules) Dead(node string) bool {
	q := r.n.quorum.Load()
	return q != nil && q.Dead(node)
}

// Leaving are the backends that their sessions are to leave: at once where one is
// found dead and has been for a moment, unless so many are that the finding is in
// doubt; between turns where one drains or was removed.
func (r rules) Leaving() (all []shards.Leaver) {
	now := time.Now()
	for name, c := range r.n.cfg().Pools {
		p := r.pool(name)
		if c.Sticky == nil || p == nil {
			continue
		}
		for _, b := range p.Backends() {
			switch s := b.Standing(); {
			case s.State == backend.Draining || s.State == backend.Removed:
				all = append(all, shards.Leaver{Pool: name, Backend: b.ID})
			case s.State == backend.Unhealthy && now.Sub(s.Since) >= downFor && !p.Panic():
				all = append(all, shards.Leaver{Pool: name, Backend: b.ID, Gone: true})
			}
		}
	}
	return all
}

// Usable says whether sessions may be moved to a backend. From one that is not ready
// yet they would only move on.
func (r rules) Usable(id string) bool {
	p := r.pool(r.Of(id))
	if p == nil {
		return false
	}
	b := p.Named(id)
	if b == nil {
		return false
	}
	return b.Standing().State == backend.Active
}
