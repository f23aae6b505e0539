package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/starling-lb/starling/consensus/transport"
	"github.com/starling-lb/starling/shards"
)

// Beyond is how the turns of a process that is the node no more reach others: by way
// of the process that is.
type Beyond interface {
	Call(ctx context.Context, node, service string, question []byte) ([]byte, error)
	// Feed follows a feed once, and returns when it ends.
	Feed(ctx context.Context, node, service string, opening []byte, take func(message []byte) error) error
}

// Release closes replicas, port and file, for another process of this node to open.
// The turns go on, and their node is a holder of its own, until Stop. They reach others
// by b, and as long as nobody is there by what is left of the port: others do not come
// by it, but leases that they granted go on.
func (q *Quorum) Release(ctx context.Context, b Beyond) error {
	q.cancel()
	err := errors.Join(q.keeper.Stop(ctx), q.ended(ctx))
	b = ways{b, q}
	q.beyond.Store(&b)
	if r := q.router.Load(); r != nil {
		r.Outlive()
		for _, g := range q.groups.All() {
			q.drop(g.ID.Shard)
		}
	}
	err = errors.Join(err, q.groups.Stop(ctx))
	q.port.Retire(ctx)
	return errors.Join(err, q.store.Stop(ctx))
}

// ways are how a process reaches others that is the node no more: by the one that is,
// and where that one cannot yet, by its own port. However long the other one opens what
// it took over, leases do not lapse meanwhile beneath turns that run.
type ways struct {
	Beyond
	q *Quorum
}

// Call asks a node.
func (w ways) Call(ctx context.Context, node, service string, question []byte) ([]byte, error) {
	answer, err := w.Beyond.Call(ctx, node, service, question)
	if err == nil || w.ends(ctx, node) {
		return answer, err
	}
	answer, own := w.q.port.Call(ctx, node, service, question)
	if own != nil {
		return nil, fmt.Errorf("%w; and by this process's own port: %w", err, own)
	}
	return answer, nil
}

// Feed follows a feed once. One that has brought something is over when it breaks: the
// next is of another opening.
func (w ways) Feed(ctx context.Context, node, service string, opening []byte, take func([]byte) error) error {
	came := false
	err := w.Beyond.Feed(ctx, node, service, opening, func(m []byte) error { came = true; return take(m) })
	if came || w.ends(ctx, node) {
		return err
	}
	return w.q.followOnce(ctx, node, service, opening, take)
}

// ends tells whether there is no other way: this node itself is the other process.
func (w ways) ends(ctx context.Context, node string) bool {
	return node == w.q.o.Self.ID || ctx.Err() != nil
}

// Boot numbers this process among those of the node.
func (q *Quorum) Boot() uint64 { return q.boot }

// Turns is how many turns of sessions run here.
func (q *Quorum) Turns() int {
	if r := q.router.Load(); r != nil {
		return r.Turns()
	}
	return 0
}

// Leased returns once this node has a lease of every shard, or ctx ends: its first
// turns then need not wait for one. A node without sessions wants none.
func (q *Quorum) Leased(ctx context.Context) {
	tick := time.NewTicker(leadersLook)
	defer tick.Stop()
	for r := q.router.Load(); r == nil || !r.Leased(); r = q.router.Load() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Relay answers a question of an older process of this node, or asks the node that it
// is for.
func (q *Quorum) Relay(ctx context.Context, node, service string, question []byte) ([]byte, error) {
	if service != shards.AskService {
		return nil, fmt.Errorf("an older process of this node asks for %q, which is not for it", service)
	}
	if b := q.beyond.Load(); b != nil {
		return (*b).Call(ctx, node, service, question) // this process is an elder itself by now
	}
	if node == q.o.Self.ID {
		return q.answerAsk(ctx, node, question)
	}
	return q.port.Call(ctx, node, service, question)
}

var errReleased = errors.New("this process lets go of the node")

// relayBacklog is how many messages of a feed may wait for an older process.
const relayBacklog = 1024

// RelayFeed follows a feed for an older process of this node, once. send may wait.
func (q *Quorum) RelayFeed(ctx context.Context, node, service string, opening []byte, send func([]byte) error) error {
	if service != shards.FeedService {
		return fmt.Errorf("an older process of this node wants the feed %q, which is not for it", service)
	}
	if b := q.beyond.Load(); b != nil {
		return (*b).Feed(ctx, node, service, opening, send)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(q.ctx, func() { end(errReleased) })() // the next one is another process's, or life's
	messages := make(chan []byte, relayBacklog)
	take := func(m []byte) error {
		select {
		case messages <- m:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
			return transport.ErrSlow
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		end(q.feedOnce(ctx, node, service, opening, take))
	}()
	defer func() { end(nil); <-ended }()
	for {
		select {
		case m := <-messages:
			if err := send(m); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// feedOnce is one life of a feed, from this node or another: a second one would be of
// another opening.
func (q *Quorum) feedOnce(ctx context.Context, node, service string, opening []byte, take func([]byte) error) error {
	if node != q.o.Self.ID {
		return q.followOnce(ctx, node, service, opening, take)
	}
	r := q.router.Load()
	if r == nil {
		return errors.New("this node has no cluster yet")
	}
	return r.Serve(ctx, node, opening, func(m []byte) error { return take(slices.Clone(m)) })
}

// followOnce is one life of another node's feed.
func (q *Quorum) followOnce(ctx context.Context, node, service string, opening []byte, take func([]byte) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	q.port.Follow(ctx, node, service, transport.Reader{Open: func() []byte { return opening }, Take: take, Lost: func(err error) { end(err) }})
	return context.Cause(ctx)
}

const (
	beyondRest   = 20 * time.Millisecond  // after a feed that broke; doubles, with jitter
	beyondRestTo = 100 * time.Millisecond // no more: leases lapse meanwhile, and who is asked is on this machine
)

// followBeyond keeps a feed open until ctx ends.
func followBeyond(ctx context.Context, b Beyond, node, service string, r shards.Reader) {
	for wait := beyondRest; ctx.Err() == nil; wait = min(2*wait, beyondRestTo) {
		began := time.Now()
		err := b.Feed(ctx, node, service, r.Open(), r.Take)
		if ctx.Err() == nil {
			r.Lost(err)
		}
		if time.Since(began) > beyondRestTo {
			wait = beyondRest // it had worked
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
		}
	}
}
