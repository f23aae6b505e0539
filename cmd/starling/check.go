package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node"
)

func newCheck() *cobra.Command {
	var path string
	var show bool
	c := &cobra.Command{
		Use:   "check --config FILE",
		Short: "Say all that is wrong with a configuration",
		Long: "Check reads a configuration as serve would. All faults go to standard error, as\n" +
			"FILE:LINE: KEY: what is wrong, what would be right. Exit: 0 good, 2 not.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return check(c, path, show) },
	}
	configFlag(c, &path)
	c.Flags().BoolVar(&show, "print", false, "print the file with all defaults; verdict and hints become its comments")
	return c
}

func check(c *cobra.Command, path string, show bool) error {
	config, err := node.Load(path)
	if err != nil {
		return err
	}
	out, mark := c.OutOrStdout(), ""
	if show {
		mark = "# "
	}
	fmt.Fprintf(out, "%s%s: ok\n", mark, path)
	for _, h := range node.Hints(config) {
		fmt.Fprintf(out, "%s%s: hint: %s\n", mark, path, h)
	}
	if show {
		return node.Print(out, config)
	}
	return nil
}
