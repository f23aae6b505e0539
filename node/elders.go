package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/handover"
	"github.com/starling-lb/starling/node/quorum"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// What older processes of this node still carry is this node's, too: its counts, its
// picks and what it tells others are of both.

// host is what this process does for them.
type host struct {
	n    *Node
	over *quorum.Quorum // of a life of this process that is over: it would ask by this host; nil: there was none
}

var _ handover.Host = host{}

var (
	errNoSessions = errors.New("this node keeps no sessions")
	errNotYet     = errors.New("this process takes the node back just now; ask again")
)

// now is what elders ask by.
func (h host) now() (*quorum.Quorum, error) {
	switch q := h.n.quorum.Load(); q {
	case nil:
		return nil, errNoSessions
	case h.over:
		return nil, errNotYet
	default:
		return q, nil
	}
}

// Call asks a node for an elder.
func (h host) Call(ctx context.Context, node, service string, question []byte) ([]byte, error) {
	q, err := h.now()
	if err != nil {
		return nil, err
	}
	return q.Relay(ctx, node, service, question)
}

// Feed follows a feed for an elder.
func (h host) Feed(ctx context.Context, node, service string, opening []byte, send func([]byte) error) error {
	q, err := h.now()
	if err != nil {
		return err
	}
	return q.RelayFeed(ctx, node, service, opening, send)
}

// Heard hears that an elder carries more or less than before.
func (h host) Heard() { h.n.inherit() }

// hostElders lets elders find this process.
func (n *Node) hostElders() {
	links := handover.NewLinks(n.dir.path, host{n, n.quorum.Load()}, n.log.With("component", "handover"))
	err := links.Start()
	n.links.Store(links) // not before: a life of this process that goes on says by it who lives
	n.inherit()          // what was told meanwhile
	if err != nil {
		n.log.Warn("older processes of this node cannot find this one, and none can become one: upgrades fail", "err", err)
	}
}

// living are the boots of the older processes of this node that live.
func (n *Node) living() []uint64 { return n.links.Load().Living() }

// awaitElders has a node with a supervisor end after its elders, or when ctx does: the
// supervisor would end those with it.
func (n *Node) awaitElders(ctx context.Context) {
	if n.opt.Notify == "" || len(n.living()) == 0 {
		return
	}
	n.log.Info("older processes carry on, and this one ends after them", "boots", n.living())
	tick := time.NewTicker(elderWatch)
	defer tick.Stop()
	for len(n.living()) > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

const elderWatch = 50 * time.Millisecond

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
		n.hearken(k.Trials)
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
		theirs, _ := links.Streams(context.Background(), k, limit) // where it ends, or is busy: the next time again
		for _, text := range theirs {
			var s api.Stream
			if json.Unmarshal(text, &s) == nil {
				s.PID = k.PID
				list = append(list, s)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b api.Stream) int { return cmp.Compare(a.Started.UnixNano(), b.Started.UnixNano()) })
	return api.StreamList{Streams: list[:min(limit, len(list))]}
}
