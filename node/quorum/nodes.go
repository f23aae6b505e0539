package quorum

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/starling-lb/starling/consensus/transport"
)

// What nodes ask each other for people who ask one of them. Who may: the nodes of
// this cluster, as with all that goes over the port.

const (
	lookService  = "node.look"  // how a node is
	orderService = "node.order" // that it does something
)

// longestOrder is how long a node may take to do what another tells it.
const longestOrder = time.Minute

// ErrOlder is a node that cannot be asked so.
var ErrOlder = errors.New("it runs a program that cannot be asked this: upgrade it")

// Hear is how a node answers another one: from is the other's id.
type Hear func(ctx context.Context, from string, question []byte) ([]byte, error)

func (q *Quorum) serveNodes() {
	if q.o.Look != nil {
		q.port.Serve(lookService, transport.Service{MaxQuestion: 256, Concurrent: 16, Answer: q.o.Look})
	}
	if q.o.Order != nil {
		q.port.Serve(orderService, transport.Service{MaxQuestion: 256, Concurrent: 1, MaxTime: longestOrder, Answer: q.o.Order})
	}
}

// Look asks a node how it is.
func (q *Quorum) Look(ctx context.Context, node string, question []byte) ([]byte, error) {
	answer, err := q.port.Call(ctx, node, lookService, question)
	return answer, plain(ctx, err)
}

// Order tells a node to do something, and returns when it has, or will not.
func (q *Quorum) Order(ctx context.Context, node string, order []byte) ([]byte, error) {
	answer, err := q.port.Call(ctx, node, orderService, order)
	return answer, plain(ctx, err)
}

// plain is an error of a call in the words for who reads it beside the node's name.
func plain(ctx context.Context, err error) error {
	var refused *transport.RefusedError
	var said *transport.RemoteError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said):
		return errors.New(said.Text)
	case errors.As(err, &refused) && refused.Code == transport.RefusedService:
		return ErrOlder
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errors.New(strings.ReplaceAll(err.Error(), "\n", ": "))
}
