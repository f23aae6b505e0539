package quorum

import (
	"context"
	"errors"

	"github.com/starling-lb/starling/consensus/transport"
	"github.com/starling-lb/starling/shards"
	"github.com/starling-lb/starling/shards/meta"
)

// What sessions need of the wiring: the router's seams on the one port.

// route makes the router, once there is a map: it has the cluster's secret.
func (q *Quorum) route(m *meta.Map) error {
	hash, err := shards.NewHasher(m.Secret, m.Count())
	if err != nil {
		return err
	}
	r := shards.NewRouter(shards.Options{
		Node: q.o.Self.ID, Boot: q.boot, Hash: hash, Peers: peers{q}, Feeds: feeds{q}, Place: places{q},
		Rules: q.o.Rules, Fates: q.o.Fates, Pools: q.o.Pools, Elders: q.o.Elders, Log: q.log, Eager: true, Now: q.o.Now,
	})
	if !q.router.CompareAndSwap(nil, r) {
		return nil
	}
	q.ownAll(r)
	err = r.Start(q.ctx)
	close(q.routed)
	return err
}

// unroute ends the router while the port still carries what it has to say.
func (q *Quorum) unroute(ctx context.Context) error {
	if r := q.router.Load(); r != nil {
		return r.Stop(ctx)
	}
	return nil
}

// feeds are how leaders tell the nodes that use their sessions.
type feeds struct{ q *Quorum }

var _ shards.Feeds = feeds{}

// Follow keeps the feed of another node open.
func (f feeds) Follow(ctx context.Context, node, service string, r shards.Reader) {
	if b := f.q.beyond.Load(); b != nil {
		followBeyond(ctx, *b, node, service, r)
		return
	}
	f.q.port.Follow(ctx, node, service, transport.Reader{Open: r.Open, Take: r.Take, Lost: r.Lost})
}

// serveFeed is the other end.
func (q *Quorum) serveFeed(ctx context.Context, from string, opening []byte, feed *transport.Feed) error {
	r := q.router.Load()
	if r == nil {
		return errors.New("this node has no cluster yet")
	}
	return r.Serve(ctx, from, opening, feed.Send)
}

// Dead says whether a node's death is agreed on.
func (q *Quorum) Dead(node string) bool {
	m := q.known.Load()
	if m == nil {
		return false
	}
	n, ok := m.Nodes[node]
	return ok && (n.State == meta.Dead || n.State == meta.Removed)
}
