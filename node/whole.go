package node

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
)

// One node answers for all: it asks the others over the port on which nodes talk to
// each other, which trusts the nodes of the cluster and nobody else. People's tokens
// stay where they were sent. Who does not answer is named, with why.

const (
	lookTime   = 2 * time.Second // for one node's answer
	wholeTime  = 4 * time.Second // for those of all
	lookCrowd  = 16              // nodes that are asked at a time
	wholeBytes = 32 << 20        // of all answers together
	wholeMost  = 4               // questions about all nodes at a time
)

// The things that a node can be asked about; a closed list.
const (
	lookStatus   = "status"
	lookPools    = "pools"
	lookBackends = "backends"
	lookStreams  = "streams"
)

// look is what one node asks another.
type look struct {
	At    string `json:"at"`
	Limit int    `json:"limit,omitempty"` // of streams
}

// someStreams are the oldest of a node's streams.
type someStreams struct {
	Count   int64        `json:"count"` // of all that it has
	Streams []api.Stream `json:"streams"`
}

// lookedAt answers another node.
func (n *Node) lookedAt(ctx context.Context, _ string, text []byte) ([]byte, error) {
	var q look
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&q); err != nil {
		return nil, fmt.Errorf("a question that this node (%s) does not know: %w", Version().Version, err)
	}
	switch q.At {
	case lookStatus:
		return json.Marshal(n.Status())
	case lookPools:
		return json.Marshal(n.Pools())
	case lookBackends:
		return json.Marshal(n.Backends())
	case lookStreams:
		return json.Marshal(n.someStreams(ctx, q.Limit))
	}
	return nil, fmt.Errorf("this node (%s) cannot be asked about %q", Version().Version, q.At)
}

func (n *Node) someStreams(ctx context.Context, limit int) someStreams {
	_, inFlight, waiting := n.elders()
	limit = max(1, min(limit, admin.MostStreamsOfAll))
	return someStreams{n.proxy.InFlight() + n.proxy.Waiting() + inFlight + waiting, n.Streams(ctx, limit).Streams}
}

// heard is what one node said.
type heard[T any] struct {
	api.NodeAnswer
	said *T // nil: nothing
}

// askAll asks every node that is or should be there, this one by own, and all at once.
func askAll[T any](ctx context.Context, n *Node, q look, own func(context.Context) T) ([]heard[T], error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wholeTime, fmt.Errorf("all nodes together get %v", wholeTime))
	defer cancel()
	select {
	case n.asking <- struct{}{}:
		defer func() { <-n.asking }()
	case <-ctx.Done():
		return nil, refuse(admin.Conflict, "%d questions about all nodes are under way at this one, which is the limit; ask again in a moment", wholeMost)
	}
	question, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	members := n.present()
	all := make([]heard[T], len(members))
	var taken atomic.Int64
	var tasks sync.WaitGroup
	crowd := make(chan struct{}, lookCrowd)
	for i, m := range members {
		all[i].NodeAnswer = api.NodeAnswer{ID: m.ID, Name: m.Name, State: m.State, Self: m.Self}
		tasks.Go(func() {
			if m.Self {
				said := own(ctx)
				all[i].said = &said
				return
			}
			began := time.Now()
			err := askOne(ctx, n, m, question, crowd, &taken, &all[i].said)
			all[i].Took, all[i].Error = time.Since(began).Seconds(), text(err)
		})
	}
	tasks.Wait()
	return all, nil
}

// itself is what this node says of itself without asking anybody.
func itself[T any](say func() T) func(context.Context) T {
	return func(context.Context) T { return say() }
}

// present are the members that have not left, by name: also those that are dead.
func (n *Node) present() []api.Member {
	return slices.DeleteFunc(n.Members().Members, func(m api.Member) bool { return m.State == backend.MemberLeft })
}

var errGone = errors.New("it is dead, as this node sees it, and was not asked")

