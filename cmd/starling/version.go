package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit and Go version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b := node.Version()
			_, err := fmt.Fprintf(c.OutOrStdout(), "starling %s\ncommit %s\n%s\n", b.Version, b.Commit, b.Go)
			return err
		},
	}
}
