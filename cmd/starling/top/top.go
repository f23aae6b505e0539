// Package top shows a node, and what it sees of its cluster, in a terminal: live,
// and in 80 columns of 24 lines. It asks the admin API as every command does, and
// knows nothing that this does not say.
package top

import (
	"context"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
)

// Node is who is asked.
type Node interface {
	Get(ctx context.Context, v any, path ...string) error
	Post(ctx context.Context, body any, path ...string) error
	Follow(ctx context.Context, f client.Follower) error
	Address() string
}

// Asked is a node, and who asks all nodes by it.
type Asked struct {
	Node
	All interface {
		Get(ctx context.Context, v any, path ...string) error
	}
}

const (
	askTime    = 5 * time.Second // for all answers of a round
	followRest = time.Second     // before events are asked for again
	keptEvents = 500
)

// Run shows the node until ctx ends or somebody presses q.
func Run(ctx context.Context, node Asked, every time.Duration, in io.Reader, out io.Writer) error {
	return run(ctx, node, every, in, out)
}

func run(ctx context.Context, node Asked, every time.Duration, in io.Reader, out io.Writer, more ...tea.ProgramOption) error {
	ctx, stop := context.WithCancel(ctx)
	m := &model{ctx: ctx, node: node, every: every, width: 80, height: 24}
	p := tea.NewProgram(m, append(more, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out))...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		follow(ctx, node, p.Send)
	}()
	_, err := p.Run()
	stop()
	<-done
	if m.quits {
		return nil
	}
	return err
}

// follow sends events until ctx ends; after a break it goes on behind the last one.
func follow(ctx context.Context, node Node, send func(tea.Msg)) {
	last := ""
	for ctx.Err() == nil {
		_ = node.Follow(ctx, client.Follower{After: last, Recent: 50, Take: func(e api.Event) {
			if e.ID != "" {
				last = e.ID
			}
			send(happened(e))
		}}) // why it ended, the answers say
		select {
		case <-time.After(followRest):
		case <-ctx.Done():
		}
	}
}

// answers are what a node said in one round.
type answers struct {
	status   api.Status
	backends api.Backends
	pools    api.Pools
	members  api.Members
	shards   api.ShardList
	streams  api.StreamList
	at       time.Time
	err      error
}

type (
	happened api.Event
	turn     struct{} // it is time to ask again
	done     struct { // an order was carried out, or not
		what string
		err  error
	}
)

// ask is one round.
func (m *model) ask() tea.Msg {
	ctx, cancel := context.WithTimeout(m.ctx, askTime)
	defer cancel()
	a := answers{at: time.Now()}
	for _, q := range []struct {
		into any
		path string
	}{{&a.status, "status"}, {&a.backends, "backends"}, {&a.pools, "pools"}, {&a.members, "members"}, {&a.shards, "shards"}, {&a.streams, "streams"}} {
		ask := m.node.Get
		if m.whole && (q.path == "status" || q.path == "streams") {
			ask = m.node.All.Get
		}
		if a.err = ask(ctx, q.into, q.path); a.err != nil {
			return a
		}
	}
	return a
}
