package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// AskService is the name under which nodes answer each other for shards.
const AskService = "shards.ask"

// Peers carries a question to another node.
type Peers interface {
	Call(ctx context.Context, node, service string, question []byte) ([]byte, error)
}

// Places says which nodes have a replica of a shard, in no order.
type Places interface {
	Replicas(shard uint32) []string
}

// ErrNoLeader is what a question gets that nobody could answer in its time.
var ErrNoLeader = errors.New("no leader answered for the shard")

const (
	askRest   = 10 * time.Millisecond // after a round in which nobody led; doubles
	askRestTo = 200 * time.Millisecond
	askTime   = time.Second // for one node: one that hangs shall not take all the time there is
)

// Router knows whom to ask about a session: this node, or another one hop away.
type Router struct {
	node   string
	hash   *Hasher
	peers  Peers
	places Places

	mu     sync.Mutex // guards what follows
	owners map[uint32]*Owner
	hints  map[uint32]string // who answered last for a shard that is led elsewhere
}

// NewRouter checks and allocates.
func NewRouter(node string, hash *Hasher, peers Peers, places Places) *Router {
	return &Router{node: node, hash: hash, peers: peers, places: places, owners: make(map[uint32]*Owner), hints: make(map[uint32]string)}
}

// Own adds the owner of a shard that has a replica here, or takes it away (nil).
func (r *Router) Own(shard uint32, o *Owner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o == nil {
		delete(r.owners, shard)
		return
	}
	r.owners[shard] = o
}

// Bind returns the session's binding; if it has none, the proposal becomes it. It
// asks on until ctx ends; an error then says that the outcome is not known.
func (r *Router) Bind(ctx context.Context, pool, name, proposal string) (Binding, error) {
	if proposal == "" || len(proposal) > maxName {
		return Binding{}, fmt.Errorf("bind: backend id %q: want 1 to %d bytes", proposal, maxName)
	}
	session, shard := r.hash.Key(pool, name)
	a, err := r.ask(ctx, question{ask: askBind, shard: shard, session: session, backend: proposal})
	return a.binding, err
}

// Read returns the session's binding, if it has one.
func (r *Router) Read(ctx context.Context, pool, name string) (Binding, bool, error) {
	session, shard := r.hash.Key(pool, name)
	a, err := r.ask(ctx, question{ask: askRead, shard: shard, session: session})
	return a.binding, a.verdict == bound, err
}

// Answer is the service: this node answers for itself and asks nobody else.
func (r *Router) Answer(ctx context.Context, _ string, b []byte) ([]byte, error) {
	q, err := decodeQuestion(b)
	if err != nil {
		return nil, err
	}
	return r.here(ctx, q).encode(), nil
}

func (r *Router) here(ctx context.Context, q question) answer {
	r.mu.Lock()
	o := r.owners[q.shard]
	r.mu.Unlock()
	if o == nil {
		return answer{verdict: elsewhere}
	}
	return o.answer(ctx, r.node, q)
}

// ask goes from node to node until one answers as the leader.
func (r *Router) ask(ctx context.Context, q question) (answer, error) {
	last := error(nil)
	for rest := askRest; ; rest = min(2*rest, askRestTo) {
		a, err := r.round(ctx, q)
		if err == nil {
			return a, nil
		}
		last = err
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return answer{}, fmt.Errorf("shard %d: %w: %w: last: %w", q.shard, ErrNoLeader, context.Cause(ctx), last)
		}
	}
}

// round asks who is thought to lead, then whoever that one names, then each
// replica, nobody twice.
func (r *Router) round(ctx context.Context, q question) (answer, error) {
	next := r.candidates(q.shard)
	asked := make(map[string]bool)
	last := errors.New("no node is known to have a replica")
	for len(next) > 0 && ctx.Err() == nil {
		node := next[0]
		next = next[1:]
		if asked[node] {
			continue
		}
		asked[node] = true
		a, err := r.put(ctx, node, q)
		switch {
		case err != nil:
			last = err
		case a.verdict == bound || a.verdict == unbound:
			r.hint(q.shard, node)
			return a, nil
		case a.verdict == elsewhere && a.leader != "":
			last = fmt.Errorf("node %s names node %s", node, a.leader)
			next = append([]string{a.leader}, next...)
		default:
			last = fmt.Errorf("node %s cannot tell", node)
		}
	}
	return answer{}, last
}

func (r *Router) put(ctx context.Context, node string, q question) (answer, error) {
	if node == r.node {
		return r.here(ctx, q), nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	b, err := r.peers.Call(ctx, node, AskService, q.encode())
	if err != nil {
		return answer{}, err
	}
	return decodeAnswer(b)
}

// candidates is the order in which to ask.
func (r *Router) candidates(shard uint32) []string {
	r.mu.Lock()
	o, hint := r.owners[shard], r.hints[shard]
	r.mu.Unlock()
	var first []string
	if o != nil {
		first = append(first, o.log.Leader())
	}
	first = append(first, hint)
	first = append(first, r.places.Replicas(shard)...)
	return slices.DeleteFunc(first, func(n string) bool { return n == "" })
}

func (r *Router) hint(shard uint32, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hints[shard] = node
}
