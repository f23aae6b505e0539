package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/handover"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// What older processes of this node still carry is this node's, too: its counts, its
// picks and what it tells others are of both.

// host is what this process does for them.
type host struct{ n *Node }

var _ handover.Host = host{}

var errNoSessions = errors.New("this node keeps no sessions")

// Call asks a node for an elder.
func (h host) Call(ctx context.Context, node, service string, question []byte) ([]byte, error) {
	q := h.n.quorum.Load()
	if q == nil {
		return nil, errNoSessions
	}
	return q.Relay(ctx, node, service, question)
}

// Feed follows a feed for an elder.
func (h host) Feed(ctx context.Context, node, service string, opening []byte, send func([]byte) error) error {
	q := h.n.quorum.Load()
	if q == nil {
		return errNoSessions
	}
	return q.RelayFeed(ctx, node, service, opening, send)
}

// Heard hears that an elder carries more or less than before.
func (h host) Heard() { h.n.inherit() }

// hostElders lets elders find this process.
func (n *Node) hostElders() {
	links := handover.NewLinks(n.dir.path, host{n}, n.log.With("component", "handover"))
	n.links.Store(links)
	if err := links.Start(); err != nil {
		n.log.Warn("older processes of this node cannot find this one, and none can become one: upgrades fail", "err", err)
	}
}

// oldest is the boot of the oldest process of this node that lives; 0: none but this.
func (n *Node) oldest() uint64 { return n.links.Load().Oldest() }

// heritage is what was counted of elders so far.
type heritage struct {
	mu    sync.Mutex
	ended map[uint64]map[proxy.End]int64 // by boot
}

// inherit publishes what elders carry, and counts what ended with them.
func (n *Node) inherit() {
	h := &n.heritage
	h.mu.Lock()
	defer h.mu.Unlock()
	sums, ended := map[string]backend.Elder{}, map[uint64]map[proxy.End]int64{}
	for _, k := range n.links.Load().Elders() {
		for _, b := range k.Backends {
			sums[b.ID] = backend.Elder{InFlight: sums[b.ID].InFlight + b.InFlight, Running: sums[b.ID].Running + b.Running}
		}
		ended[k.Boot] = map[proxy.End]int64{}
		for _, e := range k.Ended {
			end := proxy.End{Pool: e.Pool, Backend: e.Backend, Reason: backend.Reason(e.Reason)}
			if more := e.Count - h.ended[k.Boot][end]; more > 0 {
				n.proxy.Inherit(end, more)
			}
			ended[k.Boot][end] = e.Count
		}
	}
	h.ended = ended
	for _, p := range n.proxy.Pools() {
		p.Inherit(sums)
	}
	n.nudge()
}

// elders are the older processes, with what they carry in all.
func (n *Node) elders() (list []api.Elder, inFlight, waiting int64) {
	list = []api.Elder{}
	for _, k := range n.links.Load().Elders() {
		list = append(list, api.Elder{
			PID: k.PID, Boot: k.Boot, Version: k.Version, Since: k.Since, Deadline: k.Deadline, InFlight: k.InFlight, Waiting: k.Counts.Waiting,
		})
		inFlight += k.InFlight
		waiting += k.Counts.Waiting
	}
	return list, inFlight, waiting
}

// Streams answers GET /v1/streams: with those that older processes carry.
func (n *Node) Streams(limit int) api.StreamList {
	list, links := n.own(limit), n.links.Load()
	for _, k := range links.Elders() {
		var theirs []api.Stream
		if json.Unmarshal(links.Streams(context.Background(), k, limit), &theirs) != nil {
			continue // it ends, or is busy; the next time again
		}
		for _, s := range theirs {
			s.PID = k.PID
			list = append(list, s)
		}
	}
	slices.SortStableFunc(list, func(a, b api.Stream) int { return cmp.Compare(a.Started.UnixNano(), b.Started.UnixNano()) })
	return api.StreamList{Streams: list[:min(limit, len(list))]}
}
