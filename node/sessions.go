package node

import (
	"context"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/shards"
)

// sessions gives the proxy what the shards' leaders know: one question a turn,
// two where the session is new.
type sessions struct{ n *Node }

// Turn finds where the session lives, or has it live where the proposal says.
func (s sessions) Turn(ctx context.Context, pool string, key []byte, propose func() string) (proxy.Turn, error) {
	t := &turn{n: s.n, pool: pool, key: string(key)}
	t.home = t.read(ctx)
	if t.home.Backend != "" {
		return t, nil
	}
	known := t.home.Lookup != proxy.LookupFallback
	proposal := propose()
	if proposal == "" {
		return t, nil
	}
	if known {
		t.home = t.bind(ctx, proposal)
	}
	if t.home.Backend == "" {
		if s.n.strict(pool) {
			return nil, proxy.ErrNoLeader
		}
		t.home = proxy.Home{Backend: proposal, Lookup: proxy.LookupFallback, Provisional: true}
	}
	return t, nil
}

// turn is one turn of a session.
type turn struct {
	n    *Node
	pool string
	key  string
	home proxy.Home
}

// read asks for a binding that stands; Lookup is fallback where nobody could
// tell.
func (t *turn) read(ctx context.Context) proxy.Home {
	r, ctx, cancel := t.router(ctx)
	defer cancel()
	if r == nil {
		return proxy.Home{Lookup: proxy.LookupFallback}
	}
	b, ok, err := r.Read(ctx, t.pool, t.key)
	switch {
	case err != nil:
		return proxy.Home{Lookup: proxy.LookupFallback}
	case !ok:
		return proxy.Home{Lookup: proxy.LookupNew}
	}
	return proxy.Home{Backend: b.Backend, Epoch: uint32(b.Epoch), Lookup: proxy.LookupHit}
}

// bind offers a backend; another may have been faster.
func (t *turn) bind(ctx context.Context, proposal string) proxy.Home {
	r, ctx, cancel := t.router(ctx)
	defer cancel()
	if r == nil {
		return proxy.Home{}
	}
	b, err := r.Bind(ctx, t.pool, t.key, proposal)
	if err != nil {
		return proxy.Home{}
	}
	return proxy.Home{Backend: b.Backend, Epoch: uint32(b.Epoch), Lookup: proxy.LookupNew}
}

func (t *turn) router(ctx context.Context) (*shards.Router, context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, t.n.bindTime(t.pool))
	if q := t.n.quorum.Load(); q != nil {
		return q.Router(), ctx, cancel
	}
	return nil, ctx, cancel
}

// Home is where the session lives.
func (t *turn) Home() proxy.Home { return t.home }

// Look finds nothing: a binding is not changed yet once it is made.
func (t *turn) Look() error { return nil }

// Rebind makes a detour: the binding stands, and this turn goes elsewhere.
func (t *turn) Rebind(_ context.Context, seen proxy.Home, reason string, propose func() string) (proxy.Home, error) {
	if t.n.strict(t.pool) || reason == proxy.ReasonHeavy {
		return seen, nil
	}
	t.home = proxy.Home{Backend: propose(), Epoch: seen.Epoch, Lookup: proxy.LookupFallback, Provisional: true}
	return t.home, nil
}

// End has nothing to give back.
func (t *turn) End() {}

func (n *Node) strict(pool string) bool {
	c := n.cfg.Pools[pool].Sticky
	return c != nil && c.Strict()
}

// bindTime is how long a turn waits for the shards.
func (n *Node) bindTime(pool string) time.Duration {
	if c := n.cfg.Pools[pool].Sticky; c != nil {
		return c.BindTimeout
	}
	return time.Second
}
