package node

import (
	"context"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
)

// Events answers GET /v1/events.
func (n *Node) Events() admin.Feed { return feed{n.proxy.Events().Subscribe()} }

// feed puts events in the words of the admin API.
type feed struct{ *backend.Subscription }

func (f feed) Next(ctx context.Context) ([]api.Event, error) {
	events, lost, err := f.Subscription.Next(ctx)
	if err != nil {
		return nil, err
	}
	var list []api.Event
	if lost > 0 {
		list = append(list, api.Event{Kind: api.LostEvent, Time: time.Now(), Lost: lost})
	}
	for _, e := range events {
		kind := api.StateEvent
		switch {
		case e.Pool == "":
			kind = api.ReloadEvent
		case e.Backend == "":
			kind = api.PanicEvent
		}
		list = append(list, api.Event{Kind: kind, Time: e.At, Pool: e.Pool, Backend: e.Backend, From: e.From, To: e.To, Panic: e.Panic, Reason: e.Reason})
	}
	return list, nil
}
