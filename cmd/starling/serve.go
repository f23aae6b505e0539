package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/handover"
)

const (
	exitCut    = 3 // the drain deadline cut streams
	exitSignal = 4 // a second signal ended it at once
)

func newServe() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run a node in the foreground",
		Long: "Serve runs a node until SIGTERM or SIGINT, which drain it; a second one ends it at\n" +
			"once. SIGHUP reads the configuration again, as a change of the file does; SIGUSR1\n" +
			"opens the access log anew; SIGUSR2 upgrades, as starling upgrade does. It listens at\n" +
			"the sockets that systemd hands in, logs to standard error, and says\n" +
			"\"ready proxy=ADDR[,ADDR] admin=ADDR\" on standard output once it serves.\n" +
			"Exit: 0 drained, 1 error, 2 bad usage or configuration, 3 the drain deadline cut\n" +
			"streams, 4 ended by a second signal.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return serve(c, path) },
	}
	configFlag(c, &path)
	return c
}

func serve(c *cobra.Command, path string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	n, log, err := begin(c, path)
	if err != nil {
		return err
	}
	defer startTidying(c.Context())()
	fmt.Fprintf(c.OutOrStdout(), "ready proxy=%s admin=%s\n", strings.Join(n.ProxyAddrs(), ","), n.AdminAddr())
	calls := calls{n, signals, log}
	by := calls.awaitEnd()
	return calls.drain(n.DrainTimeout(), by)
}

// begin starts the node, as the heir of another process where that wants it.
func begin(c *cobra.Command, path string) (n *node.Node, log *slog.Logger, err error) {
	opt := node.Options{File: path, Notify: os.Getenv("NOTIFY_SOCKET")}
	if opt.Before, err = handover.Inherit(); err != nil {
		return nil, nil, err
	}
	if opt.Before != nil {
		defer func() {
			if err != nil {
				_ = opt.Before.Fail(err)
			}
		}()
	}
	if opt.Sockets, err = handover.Activated(); err != nil {
		return nil, nil, err
	}
	if opt.Program, err = handover.Self(); err != nil {
		return nil, nil, err
	}
	config, err := node.Load(path)
	if err != nil {
		return nil, nil, err
	}
	log = config.Log.Logger(c.ErrOrStderr())
	for _, h := range node.Hints(config) {
		log.Info("hint", "text", h)
	}
	opt.Logger = log
	if n, err = node.New(config, opt); err != nil {
		return nil, nil, err
	}
	return n, log, n.Start(c.Context())
}

// calls is what signals ask of a node.
type calls struct {
	node    *node.Node
	signals <-chan os.Signal
	log     *slog.Logger
}

// awaitEnd returns at the first signal that ends the node, when it has left its
// cluster, or when another process is the node; nil: at no signal.
func (c calls) awaitEnd() os.Signal {
	for {
		select {
		case s := <-c.signals:
			if c.ends(s) {
				return s
			}
		case <-c.node.Succeeded():
			return nil
		case <-c.node.Left():
			c.log.Info("the node has left its cluster, and ends")
			return nil
		}
	}
}

// ends tells whether a signal ends the node; it does what another one asks for.
func (c calls) ends(s os.Signal) bool {
	switch s {
	case syscall.SIGTERM, syscall.SIGINT:
		return true
	case syscall.SIGHUP:
		c.node.ReloadSoon()
	case syscall.SIGUSR1:
		if err := c.node.ReopenAccessLog(); err != nil {
			c.log.Warn("access log cannot be opened anew; the old file is written on", "err", err)
		}
	case syscall.SIGUSR2:
		go c.upgrade()
	}
	return false
}

// upgrade has another process become the node. What comes of it is in the log; the
// node's Stop waits for it.
func (c calls) upgrade() {
	if _, err := c.node.Upgrade(context.Background()); err != nil {
		c.log.Warn("not upgraded", "err", err)
	}
}

// drain stops the node; a second signal hurries it. Where another process is the node,
// the first is meant for both, and this one ends as it does anyway. by is the signal that
// came already, nil: none.
func (c calls) drain(limit time.Duration, by os.Signal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	handed := c.node.HandedOver()
	if handed && by != nil {
		handed = false
		c.passOn(by)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- c.node.Stop(ctx) }()
	for {
		select {
		case err := <-stopped:
			if r := c.node.Drained(); err == nil && r.Cut > 0 {
				return &exit{exitCut, fmt.Errorf("the drain deadline (%v) cut %d streams; %d finished", limit, r.Cut, r.Finished)}
			}
			return err
		case s := <-c.signals:
			if !c.ends(s) {
				continue
			}
			if handed {
				handed = false
				c.passOn(s)
				continue
			}
			cancel()
			return errors.Join(&exit{exitSignal, errors.New("ended by a second signal")}, <-stopped)
		}
	}
}

// passOn does what the first signal asks for that comes to a process which is the node
// no more.
func (c calls) passOn(s os.Signal) {
	what := "another process is the node; this one ends with its last stream, or at once at the next signal"
	if c.node.PassEnd() {
		what = "another process has just become the node, and is told to end; " + what
	}
	c.log.Info(what, "signal", s)
}
