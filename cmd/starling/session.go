package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
)

// newSession shows one session.
func newSession() *cobra.Command {
	var pool string
	c := listAt("session KEY", "Show where a session lives", func(ctx context.Context, node *client.Client, args []string) ([]string, error) {
		in, err := poolOr(ctx, node, pool)
		return []string{"sessions", in, args[0]}, err
	}, cobra.ExactArgs(1), showSession)
	c.Long = "Session asks the leader of the session's shard where it lives. KEY is what its requests\n" +
		"bring: the value of their X-Session-ID, for example, or of the cookie. Any node will do."
	c.Flags().StringVar(&pool, "pool", "", "`POOL` of the session (default: the only one)")
	return c
}

// newMove moves one session.
func newMove() *cobra.Command {
	var pool string
	c := change("move KEY BACKEND", "Move a session to another backend, between two of its turns", "moved", 2,
		func(ctx context.Context, node *client.Client, args []string) error {
			in, err := poolOr(ctx, node, pool)
			if err != nil {
				return err
			}
			return node.Post(ctx, api.Destination{Backend: args[1]}, "sessions", in, args[0], "move")
		})
	c.Long = "Move has a session live at another backend from its next turn on, and cuts none: where\n" +
		"one runs, it waits five seconds for its end, and says so if it has not come. KEY is what\n" +
		"the session's requests bring: the value of their X-Session-ID, for example."
	c.Flags().StringVar(&pool, "pool", "", "`POOL` of the session (default: the only one)")
	return c
}

// poolOr is the pool that was named, or else the only one.
func poolOr(ctx context.Context, node *client.Client, pool string) (string, error) {
	if pool != "" {
		return pool, nil
	}
	return onlyPool(ctx, node)
}

func showSession(w io.Writer, s api.Session) {
	state := "agreed"
	switch {
	case s.Provisional:
		state = "for the time being: nobody has agreed yet"
	case s.Held:
		state = "held: a change is on its way"
	}
	used := "not on this node"
	if s.LastUse != nil {
		used = ago(*s.LastUse)
	}
	fmt.Fprintf(w, "backend\t%s\n", s.Backend)
	fmt.Fprintf(w, "epoch\t%d\n", s.Epoch)
	fmt.Fprintf(w, "binding\t%s\n", state)
	fmt.Fprintf(w, "last turn\t%s\n", used)
	fmt.Fprintf(w, "shard\t%d\n", s.Shard)
}
