package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node/client"
)

// newNode is what is done to a whole node.
func newNode() *cobra.Command {
	c := &cobra.Command{Use: "node", Short: "Have a node leave its cluster, or stay", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	leave := change("leave", "Have the node give its replicas to others, leave the cluster for good, drain and end", "the node leaves; starling shards shows how far it is", 0, nodeVerb("leave"))
	stay := change("undrain", "Take a leave back that is not over yet", "the node stays", 0, nodeVerb("undrain"))
	c.AddCommand(leave, stay)
	return c
}

func nodeVerb(verb string) func(context.Context, *client.Client, []string) error {
	return func(ctx context.Context, node *client.Client, _ []string) error {
		return node.Post(ctx, nil, "node", verb)
	}
}
