package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/testcluster/chaos"
	"github.com/starling-lb/starling/testcluster/chaos/judge"
	pages "github.com/starling-lb/starling/testcluster/chaos/report"
)

// chaosNode is the hidden command that chaos runs its nodes by.
const chaosNode = "chaos-node"

// chaosOptions are the flags of chaos.
type chaosOptions struct {
	scenario, level, report, old, logs string
	seed                               uint64
	duration                           time.Duration
	nodes                              int
}

func newChaos() *cobra.Command {
	var o chaosOptions
	c := &cobra.Command{
		Use:   "chaos",
		Short: "Rehearse a cluster's worst day and judge what came of it",
		Long: "Chaos runs a cluster of this machine's own, with demo backends and clients, hurts it as a\n" +
			"scenario says, and judges every promise from outside. Scenarios: all, a file's path, or\n" +
			strings.Join(chaos.Names(), ", ") + ".\n" +
			"Exit: 0 all promises held, 1 one was broken, or the run could not be made, 2 bad usage.",
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE:    func(c *cobra.Command, _ []string) error { return runChaos(c, o) },
	}
	f := c.Flags()
	f.StringVar(&o.scenario, "scenario", "mixed", "`NAME` of a scenario, a file's path, or all")
	f.Uint64Var(&o.seed, "seed", 0, "of all that is drawn by chance; 0: one by chance")
	f.DurationVar(&o.duration, "duration", 0, "of the faults: the scenario is stretched, or pressed, to it; 0s: its own")
	f.IntVar(&o.nodes, "nodes", 0, "starling nodes; 0: as the scenario has it")
	f.StringVar(&o.report, "report", "", "write a page about it to `FILE`")
	f.StringVar(&o.level, "level", chaos.Usual, "processes, or inside this one")
	f.StringVar(&o.old, "old", "", "an older starling, `BINARY`, to upgrade from")
	f.StringVar(&o.logs, "logs", "", "leave the nodes' logs in `DIR`")
	return c
}

// newChaosNode is what chaos runs a node by.
func newChaosNode() *cobra.Command {
	return &cobra.Command{Use: chaosNode, Hidden: true, Args: cobra.ExactArgs(2), RunE: func(c *cobra.Command, args []string) error {
		return chaos.RunNode(args, os.Stdin, c.OutOrStdout(), c.ErrOrStderr())
	}}
}

func (o chaosOptions) check() error {
	switch {
	case !slices.Contains([]string{chaos.Inside, chaos.Processes}, o.level):
		return fmt.Errorf("--level %q is none; write %s or %s", o.level, chaos.Processes, chaos.Inside)
	case o.nodes < 0 || o.nodes > chaos.MostNodes:
		return fmt.Errorf("--nodes %d is out of range; write a number from 1 to %d", o.nodes, chaos.MostNodes)
	case o.duration < 0:
		return errors.New("--duration is negative; write for example 2m")
	}
	_, err := o.scenarios()
	return err
}

func (o chaosOptions) scenarios() (all []chaos.Scenario, err error) {
	list := []string{o.scenario}
	if o.scenario == "all" {
		list = chaos.Names()
	}
	for _, name := range list {
		s, err := chaos.Load(name)
		if err != nil {
			return nil, err
		}
		if o.scenario == "all" && o.level == chaos.Inside && s.Level == chaos.Processes {
			continue // it cannot be had there
		}
		all = append(all, s)
	}
	return all, nil
}

func runChaos(c *cobra.Command, o chaosOptions) error {
	ctx, restore := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer restore()
	all, err := o.scenarios()
	if err != nil {
		return err
	}
	if o.seed == 0 {
		o.seed = 1 + rand.Uint64N(1_000_000)
	}
	var page bytes.Buffer
	var broken []string
	for _, s := range all {
		held, err := o.one(ctx, c, s, &page)
		if err != nil {
			return err
		}
		if !held {
			broken = append(broken, s.Name)
		}
	}
	if o.report != "" {
		if err := os.WriteFile(o.report, page.Bytes(), 0o644); err != nil {
			return fmt.Errorf("report: %w", err)
		}
		fmt.Fprintf(c.OutOrStdout(), "report: %s\n", o.report)
	}
	if len(broken) > 0 {
		return &exit{exitError, fmt.Errorf("a promise was broken in %s", strings.Join(broken, ", "))}
	}
	return nil
}

// one runs a scenario; page gets what is to be read of it.
func (o chaosOptions) one(ctx context.Context, c *cobra.Command, s chaos.Scenario, page *bytes.Buffer) (held bool, err error) {
	out := c.OutOrStdout()
	fmt.Fprintf(out, "\n%s: %s\n", s.Name, s.About)
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	run := chaos.Options{
		Seed: o.seed, Duration: o.duration, Nodes: o.nodes, Level: o.level, Program: []string{self, chaosNode}, Out: out, Logs: o.logs, Command: o.command(s),
	}
	if o.old != "" {
		run.Old = []string{o.old, "serve", "--config"}
	}
	h, err := chaos.Run(ctx, s, run)
	if err != nil {
		return false, err
	}
	verdicts := judge.Judge(h)
	if o.report != "" {
		if err := pages.HTML(page, h, verdicts); err != nil {
			return false, fmt.Errorf("report: %w", err)
		}
	}
	return judge.Held(verdicts), pages.Text(out, h, verdicts)
}

// command repeats a run.
func (o chaosOptions) command(s chaos.Scenario) string {
	text := fmt.Sprintf("starling chaos --scenario %s --seed %d --level %s", s.Name, o.seed, o.level)
	if o.scenario != "all" {
		text = fmt.Sprintf("starling chaos --scenario %s --seed %d --level %s", o.scenario, o.seed, o.level)
	}
	if o.duration > 0 {
		text += " --duration " + o.duration.String()
	}
	if o.nodes > 0 {
		text += fmt.Sprintf(" --nodes %d", o.nodes)
	}
	return text
}
