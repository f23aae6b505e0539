// Package top shows a node, and what it sees of its cluster, in a terminal: live,
// and in 80 columns of 24 lines. It asks the admin API as every command does, and
// knows nothing that this does not say.
package top

import (
	"cmp"
	"context"
	"io"
	"sync"
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
	All asker
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

// answers are what a node has said.
type answers struct {
	status   api.Status
	backends api.Backends
	pools    api.Pools
	members  api.Members
	shards   api.ShardList
	streams  api.StreamList
	at       time.Time // when it was asked for the last that is here
}

type (
	happened api.Event
	turn     struct{} // it is time to ask again
	done     struct { // an order was carried out, or not
		what string
		err  error
	}
	round struct { // what came of asking
		parts []part
		at    time.Time
		err   error // why a part is missing
		extra bool  // it was asked for beside the rounds that come by time
	}
	part func(*answers) // puts one answer in its place
)

// asker is who is asked.
type asker interface {
	Get(ctx context.Context, v any, path ...string) error
}

// ask is one round. All is asked for at once: who is silent keeps one answer, and not
// the others.
func (m *model) ask(extra bool) tea.Cmd {
	var one, all asker = m.node, m.node
	if m.whole {
		all = m.node.All
	}
	parent := m.ctx
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(parent, askTime)
		defer cancel()
		r := round{at: time.Now(), extra: extra}
		r.parts, r.err = together(
			want(ctx, all, "status", func(a *answers) *api.Status { return &a.status }),
			want(ctx, one, "backends", func(a *answers) *api.Backends { return &a.backends }),
			want(ctx, one, "pools", func(a *answers) *api.Pools { return &a.pools }),
			want(ctx, one, "members", func(a *answers) *api.Members { return &a.members }),
			want(ctx, one, "shards", func(a *answers) *api.ShardList { return &a.shards }),
			want(ctx, all, "streams", func(a *answers) *api.StreamList { return &a.streams }),
		)
		return r
	}
}

// want asks for one part.
func want[T any](ctx context.Context, of asker, path string, place func(*answers) *T) func() (part, error) {
	return func() (part, error) {
		var v T
		if err := of.Get(ctx, &v, path); err != nil {
			return nil, err
		}
		return func(a *answers) { *place(a) = v }, nil
	}
}

// together is what came of all, and the first of what went wrong.
func together(wants ...func() (part, error)) (parts []part, err error) {
	came, errs := make([]part, len(wants)), make([]error, len(wants))
	var tasks sync.WaitGroup
	for i, ask := range wants {
		tasks.Go(func() { came[i], errs[i] = ask() })
	}
	tasks.Wait()
	for i, p := range came {
		if p != nil {
			parts = append(parts, p)
		}
		err = cmp.Or(err, errs[i])
	}
	return parts, err
}
