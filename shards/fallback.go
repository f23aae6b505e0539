package shards

import (
	"context"
	"slices"
	"sync"
	"time"
)

// appliedTime is how long replicas are asked what they have applied, when nobody
// leads.
const appliedTime = 100 * time.Millisecond

// maxProvisional bounds the choices that are remembered to be offered, per node.
const maxProvisional = 1 << 16

// fallback finds a home without a leader: the last known binding, of this node or
// else of any replica, else a choice that every node makes alike. A strict pool
// wants none.
func (k *seeker) fallback(ctx context.Context) error {
	t := k.t
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if t.r.Rules.Pool(t.pool).Strict {
		return ErrNoLeader
	}
	if b, ok := t.lastKnown(); ok {
		t.r.counts.stale.Add(1)
		return t.settle(Home{Backend: b.Backend, Epoch: b.Epoch, Lookup: LookupFallback, Stale: true})
	}
	if b := t.r.applied(ctx, t.s.shard, t.session); b.Epoch > 0 {
		t.remember(b)
		t.r.counts.stale.Add(1)
		return t.settle(Home{Backend: b.Backend, Epoch: b.Epoch, Lookup: LookupFallback, Stale: true})
	}
	return t.settle(t.choose())
}

func (t *Turn) lastKnown() (Binding, bool) {
	c, ok := t.r.cache.Peek(t.session, t.r.Now())
	return c.Binding, ok && c.Backend != nowhere
}

// remember keeps what a replica has applied as last known.
func (t *Turn) remember(b Binding) {
	p := t.s.stripe(t.session)
	p.mu.Lock()
	defer p.mu.Unlock()
	t.r.cache.Put(t.session, b, 0, t.r.Now())
}

// applied asks all replicas at once what they have applied, and returns the
// binding of the highest epoch. This node's own replica needs no time to answer,
// however busy the machine is.
func (r *Router) applied(ctx context.Context, shard uint32, session Key) (best Binding) {
	if o := r.desk.owner(shard); o != nil {
		best = o.applied(session).binding
	}
	ctx, cancel := context.WithTimeout(ctx, appliedTime)
	defer cancel()
	nodes := slices.DeleteFunc(slices.Clone(r.Place.Replicas(shard)), func(n string) bool { return n == r.Node })
	answers := make(chan Binding, len(nodes))
	for _, node := range nodes {
		r.begin(func() {
			a, _ := r.put(ctx, node, question{ask: askApplied, shard: shard, session: session})
			answers <- a.binding // zero where it could not be asked
		})
	}
	for range nodes {
		select {
		case b := <-answers:
			if b.Epoch > best.Epoch {
				best = b
			}
		case <-ctx.Done():
			return best
		}
	}
	return best
}

// choose makes a provisional choice, which is the same on every node that sees the
// same backend set, and notes that it is to be offered.
func (t *Turn) choose() Home {
	r := t.r
	p := t.s.stripe(t.session)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.alive(t.session)
	defer p.tidy(t.session, l)
	backend := l.provisional
	if backend == "" {
		backend = r.set(t.pool).Choose(t.session, r.Fates.Usable)
	}
	if backend == "" { // none is ready; one that was ejected may take it as its trial, and any may be ready by then
		backend = r.set(t.pool).Choose(t.session, nil)
	}
	if backend != "" && l.provisional == "" && r.counts.provisional.Load() < maxProvisional {
		l.provisional = backend
		r.counts.provisional.Add(1)
	}
	return Home{Backend: backend, Lookup: LookupFallback, Provisional: backend != ""}
}

// chosen is the choice that this node has made for the session and nobody has agreed to
// yet: turns may run there. "" where there is none, or it can serve none by now.
func (t *Turn) chosen() (backend string) {
	p := t.s.stripe(t.session)
	p.mu.Lock()
	if l := p.live[t.session]; l != nil {
		backend = l.provisional
	}
	p.mu.Unlock()
	if backend == "" || !t.r.Fates.Usable(backend) {
		return ""
	}
	return backend
}

// set is a pool's last committed backend set, as far as this node knows.
func (r *Router) set(pool string) Set {
	for _, s := range r.Rules.Sets() {
		if s.Pool == pool {
			return s
		}
	}
	return Set{Pool: pool}
}

// wait is how long a turn of the pool waits for an answer.
func (r *Router) wait(pool string) time.Duration {
	if w := r.Rules.Pool(pool).Wait; w > 0 {
		return w
	}
	return mostWait
}

// reconcile offers the provisional choices of a section whose leader is back: the
// first that is offered becomes the binding, and the others learn it. What fails is
// offered again by the next round.
func (r *Router) reconcile(s *section) {
	if !s.offering.CompareAndSwap(false, true) {
		return // the last round goes on
	}
	r.begin(func() {
		defer s.offering.Store(false)
		offers := s.offers()
		var all sync.WaitGroup
		for _, o := range offers {
			if !r.mayOffer() {
				break
			}
			if !s.leased(r.Now()) {
				<-r.offers
				break
			}
			all.Go(func() {
				defer func() { <-r.offers }()
				t := &Turn{r: r, s: s, session: o.session}
				_, _, _ = t.put(r.ctx, question{ask: askBind, shard: s.shard, session: o.session, backend: o.backend}, r.Now()+askTime)
			})
		}
		all.Wait()
	})
}

// maxOffers is how many choices a node offers at a time, of all shards: on a machine so
// busy that an answer takes a second, one after the other they would take minutes, and
// all at once they would take the places of turns and renewals at a leader.
const maxOffers = 128

// mayOffer takes a place; false: the router ends.
func (r *Router) mayOffer() bool {
	select {
	case r.offers <- struct{}{}:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// offer is a choice that nobody has agreed to yet.
type offer struct {
	session Key
	backend string
}

func (s *section) offers() (all []offer) {
	for i := range s.stripes {
		p := &s.stripes[i]
		p.mu.Lock()
		for k, l := range p.live {
			if l.provisional != "" && len(all) < maxKeys {
				all = append(all, offer{k, l.provisional})
			}
		}
		p.mu.Unlock()
	}
	return all
}
