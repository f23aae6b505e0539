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
			_, err := fmt.Fprint(c.OutOrStdout(), versionText(node.Version()))
			return err
		},
	}
}

// versionText is what the command and the flag print.
func versionText(b node.Build) string {
	return fmt.Sprintf("starling %s\ncommit %s\n%s\n", b.Version, b.Commit, b.Go)
}
