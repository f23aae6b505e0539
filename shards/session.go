package shards

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Sight is a session as an operator sees it.
type Sight struct {
	Shard       uint32
	Binding     Binding // zero: none
	Provisional bool    // the backend is this node's choice, which nobody has agreed to yet
	Held        bool    // a change is on its way
	Idle        time.Duration
	Known       bool    // Idle is: the session had turns here
	Last        Binding // what this node can tell by itself; zero: nothing
}

// Session asks the leader what stands.
func (r *Router) Session(ctx context.Context, pool string, key []byte) (Sight, error) {
	session, shard := r.Hash.Key(pool, string(key))
	v := Sight{Shard: shard}
	c, known := r.cache.Peek(session, r.Now())
	v.Idle, v.Known = c.Idle, known
	v.Last = r.lastHere(session, shard)
	a, err := r.ask(ctx, question{ask: askRead, shard: shard, session: session})
	if err != nil {
		return v, err
	}
	v.Binding, v.Held = a.binding, a.verdict == held
	if v.Held && known && c.Backend != nowhere {
		v.Binding = c.Binding
	}
	if p := r.section(session).stripe(session); v.Binding.Epoch == 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		if l := p.live[session]; l != nil && l.provisional != "" {
			v.Binding.Backend, v.Provisional = l.provisional, true
		}
	}
	return v, nil
}

// lastHere is what this node can tell of a session without asking: what its replica
// has applied or what it was last told, whichever is later.
func (r *Router) lastHere(session Key, shard uint32) (last Binding) {
	if o := r.desk.owner(shard); o != nil {
		last = o.applied(session).binding
	}
	if c, ok := r.cache.Peek(session, r.Now()); ok && c.Backend != nowhere && c.Epoch > last.Epoch {
		last = c.Binding
	}
	return last
}

var (
	// ErrUnbound is what a move of a session gets that has no binding.
	ErrUnbound = errors.New("the session has no binding")
	// ErrPending says that a move waits for the session's turns to end: it is made
	// then, or called off after the pool's drain timeout.
	ErrPending = errors.New("the session is busy; it moves when its turns have ended")
)

// Move has a session moved once none of its turns runs, and waits for that until
// ctx ends. It returns what stands then.
func (r *Router) Move(ctx context.Context, pool string, key []byte, backend string) (Binding, error) {
	if backend == "" || len(backend) > maxName {
		return Binding{}, fmt.Errorf("move: backend id %q: want 1 to %d bytes", backend, maxName)
	}
	session, shard := r.Hash.Key(pool, string(key))
	for {
		a, err := r.ask(ctx, question{ask: askMove, shard: shard, session: session, backend: backend})
		switch {
		case err != nil:
			return Binding{}, fmt.Errorf("move: %w", err)
		case a.verdict == unbound:
			return Binding{}, ErrUnbound
		case a.verdict == bound && a.binding.Backend == backend:
			return a.binding, nil
		}
		if !rest(ctx, wishRest) {
			return a.binding, ErrPending
		}
	}
}
