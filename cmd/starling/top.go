package main

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/cmd/starling/top"
)

const (
	topEvery = time.Second
	topLeast = 100 * time.Millisecond
)

// newTop shows a node live.
func newTop() *cobra.Command {
	var a admin
	every := topEvery
	c := asking(&cobra.Command{
		Use: "top", Short: "Watch a node and its cluster in this terminal, and give orders", Args: cobra.NoArgs,
		Long: "Top shows nodes, backends, shards, sessions, streams and events, live; 80 columns of 24\n" +
			"lines are enough. The keys are in its last line; what changes something asks first.",
	}, &a)
	_ = c.Flags().MarkHidden("json")
	c.Flags().DurationVar(&every, "interval", every, "`TIME` between two looks")
	c.RunE = func(c *cobra.Command, _ []string) error {
		node, err := a.client()
		if err != nil {
			return err
		}
		if every < topLeast {
			return &exit{exitUsage, errors.New("--interval: write at least 100ms")}
		}
		if !terminal(os.Stdin) || !terminal(os.Stdout) {
			return &exit{exitUsage, errors.New("top needs a terminal; starling status, backends and events --json are for programs")}
		}
		return top.Run(c.Context(), top.Asked{Node: node, All: node.With("scope", "cluster")}, every, os.Stdin, os.Stdout)
	}
	return c
}

func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
