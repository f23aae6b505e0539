package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards/meta"
)

// In a cluster the nodes agree on the backends of each pool: what any of them
// names is in, and operators' decisions are everybody's. A node takes that record
// in place of its own list and decisions as soon as there is one, and from disk
// when it starts.

// agree takes the agreed records of the pools.
func (s *supply) agree(pools map[string]meta.Pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := len(pools) == len(s.agreed)
	for name, p := range pools {
		same = same && s.agreed[name].Number == p.Number
	}
	if same {
		return
	}
	s.agreed = pools
	s.compare()
	if err := s.applyAll(); err != nil {
		s.log.Error("the agreed backends are not used", "err", err)
	}
}

// compare says once where what this node's file names is not what is agreed; mu is
// held.
func (s *supply) compare() {
	for name, p := range s.agreed {
		for _, c := range slices.Concat(s.listed[name], s.found[name]) {
			i := slices.IndexFunc(p.Backends, func(b meta.Backend) bool { return b.ID == c.ID })
			if i < 0 {
				continue
			}
			b := p.Backends[i]
			if differs := b.URL != c.URL || b.Weight != c.Weight && !b.Fixed; differs && !b.Added && !s.unlike[c] {
				s.unlike[c] = true
				s.log.Warn("this node names a backend otherwise than the cluster agreed; what is agreed holds until all who name it say the same",
					"backend", c.ID, "pool", name, "url", c.URL, "weight", c.Weight, "agreed_url", b.URL, "agreed_weight", b.Weight)
			}
		}
	}
}

// named is what this node says of its pools: its file and discovery, and what was
// decided on it before it had a cluster.
func (n *Node) named() map[string]meta.Named {
	all := map[string]meta.Named{}
	for name, list := range *n.supply.own.Load() {
		named := meta.Named{Backends: []meta.Backend{}}
		if c := n.cfg().Pools[name].Sticky; c != nil {
			named.Sticky = &meta.Sticky{TTL: int64(c.TTL), MaxSessions: c.MaxSessions, Strict: c.Strict()}
		}
		for _, c := range list {
			named.Backends = append(named.Backends, meta.Backend{ID: c.ID, URL: c.URL, Weight: c.Weight, MaxStreams: c.MaxStreams})
		}
		all[name] = named
	}
	return all
}

// agreedOn hears of each newer map.
func (n *Node) agreedOn(m *meta.Map) { n.supply.agree(m.Pools) }

// together has the cluster agree on a pool's record.
func (n *Node) together(pool string, change func(*meta.Pool) error) error {
	q := n.quorum.Load()
	if q == nil {
		return refuse(admin.Conflict, "this node has not come up yet; ask again")
	}
	ctx, cancel := context.WithTimeout(context.Background(), ruleTime)
	defer cancel()
	err := q.Decide(ctx, pool, change)
	var refused *admin.Error
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, meta.ErrInvalid):
		return refuse(admin.Conflict, "%v", err)
	case err != nil:
		return refuse(admin.Conflict, "the cluster did not agree: %v; GET /v1/shards tells whether shard 0 has a leader", err)
	}
	n.supply.agree(q.Map().Pools)
	return nil
}

// ruled tells whether the pool's record is the cluster's; mu is held.
func (s *supply) ruled(pool string) bool {
	_, ok := s.agreed[pool]
	return ok && s.together != nil
}

// ask has the cluster change a pool's record. mu is held, but not meanwhile: what
// is changed is the record as it is then.
func (s *supply) ask(pool string, change func(*meta.Pool) error) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	return s.together(pool, change)
}

// askOf has the cluster change what operators decided of a backend.
func (s *supply) askOf(pool, id string, change func(*decision)) error {
	return s.ask(pool, func(p *meta.Pool) error {
		i := slices.IndexFunc(p.Backends, func(b meta.Backend) bool { return b.ID == id })
		if i < 0 {
			p.Backends = append(p.Backends, meta.Backend{ID: id})
			i = len(p.Backends) - 1
		}
		b := &p.Backends[i]
		d := decision{Pool: pool, Removed: b.Removed, Drained: b.Drained, Out: b.Out}
		if b.Added {
			d.Added = configOf(*b)
		}
		if b.Fixed {
			d.Weight = b.Weight
		}
		change(&d)
		if b.Added = d.Added != nil; b.Added {
			b.URL, b.Weight, b.MaxStreams, d.Removed = d.Added.URL, d.Added.Weight, d.Added.MaxStreams, false
		}
		b.Removed, b.Drained, b.Fixed, b.Out = d.Removed, d.Drained, d.Weight > 0, d.Out
		if b.Fixed {
			b.Weight = d.Weight
		}
		if b.URL == "" {
			return fmt.Errorf("backend %q has left pool %s meanwhile", id, pool)
		}
		return nil
	})
}

func configOf(b meta.Backend) *backend.Config {
	return &backend.Config{ID: b.ID, URL: b.URL, Weight: b.Weight, MaxStreams: b.MaxStreams}
}

// poolOf is the pool that is agreed to have a backend, also one that operators
// removed; "": none. mu is held.
func (s *supply) poolOf(id string) string {
	for name, p := range s.agreed {
		if slices.ContainsFunc(p.Backends, func(b meta.Backend) bool { return b.ID == id }) {
			return name
		}
	}
	return ""
}

// agreedList is a pool's list as it is agreed, and which of it operators drain.
func agreedList(p meta.Pool) (list []backend.Config, drained map[string]bool) {
	drained = map[string]bool{}
	for _, b := range p.Backends {
		if !b.Removed {
			list = append(list, *configOf(b))
			drained[b.ID] = b.Drained
		}
	}
	return list, drained
}

func agreedPolicy(p meta.Pool) api.Policy {
	return api.Policy{Policy: p.Policy, Second: p.Second, Share: p.Share}
}
