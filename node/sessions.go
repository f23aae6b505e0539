package node

import (
	"context"
	"errors"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/shards"
)

// sessions gives the proxy what the shards know.
type sessions struct{ n *Node }

// Turn finds where the session lives, or has it live where the proposal says.
func (s sessions) Turn(ctx context.Context, pool string, key []byte, waited time.Duration, propose func() string) (proxy.Turn, error) {
	s.n.comeUp(ctx)
	s.n.awaitHeir(ctx)
	defer s.n.seeking.Add(-1)
	r := s.n.awaitRouter(ctx, pool)
	if r == nil {
		return s.astray(pool, propose)
	}
	t, err := r.Turn(ctx, pool, key, waited, s.n.apart(ctx, propose))
	if err != nil {
		return nil, known(err)
	}
	return turn{t, s.n, pool}, nil
}

const upTime = 10 * time.Second // for a node to come up, of which a turn waits for it

// comeUp waits until the node has come up, or ctx ends: streams come in before its
// disk is read, which knows where their sessions live.
func (n *Node) comeUp(ctx context.Context) {
	select {
	case <-n.up:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, upTime)
	defer cancel()
	select {
	case <-n.up:
	case <-ctx.Done():
	}
}

// known gives an error of the shards the proxy's name.
func known(err error) error {
	if errors.Is(err, shards.ErrNoLeader) {
		return errors.Join(proxy.ErrNoLeader, err)
	}
	return err
}

// awaitRouter gives a node that is about to get the cluster's map as much time as a
// new session has: what it placed by itself would be agreed with nobody.
func (n *Node) awaitRouter(ctx context.Context, pool string) *shards.Router {
	q := n.quorum.Load()
	if q == nil || q.Router() != nil {
		return n.router()
	}
	wait := proxy.DefaultSession().BindTimeout
	if c := n.cfg().Pools[pool].Sticky; c != nil {
		wait = c.BindTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case <-q.Routed():
	case <-ctx.Done():
	}
	return q.Router()
}

// router is nil as long as there is no cluster.
func (n *Node) router() *shards.Router {
	if q := n.quorum.Load(); q != nil {
		return q.Router()
	}
	return nil
}

// turn is the shards' as the proxy wants it.
type turn struct {
	*shards.Turn
	n    *Node
	pool string
}

// Home is where the session lives.
func (t turn) Home() proxy.Home { return home(t.Turn.Home()) }

func home(h shards.Home) proxy.Home {
	return proxy.Home{Backend: h.Backend, Epoch: uint32(h.Epoch), Lookup: proxy.Lookup(h.Lookup), Provisional: h.Provisional}
}

// Rebind asks for another home. A heavy turn is no reason where operators want
// sessions to stay.
func (t turn) Rebind(ctx context.Context, seen proxy.Home, reason string, propose func() string) (proxy.Home, error) {
	if reason == proxy.ReasonHeavy && !t.n.rebalances(t.pool) {
		return seen, nil
	}
	t.n.awaitHeir(ctx)
	defer t.n.seeking.Add(-1)
	h, err := t.Turn.Rebind(ctx, t.Turn.Home(), reason, t.n.apart(ctx, propose))
	if err != nil {
		return home(h), known(err)
	}
	return home(h), nil
}

// astray is a turn before there is a cluster: nobody can agree, so the pool picks.
func (s sessions) astray(pool string, propose func() string) (proxy.Turn, error) {
	if c := s.n.cfg().Pools[pool].Sticky; c != nil && c.Strict() {
		return nil, proxy.ErrNoLeader
	}
	return stray{proxy.Home{Backend: propose(), Lookup: proxy.LookupFallback, Provisional: true}}, nil
}

// stray is such a turn.
type stray struct{ home proxy.Home }

func (t stray) Home() proxy.Home { return t.home }
func (stray) Look() error        { return nil }
func (stray) End() bool          { return true }

// Rebind picks once more.
func (stray) Rebind(_ context.Context, seen proxy.Home, reason string, propose func() string) (proxy.Home, error) {
	if reason == proxy.ReasonHeavy {
		return seen, nil
	}
	return proxy.Home{Backend: propose(), Lookup: proxy.LookupFallback, Provisional: true}, nil
}
