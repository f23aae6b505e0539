package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/load"
)

const (
	maxDevBackends = 64
	devDrain       = time.Second      // what still runs then is cut
	devFounding    = 10 * time.Second // a node that keeps no sessions by then works all the same
)

// devOptions are the flags of dev.
type devOptions struct {
	nodes, backends int
	load            bool
	duration        time.Duration
}

func newDev() *cobra.Command {
	var o devOptions
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a local starling with demo LLM backends",
		Long: "Dev runs a cluster of starlings and demo LLM backends in one process, says where they are and how\n" +
			"to ask them, and ends at ctrl-C, leaving nothing behind. With --load it drives a\n" +
			"stream load as well, kills a backend now and then and shows what happens.",
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE:    func(c *cobra.Command, _ []string) error { return dev(c, o) },
	}
	c.Flags().IntVar(&o.nodes, "nodes", 3, "starling nodes, one cluster")
	c.Flags().IntVar(&o.backends, "backends", 3, "demo backends")
	c.Flags().BoolVar(&o.load, "load", false, "drive a load, and kill a backend now and then")
	c.Flags().DurationVar(&o.duration, "duration", 0, "end by itself after this time; 0s: at ctrl-C")
	return c
}

func (o devOptions) check() error {
	switch {
	case o.nodes < 1 || o.nodes > testcluster.MaxNodes:
		return fmt.Errorf("--nodes %d is out of range; write a number from 1 to %d", o.nodes, testcluster.MaxNodes)
	case o.backends < 1 || o.backends > maxDevBackends:
		return fmt.Errorf("--backends %d is out of range; write a number from 1 to %d", o.backends, maxDevBackends)
	case o.duration < 0:
		return errors.New("--duration is negative; write for example 1m, or 0s for no end")
	}
	return nil
}

func dev(c *cobra.Command, o devOptions) error {
	ctx, restore := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer restore()
	cluster, err := testcluster.Start(ctx, testcluster.Options{
		Nodes: o.nodes, Backends: o.backends, Backend: testcluster.DemoBackend(), UsualPorts: true, Config: testcluster.DemoConfig,
		Logger: devLogger(c.ErrOrStderr(), o.load),
	})
	if err != nil {
		return err
	}
	late := cluster.AwaitSessions(ctx, devFounding)
	if o.duration > 0 { // of what there is to see
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.duration)
		defer cancel()
	}
	out := c.OutOrStdout()
	fmt.Fprint(out, cluster.Guide())
	if late != nil && ctx.Err() == nil {
		fmt.Fprintf(out, "sessions are not kept yet: %v\n\n", late)
	}
	if o.load {
		_, err = cluster.Show(ctx, testcluster.ShowOptions{Out: out, Load: load.Options{Sessions: testcluster.DemoSessions}})
	} else {
		<-ctx.Done()
	}
	restore() // a second ctrl-C ends the process at once
	last, cancel := context.WithTimeout(context.Background(), devDrain)
	defer cancel()
	return errors.Join(err, cluster.Stop(last))
}

// devLogger keeps quiet under a load, which shows the same changes itself.
func devLogger(stderr io.Writer, quiet bool) *slog.Logger {
	log := node.LogConfig{Level: "info"}
	if quiet {
		log.Level = "error"
	}
	return log.Logger(stderr)
}
