package shards

import (
	"context"
	"math"
	"sync"
)

// A shard that lost its majority for good is made anew, in another incarnation,
// from a survivor that may have missed what was agreed last. The nodes that use its
// sessions know more: each tells it what it was told, at the session's next turn,
// or at once where one runs. What a node has seen beats what the shard has not; what
// the shard has agreed on since beats both. All epochs of the new life are above
// those of the one before, so that a node can go by them.

// remadeLeap is how far the epochs of a shard that is made anew are above the ones
// that the survivor knows: more than anybody can have agreed on that it missed.
const remadeLeap = 1 << 22

// tellers is how many sessions a node tells of at a time.
const tellers = 32

// Remade has the machine be the beginning of a shard's incarnation: of what it has,
// or of nothing.
func (m *Machine) Remade(incarnation uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.table
	known := uint64(t.floor)
	for _, b := range t.All() {
		known = max(known, uint64(b.Epoch))
	}
	if next := max(known, uint64(incarnation-1)*remadeLeap) + remadeLeap; next <= math.MaxUint32 {
		t.floor = Epoch(next)
	}
}

// question is what a turn asks about its session: first, where the shard was made
// anew since this node was told of the session, whether that stands again.
func (k *seeker) question(unused bool) question {
	t := k.t
	q := question{ask: askBind, shard: t.s.shard, session: t.session, backend: k.proposal, unused: unused}
	if c, lost := t.r.before(t.s, t.session); lost && !k.told {
		k.told = true
		q.ask, q.seen, q.backend = askAssert, c.Epoch, c.Backend
	}
	return q
}

// before is what this node was told of a session by an earlier incarnation.
func (r *Router) before(s *section, session Key) (Cached, bool) {
	c, known := r.cache.Peek(session, r.Now())
	return c, known && c.Backend != nowhere && c.Section < s.head.Load().first
}

// reassert tells the shard's next life of the sessions whose turns run here.
func (r *Router) reassert(s *section) {
	var running []Key
	for i := range s.stripes {
		p := &s.stripes[i]
		p.mu.Lock()
		for k, l := range p.live {
			if l.turns > 0 {
				running = append(running, k)
			}
		}
		p.mu.Unlock()
	}
	var all sync.WaitGroup
	defer all.Wait()
	places := make(chan struct{}, tellers)
	for _, session := range running {
		c, lost := r.before(s, session)
		if !lost {
			continue
		}
		select {
		case places <- struct{}{}:
		case <-r.ctx.Done():
			return
		}
		all.Go(func() {
			defer func() { <-places }()
			t := &Turn{r: r, s: s, session: session}
			_, _, _ = t.put(r.ctx, question{ask: askAssert, shard: s.shard, session: session, seen: c.Epoch, backend: c.Backend}, r.Now()+askTime) // what fails is told at the next turn
		})
	}
}

// assert takes a node's word for a binding that this incarnation does not know, or
// knows an earlier one of. A session that nobody may go to its backend for is left
// as it is, above the epoch that the node has seen.
func (o *Owner) assert(ctx context.Context, q question) (answer, error) {
	a, err := o.look(ctx, q.session)
	usable := o.desk.usable(q.backend)
	switch {
	case err != nil || a.verdict == held || a.verdict == bound && a.binding.Epoch >= q.seen || a.verdict == unbound && !usable:
		return a, err
	case a.verdict == unbound:
		return o.bind(ctx, question{ask: askBind, shard: q.shard, session: q.session, backend: q.backend})
	case usable && q.backend != a.binding.Backend:
		q.seen = a.binding.Epoch
		return o.rebind(ctx, q)
	}
	c := Command{Op: OpRebind, Session: q.session, Seen: a.binding.Epoch, Backend: a.binding.Backend}
	if _, err := o.log.Propose(ctx, c.encode()); err != nil {
		return answer{}, err
	}
	a, _ = o.peek(q.session)
	return a, nil
}
