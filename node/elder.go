package node

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/handover"
	"github.com/starling-lb/starling/node/quorum"
)

// What a process does that is the node no more: it carries its streams to their end,
// and tells its heir how much that still is.

const (
	tellEvery  = 20 * time.Millisecond // at most: what has not changed is not told
	leaveGrace = 5 * time.Second       // for a client that keeps its connection to ask once more
)

// holdTurns has turns that begin wait until the other process is the node, or this
// one is again, and lets those that ask have their answers first.
func (n *Node) holdTurns() {
	wait := make(chan struct{})
	n.held.Store(&wait)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for by := time.Now().Add(seekTime); n.seeking.Load() > 0 && time.Now().Before(by); {
		<-tick.C
	}
}

const (
	seekTime = time.Second     // for turns that ask
	soonTime = 2 * time.Second // for leases, before turns may begin again
)

// passTurns has turns begin again, once this process has its leases.
func (n *Node) passTurns() {
	if q := n.quorum.Load(); q != nil && n.sticks() {
		ctx, cancel := context.WithTimeout(context.Background(), soonTime)
		defer cancel()
		q.Leased(ctx)
	}
	if wait := n.held.Swap(nil); wait != nil {
		close(*wait)
	}
}

// awaitHeir waits while a turn would find nobody who knows of its session. The turn
// is counted among those that ask when it returns.
func (n *Node) awaitHeir(ctx context.Context) {
	n.seeking.Add(1) // before the look: who is seen is waited for, who is not sees
	if n.held.Load() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, upTime)
	defer cancel()
	for wait := n.held.Load(); wait != nil && ctx.Err() == nil; wait = n.held.Load() {
		n.seeking.Add(-1)
		select {
		case <-*wait:
		case <-ctx.Done():
		}
		n.seeking.Add(1)
	}
}

// apart is a proposal that may wait for a place for long: meanwhile its turn asks
// nobody.
func (n *Node) apart(ctx context.Context, propose func() string) func() string {
	return func() string {
		n.seeking.Add(-1)
		defer n.awaitHeir(ctx)
		return propose()
	}
}

// beyond is how the turns of a life that is over reach others: by the process that is
// the node now, which may be this one again.
type beyond struct {
	n    *Node
	over *quorum.Quorum
	link *handover.Link
}

var _ quorum.Beyond = beyond{}

// Call asks a node.
func (b beyond) Call(ctx context.Context, node, service string, question []byte) ([]byte, error) {
	if now := b.n.quorum.Load(); now != b.over {
		return now.Relay(ctx, node, service, question)
	}
	return b.link.Call(ctx, node, service, question)
}

// Feed follows a feed once.
func (b beyond) Feed(ctx context.Context, node, service string, opening []byte, take func([]byte) error) error {
	if now := b.n.quorum.Load(); now != b.over {
		return now.RelayFeed(ctx, node, service, opening, take)
	}
	return b.link.Feed(ctx, node, service, opening, take)
}

// tell begins to tell whoever is the node what this process carries.
func (n *Node) tell() {
	u := &n.upgrade
	ctx, cancel := context.WithCancel(context.Background())
	u.told, u.from = cancel, time.Now()
	u.done.Go(func() { u.link.Tell(ctx, tellEvery, n.carries, n.listStreams) })
}

// carries is what this process still does.
func (n *Node) carries() handover.Counts {
	n.mu.Lock()
	by := n.upgrade.until
	n.mu.Unlock()
	c := handover.Counts{Version: Version().Version, Since: n.upgrade.from, Deadline: by, InFlight: n.proxy.InFlight(), Waiting: n.proxy.Waiting()}
	for _, p := range n.proxy.Pools() {
		for _, b := range p.Backends() {
			if streams := b.InFlight(); streams > 0 {
				c.Backends = append(c.Backends, handover.Carried{ID: b.ID, InFlight: int(streams), Running: int(b.Running())})
			}
		}
	}
	for e, count := range n.proxy.Bequest() {
		c.Ended = append(c.Ended, handover.End{Pool: e.Pool, Backend: e.Backend, Reason: string(e.Reason), Count: count})
	}
	c.Trials = n.became()
	slices.SortFunc(c.Ended, func(a, b handover.End) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.Reason, b.Reason))
	})
	return c
}

func (n *Node) listStreams(limit int) (list []json.RawMessage) {
	for _, s := range n.own(limit) {
		text, err := json.Marshal(s)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		list = append(list, text)
	}
	return list
}

// depart is Stop where another process is the node: nothing of it ends but what this
// one carries, which runs to its end or to ctx's.
func (n *Node) depart(ctx context.Context) error {
	began := time.Now()
	if !n.beginDeparture(ctx) {
		return nil
	}
	n.looking()
	n.stopFinding()
	n.prober.Stop()
	n.stopAsking()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = n.admin.Stop(last) // whom it cuts, the other one serves
	ended := make(chan struct{})
	var words sync.WaitGroup
	words.Go(func() { n.sayHowFar(n.drain.Sub(began), ended) })
	report := n.proxy.Leave(ctx, leaveGrace)
	close(ended)
	words.Wait()
	n.mu.Lock()
	n.report = report
	n.mu.Unlock()
	close(n.carried)
	err := n.disagree(ctx) // the holder that this process was
	n.upgrade.told()
	n.upgrade.done.Wait()
	handover.Depart(n.upgrade.stay)
	n.sayDrained(ctx, time.Since(began))
	return err
}

// beginDeparture notes by when it is over; false: it has begun before.
func (n *Node) beginDeparture(ctx context.Context) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.ready {
		return false
	}
	n.ready = false
	n.upgrade.until, _ = ctx.Deadline()
	n.log.Info("carrying on as an elder", "streams", n.proxy.InFlight(), "deadline", n.upgrade.until)
	if n.drain, n.cutting = n.upgrade.until, ctx.Done(); n.drain.IsZero() {
		n.drain = time.Now()
	}
	return true
}

// own are the streams of this process.
func (n *Node) own(limit int) []api.Stream {
	list := []api.Stream{}
	for _, s := range n.proxy.Streams(limit) {
		list = append(list, streamOf(s))
	}
	return list
}
