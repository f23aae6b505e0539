package node

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
)

// AddBackend answers POST /v1/pools/{pool}/backends.
func (n *Node) AddBackend(pool string, b api.NewBackend) error {
	c := backend.Config{ID: b.ID, URL: b.URL, Weight: b.Weight, MaxStreams: b.MaxStreams}
	if err := invalid(c); err != nil {
		return err
	}
	if at, err := backend.ParseURL(c.URL); err == nil {
		c.ID = cmp.Or(c.ID, at.Dial)
	}
	return n.supply.add(pool, c)
}

// RemoveBackend answers DELETE /v1/pools/{pool}/backends/{id}.
func (n *Node) RemoveBackend(pool, id string) error { return n.supply.remove(pool, id) }

// WeighBackend answers POST /v1/backends/{id}/weight.
func (n *Node) WeighBackend(id string, weight int) error { return n.supply.weigh(id, weight) }

// SetPolicy answers POST /v1/pools/{pool}/policy.
func (n *Node) SetPolicy(pool string, want api.Policy) error {
	for _, policy := range []string{want.Policy, want.Second} {
		if policy != "" && !slices.Contains(backend.Policies(), policy) {
			return refuse(admin.BadRequest, "there is no policy %q; there are %s", policy, strings.Join(backend.Policies(), ", "))
		}
	}
	if want.Share < 0 || want.Share > 1 || want.Share > 0 && want.Second == "" {
		return refuse(admin.BadRequest, "share %v of a second policy %q: write a share from 0 to 1, and the policy that gets it", want.Share, want.Second)
	}
	return n.supply.rule(pool, want)
}

// ChangeBackend answers POST /v1/backends/{id}/drain and its like.
func (n *Node) ChangeBackend(id string, verb admin.Verb) error {
	switch verb {
	case admin.Drain:
		began, err := time.Now(), n.supply.hold(id, true)
		if p, b := n.backend(id); err == nil && b != nil && b.Standing().Since.Before(began) {
			p.Drain(b, time.Now(), n.drainEnd(p.Name, time.Now())) // one that was given up begins again
		}
		return err
	case admin.Undrain:
		return n.supply.hold(id, false)
	case admin.Reset:
		return n.supply.reset(id)
	}
	return n.say(id, verb == admin.Eject)
}

// backend finds a backend that streams may go to.
func (n *Node) backend(id string) (*backend.Pool, *backend.Backend) {
	for _, p := range n.proxy.Pools() {
		for _, b := range p.Backends() {
			if b.ID == id {
				return p, b
			}
		}
	}
	return nil, nil
}

// apply makes a pool what is wanted of it.
func (n *Node) apply(pool string, want wanted) error {
	n.rests.Store(pool, want.rest)
	n.applied(pool)
	if err := n.proxy.Update(pool, want.list); err != nil {
		return err
	}
	for _, p := range n.proxy.Pools() {
		if p.Name != pool {
			continue
		}
		if chosen(p) != want.policy {
			if err := p.SetPolicy(want.policy.Policy, want.policy.Share, want.policy.Second); err != nil {
				return err
			}
		}
		now := time.Now()
		for _, b := range p.Backends() {
			draining := b.Standing().State == backend.Draining
			switch drained := want.drained[b.ID]; {
			case drained && !draining:
				p.Drain(b, now, n.drainEnd(pool, now))
			case draining && !drained:
				p.Undrain(b, now)
			}
			if word, agreed := want.words[b.ID]; agreed {
				n.heed(p, b, word, now)
			}
		}
	}
	n.forget()
	return nil
}

// applied counts the changes of a pool of a node alone; where nodes agree, the
// revision is what they agreed.
func (n *Node) applied(pool string) {
	count, _ := n.revisions.LoadOrStore(pool, new(atomic.Uint64))
	count.(*atomic.Uint64).Add(1)
}

func (n *Node) revision(pool string) uint64 {
	if q := n.quorum.Load(); q != nil && n.cfg().Cluster.On() {
		if m := q.Map(); m != nil && m.Pools[pool].Revision > 0 {
			return m.Pools[pool].Revision
		}
	}
	if count, ok := n.revisions.Load(pool); ok {
		return count.(*atomic.Uint64).Load()
	}
	return 0
}

// chosen is what operators decided of the pool's policies, as it is in force.
func chosen(p *backend.Pool) api.Policy {
	c := p.Chosen()
	return api.Policy{Policy: c.Policy, Second: c.Second, Share: c.Share}
}

// drainEnd is when a drain that begins now is given up; zero: never.
func (n *Node) drainEnd(pool string, now time.Time) time.Time {
	limit := n.cfg().Pools[pool].Backend.DrainTimeout
	if limit == 0 {
		return time.Time{}
	}
	return now.Add(limit)
}

// Pools answers GET /v1/pools.
func (n *Node) Pools() api.Pools {
	list, sessions, moves := []api.Pool{}, map[string]int{}, n.moves()
	if r := n.router(); r != nil {
		sessions = r.Sessions()
	}
	for _, p := range n.proxy.Pools() {
		entry := api.Pool{Name: p.Name, Policy: p.Placement().Policy, Usable: p.Usable(), Waiting: p.Waiting(), Panic: p.Panic()}
		entry.Second, entry.Share = p.Placement().Second, p.Placement().Share
		entry.StepTimeCV, entry.InFlightCV = p.Spread(time.Now())
		entry.Rebalance, entry.Sessions = n.rebalanced(p.Name), sessions[p.Name]
		entry.Revision = n.revision(p.Name)
		entry.Moves = api.Moves(moves[p.Name])
		for _, b := range p.Backends() {
			entry.InFlight += b.Carried()
		}
		list = append(list, entry)
	}
	return api.Pools{Pools: list}
}
