package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
)

// newEvents shows what happens.
func newEvents() *cobra.Command {
	var a admin
	var once bool
	f := client.Follower{}
	c := asking(&cobra.Command{
		Use: "events", Short: "Follow what changes: backends, nodes, shards, moves, drains, reloads, orders", Args: cobra.NoArgs,
		Long: "Events prints the last changes of state that the node has seen, and each that comes,\n" +
			"with its reason, until ctrl-C. --json prints one object a line.",
	}, &a)
	c.Flags().IntVar(&f.Recent, "recent", 20, "how many past events to begin with, up to 1000")
	c.Flags().StringVar(&f.After, "after", "", "begin behind the event of this `ID`")
	c.Flags().BoolVar(&once, "once", false, "end with what has happened so far")
	c.RunE = func(c *cobra.Command, _ []string) error {
		node, err := a.client()
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		ctx, end := context.WithCancel(ctx)
		defer end()
		if once {
			f.Live = end
		}
		f.Take = func(e api.Event) { err = errors.Join(err, showEvent(c.OutOrStdout(), e, a.json)) }
		failed := node.Follow(ctx, f)
		switch {
		case errors.Is(failed, context.Canceled):
			failed = nil
		case failed == nil && ctx.Err() == nil:
			failed = fmt.Errorf("the events of %s are over: it ends, or another process is the node by now; ask again", node.Address())
		}
		return errors.Join(err, failed)
	}
	return c
}

func showEvent(w io.Writer, e api.Event, raw bool) error {
	if raw {
		return json.NewEncoder(w).Encode(e)
	}
	_, err := fmt.Fprintf(w, "%s  %-8s  %s\n", e.Time.Local().Format("15:04:05.000"), e.Kind, e.Text())
	return err
}
