package top

import (
	"context"
	"fmt"
	"strconv"

	tea "charm.land/bubbletea/v2"

	"github.com/starling-lb/starling/node/api"
)

// question is asked before anything is done.
type question struct {
	text  string
	write bool   // it wants a number and Enter, else y or n
	typed string // so far
	do    func(ctx context.Context, typed string) error
	done  string
}

// reply takes a key as an answer.
func (m *model) reply(key tea.KeyPressMsg) tea.Cmd {
	q := m.question
	switch k := key.String(); {
	case k == "ctrl+c":
		m.quits = true
		return tea.Quit
	case k == "esc", !q.write && k != "y" && k != "Y":
		m.question, m.note = nil, "nothing was done"
		return nil
	case q.write && k == "backspace":
		q.typed = q.typed[:max(0, len(q.typed)-1)]
		return nil
	case q.write && k != "enter":
		if len(k) == 1 && k[0] >= '0' && k[0] <= '9' && len(q.typed) < 4 {
			q.typed += k
		}
		return nil
	}
	m.question, m.note = nil, "..."
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, askTime)
		defer cancel()
		return done{q.done, q.do(ctx, q.typed)}
	}
}

// wish is the question that a key brings up; nil: it means nothing here.
func (m *model) wish(key string) *question {
	switch {
	case m.page == pageBackends:
		if b, ok := chosen(m, m.said.backends.Backends); ok {
			return m.backendWish(key, b)
		}
	case m.page == pageNodes && (key == "d" || key == "u"):
		verb, text := "drain", "It takes no new streams; what runs goes on. "
		if key == "u" {
			verb, text = "undrain", ""
		}
		return &question{text: fmt.Sprintf("%s %s, the node that is asked? %s", verb, m.said.status.Node.Name, text), done: verb + "ed",
			do: func(ctx context.Context, _ string) error { return m.node.Post(ctx, nil, "node", verb) }}
	case m.page == pageSessions && key == "r":
		if p, ok := chosen(m, m.said.pools.Pools); ok {
			return m.rebalanceWish(p)
		}
	}
	return nil
}

func (m *model) backendWish(key string, b api.Backend) *question {
	post := func(verb string) func(context.Context, string) error {
		return func(ctx context.Context, _ string) error { return m.node.Post(ctx, nil, "backends", b.ID, verb) }
	}
	switch key {
	case "d":
		return &question{text: "drain " + b.ID + "? It gets nothing new; its streams run to their end. ", do: post("drain"), done: b.ID + " drains"}
	case "u":
		return &question{text: "undrain " + b.ID + "? ", do: post("undrain"), done: b.ID + " takes streams again"}
	case "e":
		return &question{text: "eject " + b.ID + " for a while, as failures would? ", do: post("eject"), done: b.ID + " is ejected"}
	case "a":
		return &question{text: "admit " + b.ID + " at once? ", do: post("admit"), done: b.ID + " is admitted"}
	case "w":
		return &question{text: fmt.Sprintf("weight of %s, now %d, 1 to 1000: ", b.ID, b.Weight), write: true, done: "the weight of " + b.ID + " is changed",
			do: func(ctx context.Context, typed string) error {
				weight, err := strconv.Atoi(typed)
				if err != nil {
					return fmt.Errorf("%q is no weight; nothing was done", typed)
				}
				return m.node.Post(ctx, api.Weight{Weight: weight}, "backends", b.ID, "weight")
			}}
	}
	return nil
}

func (m *model) rebalanceWish(p api.Pool) *question {
	want := api.Rebalancing{Enabled: !p.Rebalance.Enabled}
	word := "off"
	if want.Enabled {
		word = "on"
	}
	return &question{text: "switch the moving of sessions of " + p.Name + " " + word + "? ", done: "rebalancing of " + p.Name + " is " + word,
		do: func(ctx context.Context, _ string) error { return m.node.Post(ctx, want, "pools", p.Name, "rebalance") }}
}

// chosen is the item of a list that is chosen on the page.
func chosen[T any](m *model, list []T) (item T, ok bool) {
	if len(list) == 0 {
		return item, false
	}
	return list[min(max(0, m.row[m.page]), len(list)-1)], true
}
