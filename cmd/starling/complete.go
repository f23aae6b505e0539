package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
)

// completeTime is how long the shell waits for what a node knows.
const completeTime = time.Second

// choices are what may stand in place of an argument.
type choices func(ctx context.Context, node *client.Client) []string

// complete has the shell complete a command's arguments, the first by the first
// choices; a node is asked as the flags before them say.
func complete(c *cobra.Command, by ...choices) *cobra.Command {
	c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(by) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var a admin
		a.address, _ = c.Flags().GetString("admin")
		a.tokenFile, _ = c.Flags().GetString("token-file")
		a.caFile, _ = c.Flags().GetString("ca-file")
		node, err := a.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completeTime)
		defer cancel()
		return by[len(args)](ctx, node), cobra.ShellCompDirectiveNoFileComp
	}
	return c
}

func oneOf(list ...string) choices {
	return func(context.Context, *client.Client) []string { return list }
}

// backendIDs are none where the node does not answer: a shell has nowhere to say
// why.
func backendIDs(ctx context.Context, node *client.Client) (ids []string) {
	var l api.Backends
	_ = node.Get(ctx, &l, "backends")
	for _, b := range l.Backends {
		ids = append(ids, b.ID)
	}
	return ids
}

func poolNames(ctx context.Context, node *client.Client) (names []string) {
	var l api.Pools
	_ = node.Get(ctx, &l, "pools")
	for _, p := range l.Pools {
		names = append(names, p.Name)
	}
	return names
}