// askOne has said point to a node's answer, or says why there is none.
func askOne[T any](ctx context.Context, n *Node, m api.Member, question []byte, crowd chan struct{}, taken *atomic.Int64, said **T) error {
	q := n.quorum.Load()
	if m.State == backend.MemberDead || q == nil {
		return errGone
	}
	select {
	case crowd <- struct{}{}:
		defer func() { <-crowd }()
	case <-ctx.Done():
		return fmt.Errorf("it was not asked: %w", context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lookTime, fmt.Errorf("it did not answer within %v", lookTime))
	defer cancel()
	answer, err := q.Look(ctx, m.ID, question)
	if err == nil {
		*said, err = understand[T](answer, taken)
	}
	return err
}

// understand reads a node's answer, as long as there is room for it beside the others'.
func understand[T any](answer []byte, taken *atomic.Int64) (*T, error) {
	if taken.Add(int64(len(answer))) > wholeBytes {
		return nil, fmt.Errorf("its answer of %d bytes is left out: those of all nodes together may have %d", len(answer), wholeBytes)
	}
	v := new(T)
	if err := json.Unmarshal(answer, v); err != nil {
		return nil, fmt.Errorf("its answer is not as expected (%w); is it a starling of another version?", err)
	}
	return v, nil
}

// answers are who was asked, and what came of it.
func answers[T any](all []heard[T], with func(*api.NodeAnswer, *T)) []api.NodeAnswer {
	list := []api.NodeAnswer{}
	for _, h := range all {
		if h.said != nil && with != nil {
			with(&h.NodeAnswer, h.said)
		}
		list = append(list, h.NodeAnswer)
	}
	return list
}

// StatusOfAll answers GET /v1/status?scope=cluster.
func (n *Node) StatusOfAll(ctx context.Context) (api.Status, error) {
	s := n.Status()
	all, err := askAll(ctx, n, look{At: lookStatus}, itself(n.Status))
	s.Nodes = answers(all, func(a *api.NodeAnswer, one *api.Status) { a.Status = one })
	return s, err
}

// PoolsOfAll answers GET /v1/pools?scope=cluster.
func (n *Node) PoolsOfAll(ctx context.Context) (api.Pools, error) {
	all, err := askAll(ctx, n, look{At: lookPools}, itself(n.Pools))
	list := api.Pools{Pools: []api.Pool{}, Nodes: answers(all, nil)}
	for _, h := range all {
		for i := 0; h.said != nil && i < len(h.said.Pools); i++ {
			h.said.Pools[i].Node = h.Name
			list.Pools = append(list.Pools, h.said.Pools[i])
		}
	}
	slices.SortStableFunc(list.Pools, func(a, b api.Pool) int { return cmp.Compare(a.Name, b.Name) })
	return list, err
}

// BackendsOfAll answers GET /v1/backends?scope=cluster.
func (n *Node) BackendsOfAll(ctx context.Context) (api.Backends, error) {
	all, err := askAll(ctx, n, look{At: lookBackends}, itself(n.Backends))
	list := api.Backends{Backends: []api.Backend{}, Nodes: answers(all, nil)}
	for _, h := range all {
		for i := 0; h.said != nil && i < len(h.said.Backends); i++ {
			h.said.Backends[i].Node = h.Name
			list.Backends = append(list.Backends, h.said.Backends[i])
		}
	}
	slices.SortStableFunc(list.Backends, func(a, b api.Backend) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.ID, b.ID))
	})
	return list, err
}

// StreamsOfAll answers GET /v1/streams?scope=cluster: the oldest of all nodes, each
// by its own node's clock.
func (n *Node) StreamsOfAll(ctx context.Context, limit int) (api.StreamList, error) {
	own := func(ctx context.Context) someStreams { return n.someStreams(ctx, limit) }
	all, err := askAll(ctx, n, look{At: lookStreams, Limit: limit}, own)
	list := api.StreamList{Streams: []api.Stream{}}
	list.Nodes = answers(all, func(a *api.NodeAnswer, one *someStreams) { a.Count = one.Count })
	for _, h := range all {
		for i := 0; h.said != nil && i < len(h.said.Streams); i++ {
			h.said.Streams[i].Node = h.Name
			list.Streams = append(list.Streams, h.said.Streams[i])
		}
	}
	slices.SortStableFunc(list.Streams, func(a, b api.Stream) int { return a.Started.Compare(b.Started) })
	list.Streams = list.Streams[:min(limit, len(list.Streams))]
	return list, err
}
