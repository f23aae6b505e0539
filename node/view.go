package node

import (
	"strconv"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
)

// Status answers GET /v1/status. A node without a cluster section is its only
// member, and keeps shards only if it has sessions.
func (n *Node) Status() api.Status {
	state := backend.MemberAlive
	drain := n.drainInfo()
	if drain != nil {
		state = backend.MemberDraining
	}
	members, alive := n.counted()
	s := api.Status{
		Node: api.Node{
			ID: n.dir.id, Name: n.cfg().Node.Name, Version: Version().Version, State: state, Started: n.started,
		},
		Cluster:    api.Cluster{Members: members, Alive: alive},
		Streams:    api.Streams{InFlight: n.proxy.InFlight(), Waiting: n.proxy.Waiting()},
		Drain:      drain,
		ConfigHash: n.cfg().Hash(),
	}
	n.agreed(&s)
	return s
}

// Backends answers GET /v1/backends. A node alone is the whole cluster.
func (n *Node) Backends() api.Backends {
	list, now := []api.Backend{}, time.Now()
	for _, p := range n.proxy.Pools() {
		for _, b := range p.Backends() {
			terms := b.Terms()
			s := b.Standing()
			entry := api.Backend{
				ID: b.ID, Pool: p.Name, URL: b.URL, State: s.State, Reason: s.Reason, Since: s.Since,
				Weight: terms.Weight, Cap: terms.Cap, CapSource: terms.CapSource,
				InFlight: api.InFlight{Local: b.InFlight(), Cluster: b.InFlight() + int64(b.Elsewhere().InFlight), Waiting: b.Waiting()},
			}
			entry.Slow, entry.Speed, entry.StepTime = b.Slow(), b.Rate(), b.StepTime(now)
			entry.Engine = n.said(p.Name, b)
			if q := n.quorum.Load(); q != nil {
				entry.Sessions = q.Sessions(b.ID)
			}
			if s.State == backend.Ejected {
				entry.EjectedUntil = &s.Until
			}
			if s.State == backend.Draining && !s.Until.IsZero() {
				entry.Drain = &api.Drain{Deadline: s.Until, Left: max(0, time.Until(s.Until).Seconds())}
			}
			list = append(list, entry)
		}
	}
	return api.Backends{Backends: list}
}

// Streams answers GET /v1/streams.
func (n *Node) Streams(limit int) api.StreamList {
	list := []api.Stream{}
	for _, s := range n.proxy.Streams(limit) {
		list = append(list, api.Stream{
			ID: strconv.FormatUint(s.ID, 10), Pool: s.Pool, Backend: s.Backend, Started: s.Started, Phase: string(s.Phase), Client: s.Client, BytesOut: s.BytesOut,
			SessionEpoch: uint64(s.Epoch),
		})
	}
	return api.StreamList{Streams: list}
}
