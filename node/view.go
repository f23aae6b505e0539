package node

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy"
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
	elders, inFlight, waiting := n.elders()
	s := api.Status{
		Node: api.Node{
			ID: n.dir.id, Name: n.cfg().Node.Name, Version: Version().Version, State: state, Started: n.started, PID: os.Getpid(),
		},
		Cluster:    api.Cluster{Members: members, Alive: alive},
		Streams:    api.Streams{InFlight: n.proxy.InFlight() + inFlight, Waiting: n.proxy.Waiting() + waiting, Ended: n.proxy.Ended()},
		Drain:      drain,
		ConfigHash: n.cfg().Hash(),
		NotReady:   text(n.unready()),
		Faults:     n.faults(),
		Elders:     elders,
	}
	n.agreed(&s)
	return s
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// faults are what a person should see to, in words.
func (n *Node) faults() []string {
	all := []string{}
	if q := n.quorum.Load(); q != nil {
		if err := q.Failed(); err != nil {
			all = append(all, fmt.Sprintf("this node keeps no replicas until it is started again on a disk that works: %v", err))
		}
		if _, still := q.Steps(); still > 0 {
			all = append(all, fmt.Sprintf("what is done to %d shards stands still: starling shards says why", still))
		}
	}
	if !n.reloads.success() {
		all = append(all, "the configuration file is not the one in force: its last reload was refused")
	}
	return all
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
				InFlight: api.InFlight{Local: b.Carried(), Cluster: b.InFlight() + int64(b.Elsewhere().InFlight), Waiting: b.Waiting()},
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

func streamOf(s proxy.StreamInfo) api.Stream {
	return api.Stream{
		ID: strconv.FormatUint(s.ID, 10), Pool: s.Pool, Backend: s.Backend, Started: s.Started, Phase: string(s.Phase), Client: s.Client, BytesOut: s.BytesOut,
		SessionEpoch: uint64(s.Epoch),
	}
}
