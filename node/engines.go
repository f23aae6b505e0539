package node

import (
	"context"
	"net"
	"time"

	"github.com/starling-lb/starling/node/engine"
	"github.com/starling-lb/starling/proxy/backend"
)

// readers are those of the pools whose engines tell their load.
func (n *Node) readers() []*engine.Reader {
	var list []*engine.Reader
	for _, p := range n.proxy.Pools() {
		kind := engine.Kind(n.cfg.Pools[p.Name].Backend.Engine)
		switch kind {
		case "none":
			continue
		case "auto":
			kind = ""
		}
		list = append(list, engine.New(engine.Options{
			Logger: n.log.With("component", "engine", "pool", p.Name), Kind: kind, Backends: p.Backends,
			Client: engine.ClientOf(func(ctx context.Context, b *backend.Backend) (net.Conn, error) {
				return n.proxy.Connect(ctx, p.Name, b)
			}),
			Tell: func(b *backend.Backend, r engine.Reading, now time.Time) {
				b.SetEngine(r.Running, r.Waiting, 0, now)
			},
		}))
	}
	return list
}

func (n *Node) askEngines(ctx context.Context) error {
	for _, r := range n.engines {
		if err := r.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) stopAsking() {
	for _, r := range n.engines {
		r.Stop()
	}
}
