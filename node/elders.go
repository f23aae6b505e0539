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
	links := handover.NewLinks(n.dir.path, host{n, n.quorum.Load()}, n.log.With("component", "handover"), n.upgrade.own()...)
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
// supervisor would end those with it. Elders that say nothing are not waited for.
func (n *Node) awaitElders(ctx context.Context) {
	links := n.links.Load()
	boots, _ := links.Carrying()
	if n.opt.Notify == "" || len(boots) == 0 {
		return
	}
	n.log.Info("older processes carry on, and this one ends after them", "boots", boots)
	tick := time.NewTicker(elderWatch)
	defer tick.Stop()
	for last := time.Now(); len(boots) > 0; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var heard bool
		if boots, heard = links.Carrying(); heard {
			last = time.Now()
		}
		if time.Since(last) > n.upgrade.muteTime() {
			n.log.Warn("older processes say nothing, and are not waited for", "boots", boots)
			return
		}
	}
}

const (
	elderWatch = 50 * time.Millisecond
	elderMute  = 10 * time.Second // an elder whose visit ended comes back within a second
)

// heritage is what was counted of elders so far.
type heritage struct {
	mu    sync.Mutex
	ended map[uint64]map[proxy.End]int64 // by boot
}

// leave is what another process needs to count on.
func (h *heritage) leave() (all []counted) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for boot, ended := range h.ended {
		c := counted{Boot: boot}
		for e, count := range ended {
			c.Ended = append(c.Ended, handover.End{Pool: e.Pool, Backend: e.Backend, Reason: string(e.Reason), Count: count})
		}
		all = append(all, c)
	}
	return all
}

// take goes on with what another process has counted.
func (h *heritage) take(all []counted) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = map[uint64]map[proxy.End]int64{}
	for _, c := range all {
		h.ended[c.Boot] = map[proxy.End]int64{}
		for _, e := range c.Ended {
			h.ended[c.Boot][endOf(e)] = e.Count
		}
	}
}

func endOf(e handover.End) proxy.End {
	return proxy.End{Pool: e.Pool, Backend: e.Backend, Reason: backend.Reason(e.Reason)}
}

// inherit publishes what elders carry, and counts what ended with them. Until all that
// live have told, what was known of them before holds: a drain would be over beneath
// streams of one that still looks for this process.
func (n *Node) inherit() {
	h := &n.heritage
	h.mu.Lock()
	defer h.mu.Unlock()
	links := n.links.Load()
	if links == nil {
		return
	}
	silent, elders := links.Silent(), links.Elders() // in this order: who is not silent is among them
	n.countEnded(elders, links.Living())
	for _, k := range elders {
		n.hearken(k.Trials)
	}
	if silent {
		return
	}
	sums := map[string]backend.Elder{}
	for _, k := range elders {
		for _, b := range k.Backends {
			sums[b.ID] = backend.Elder{InFlight: sums[b.ID].InFlight + b.InFlight, Running: sums[b.ID].Running + b.Running}
		}
	}
	for _, p := range n.proxy.Pools() {
		p.Inherit(sums)
	}
	n.nudge()
}

// countEnded counts the streams that ended with elders since they told the last time.
// What was counted of one is known for as long as it lives: it tells all of it anew when
// it finds this process again. heritage.mu is held.
func (n *Node) countEnded(elders []handover.Known, living []uint64) {
	h, ended := &n.heritage, map[uint64]map[proxy.End]int64{}
	for _, boot := range living {
		if was := h.ended[boot]; was != nil {
			ended[boot] = was
		}
	}
	for _, k := range elders {
		ended[k.Boot] = map[proxy.End]int64{}
		for _, e := range k.Ended {
			end := endOf(e)
			if more := e.Count - h.ended[k.Boot][end]; more > 0 {
				n.proxy.Inherit(end, more)
			}
			ended[k.Boot][end] = e.Count
		}
	}
	h.ended = ended
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

// eldersTime is how long all older processes together have to list their streams. It is
// less than what one node gets that is asked by another.
const eldersTime = time.Second

// Streams answers GET /v1/streams: with those that older processes carry.
func (n *Node) Streams(ctx context.Context, limit int) api.StreamList {
	ctx, cancel := context.WithTimeout(ctx, eldersTime)
	defer cancel()
	list, links := n.own(limit), n.links.Load()
	elders := links.Elders()
	theirs := make([][]json.RawMessage, len(elders))
	var tasks sync.WaitGroup
	for i, k := range elders {
		tasks.Go(func() { theirs[i], _ = links.Streams(ctx, k, limit) }) // where it ends, or is busy: the next time again
	}
	tasks.Wait()
	for i, k := range elders {
		for _, text := range theirs[i] {
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
