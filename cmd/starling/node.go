package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node/client"
)

// newNode is what is done to a whole node.
func newNode() *cobra.Command {
	c := &cobra.Command{Use: "node", Short: "Drain a node, have it leave its cluster, or stay", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	leave := change("leave", "Have the node give its replicas to others, leave the cluster for good, drain and end", "the node leaves; starling shards shows how far it is", 0, nodeVerb("leave"))
	drain := change("drain", "Have the node take no new streams, also over restarts, and finish those that run; it does not end", "the node takes no new streams; starling status shows what still runs", 0, nodeVerb("drain"))
	stay := change("undrain", "Take a drain back, or a leave that is not over yet", "the node stays", 0, nodeVerb("undrain"))
	c.AddCommand(drain, leave, stay)
	return c
}

func nodeVerb(verb string) func(context.Context, *client.Client, []string) error {
	return func(ctx context.Context, node *client.Client, _ []string) error {
		return node.Post(ctx, nil, "node", verb)
	}
}
