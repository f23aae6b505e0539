package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
)

// said is what the backend's engine said last; nil where it says nothing.
func (n *Node) said(pool string, b *backend.Backend) *api.Engine {
	a := n.attendants()[pool]
	if a == nil || a.reader == nil {
		return nil
	}
	last, ok := a.reader.Said(b)
	if !ok {
		return nil
	}
	return &api.Engine{Name: string(last.Engine), Running: last.Running, Waiting: last.Waiting, Cache: last.Cache}
}

// engineGauges are what the engines said last, read when somebody asks.
type engineGauges struct {
	node                    *Node
	running, waiting, cache *prometheus.Desc
}

func (n *Node) registerEngines() error {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("starling_engine_"+name, help, []string{"pool", "backend"}, nil)
	}
	return n.registry.Register(&engineGauges{
		node:    n,
		running: desc("running", "Requests that a backend's engine works on, all its clients', by its own word."),
		waiting: desc("waiting", "Requests that a backend's engine holds back, by its own word."),
		cache:   desc("cache_usage", "Share of its cache for contexts that a backend's engine uses, by its own word; 0 where it tells none."),
	})
}

// Describe implements prometheus.Collector.
func (g *engineGauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.running, g.waiting, g.cache} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *engineGauges) Collect(ch chan<- prometheus.Metric) {
	for _, p := range g.node.proxy.Pools() {
		for _, b := range p.Backends() {
			said := g.node.said(p.Name, b)
			if said == nil {
				continue
			}
			gauge := func(d *prometheus.Desc, v float64) {
				ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, p.Name, b.ID)
			}
			gauge(g.running, float64(said.Running))
			gauge(g.waiting, float64(said.Waiting))
			gauge(g.cache, said.Cache)
		}
	}
}
