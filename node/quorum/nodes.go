package quorum

import (
	"context"
	"time"

	"github.com/starling-lb/starling/consensus/transport"
)

// What nodes ask each other for people who ask one of them. Who may: the nodes of
// this cluster, as with all that goes over the port.

const (
	lookService  = "node.look"  // how a node is
	orderService = "node.order" // that it does something
)

// LongestOrder is how long a node may take to do what another tells it.
const LongestOrder = time.Minute

// Hear is how a node answers another one: from is the other's id.
type Hear func(ctx context.Context, from string, question []byte) ([]byte, error)

func (q *Quorum) serveNodes() {
	if q.o.Look != nil {
		q.port.Serve(lookService, transport.Service{MaxQuestion: 256, Concurrent: 16, Answer: q.o.Look})
	}
	if q.o.Order != nil {
		q.port.Serve(orderService, transport.Service{MaxQuestion: 256, Concurrent: 1, MaxTime: LongestOrder, Answer: q.o.Order})
	}
}

// Look asks a node how it is.
func (q *Quorum) Look(ctx context.Context, node string, question []byte) ([]byte, error) {
	return q.port.Call(ctx, node, lookService, question)
}

// Order tells a node to do something, and returns when it has, or will not.
func (q *Quorum) Order(ctx context.Context, node string, order []byte) ([]byte, error) {
	return q.port.Call(ctx, node, orderService, order)
}
