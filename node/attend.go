package node

import (
	"context"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/starling-lb/starling/node/discovery"
	"github.com/starling-lb/starling/node/engine"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// attendant is what this node runs beside a pool.
type attendant struct {
	sources backend.SourceConfig
	kind    string            // of the engines, as the configuration has it
	finder  *discovery.Finder // of its backends; nil: the file lists all
	reader  *engine.Reader    // of what its engines tell; nil: they are not asked
}

// attendants are those of all pools, by name. They never change.
type attendants map[string]*attendant

// attend makes those of a configuration, of the ones that there are as far as they
// are the same.
func (n *Node) attend(pools map[string]proxy.PoolConfig, were attendants) attendants {
	all := attendants{}
	for name, c := range pools {
		if a := were[name]; a != nil && a.sources == c.Sources && a.kind == c.Backend.Engine {
			all[name] = a
			continue
		}
		a := &attendant{sources: c.Sources, kind: c.Backend.Engine}
		if was := were[name]; was != nil && was.sources == c.Sources {
			a.finder = was.finder
		} else if c.Sources.On() {
			a.finder = discovery.New(c.Sources, discovery.Options{
				Logger: n.log.With("component", "discovery", "pool", name),
				Tell:   func(list []backend.Config) { n.supply.find(name, list) },
			})
		}
		if was := were[name]; was != nil && was.kind == c.Backend.Engine {
			a.reader = was.reader
		} else if a.kind != "none" {
			a.reader = n.reader(name, a.kind)
		}
		all[name] = a
	}
	return all
}

func (n *Node) attendants() attendants { return *n.beside.Load() }

func (n *Node) reader(pool, kind string) *engine.Reader {
	if kind == "auto" {
		kind = ""
	}
	return engine.New(engine.Options{
		Logger: n.log.With("component", "engine", "pool", pool), Kind: engine.Kind(kind), Backends: func() []*backend.Backend { return n.backendsOf(pool) },
		Client: engine.ClientOf(func(ctx context.Context, b *backend.Backend) (net.Conn, error) {
			return n.proxy.Connect(ctx, pool, b)
		}),
		Tell: func(b *backend.Backend, r engine.Reading, now time.Time) {
			b.SetEngine(r.Running, r.Waiting, 0, now)
		},
	})
}

// backendsOf are a pool's backends; none where it is gone.
func (n *Node) backendsOf(pool string) []*backend.Backend {
	for _, p := range n.proxy.Pools() {
		if p.Name == pool {
			return p.Backends()
		}
	}
	return nil
}

// finders are those that others do not have, of pools that others know or of those
// that they do not.
func (a attendants) finders(others attendants, known bool) (all []*discovery.Finder) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		f, o := a[name].finder, others[name]
		if f != nil && (o != nil) == known && (o == nil || o.finder != f) {
			all = append(all, f)
		}
	}
	return all
}

// readers are those that others do not have.
func (a attendants) readers(others attendants) (all []*engine.Reader) {
	for name, one := range a {
		if o := others[name]; one.reader != nil && (o == nil || o.reader != one.reader) {
			all = append(all, one.reader)
		}
	}
	return all
}

// find begins to look for backends, and returns when each source was looked at
// once.
func (n *Node) find(ctx context.Context) error {
	return startFinders(ctx, n.attendants().finders(nil, false))
}

func (n *Node) stopFinding() {
	for _, f := range n.attendants().finders(nil, false) {
		f.Stop()
	}
}

// startFinders starts all, or none.
func startFinders(ctx context.Context, all []*discovery.Finder) error {
	for i, f := range all {
		if err := f.Start(ctx); err != nil {
			for _, before := range all[:i] {
				before.Stop()
			}
			return err
		}
	}
	return nil
}

func (n *Node) askEngines(ctx context.Context) error {
	for _, r := range n.attendants().readers(nil) {
		if err := r.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) stopAsking() {
	for _, r := range n.attendants().readers(nil) {
		r.Stop()
	}
}
