package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
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
	nodes, beside                      int
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
	f.StringVar(&o.level, "level", chaos.Usual, "processes, or inside this one, or in network namespaces")
	f.StringVar(&o.old, "old", "", "an older starling, `BINARY`, to upgrade from")
	f.IntVar(&o.beside, "beside", 1, "scenarios that are run at a time, where there are several")
	f.StringVar(&o.logs, "logs", "", "leave the nodes' logs in `DIR`")
	return c
}

// newChaosNode is what chaos runs a node by.
func newChaosNode() *cobra.Command {
	return &cobra.Command{Use: chaosNode, Hidden: true, Args: cobra.RangeArgs(2, 3), RunE: func(c *cobra.Command, args []string) error {
		return chaos.RunNode(args, os.Stdin, c.OutOrStdout(), c.ErrOrStderr())
	}}
}

func (o chaosOptions) check() error {
	switch {
	case !slices.Contains([]string{chaos.Inside, chaos.Processes, chaos.Namespaces}, o.level):
		return fmt.Errorf("--level %q is none; write %s, %s or %s", o.level, chaos.Processes, chaos.Inside, chaos.Namespaces)
	case o.nodes < 0 || o.nodes > chaos.MostNodes:
		return fmt.Errorf("--nodes %d is out of range; write a number from 1 to %d", o.nodes, chaos.MostNodes)
	case o.beside < 1 || o.beside > 16:
		return fmt.Errorf("--beside %d is out of range; write a number from 1 to 16", o.beside)
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
	if o.level == chaos.Namespaces {
		code, done, err := chaos.Enter(c.OutOrStdout(), c.ErrOrStderr())
		switch {
		case err != nil:
			return err
		case done && code != 0:
			return &exit{code, errors.New("ended so in its namespace")}
		case done:
			return nil
		}
	}
	ctx, restore := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer restore()
	all, err := o.scenarios()
	if err != nil {
		return err
	}
	if o.seed == 0 {
		o.seed = 1 + rand.Uint64N(1_000_000)
	}
	var broken []string
	var judged []pages.Judged
	for i, got := range o.several(ctx, all, c.OutOrStdout()) {
		switch why := context.Cause(ctx); {
		case got.err != nil && got.err == why:
			continue // it was not begun; why is said once
		case got.err != nil:
			err = errors.Join(err, got.err)
			continue
		}
		if judged = append(judged, got.Judged); !judge.Held(got.Verdicts) || len(got.Run.Trouble) > 0 {
			broken = append(broken, all[i].Name)
		}
	}
	err = errors.Join(err, context.Cause(ctx))
	if o.report != "" {
		err = errors.Join(err, o.write(judged, c.OutOrStdout()))
	}
	if len(broken) > 0 {
		err = errors.Join(err, fmt.Errorf("a promise was broken, or something could not be done, in %s", strings.Join(broken, ", ")))
	}
	return err
}

// write writes the page about all runs.
func (o chaosOptions) write(judged []pages.Judged, out io.Writer) error {
	var page bytes.Buffer
	err := pages.HTML(&page, judged...)
	if err == nil {
		err = os.WriteFile(o.report, page.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	fmt.Fprintf(out, "report: %s\n", o.report)
	return nil
}

// outcome is what became of one scenario.
type outcome struct {
	pages.Judged
	err error
}

// several runs scenarios, some at a time, until ctx ends. Of those that run beside
// others all that there is to say comes at their end.
func (o chaosOptions) several(ctx context.Context, all []chaos.Scenario, out io.Writer) []outcome {
	got := make([]outcome, len(all))
	var running sync.WaitGroup
	var telling sync.Mutex
	places := make(chan struct{}, o.beside)
	for i, s := range all {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
		}
		if got[i].err = context.Cause(ctx); got[i].err != nil {
			continue // no place is given back: none is taken any more
		}
		running.Go(func() {
			defer func() { <-places }()
			if o.beside == 1 {
				got[i] = o.one(ctx, s, out)
				return
			}
			var words bytes.Buffer
			got[i] = o.one(ctx, s, &words)
			telling.Lock()
			defer telling.Unlock()
			_, _ = words.WriteTo(out) // fails as all that is written there does
		})
	}
	running.Wait()
	return got
}

// one runs a scenario and says what came of it.
func (o chaosOptions) one(ctx context.Context, s chaos.Scenario, out io.Writer) outcome {
	fmt.Fprintf(out, "\n%s: %s\n", s.Name, s.About)
	self, err := os.Executable()
	if err != nil {
		return outcome{err: err}
	}
	run := chaos.Options{
		Seed: o.seed, Duration: o.duration, Nodes: o.nodes, Level: o.level, Program: []string{self, chaosNode}, Out: out, Logs: o.logs, Command: o.command(s),
	}
	if o.old != "" {
		run.Old = []string{o.old, "serve", "--config"}
	}
	h, err := chaos.Run(ctx, s, run)
	if err != nil {
		fmt.Fprintln(out, err)
		return outcome{err: err}
	}
	j := pages.Judged{Run: h, Verdicts: judge.Judge(h)}
	return outcome{j, pages.Text(out, h, j.Verdicts)}
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
	if o.old != "" {
		text += " --old " + o.old
	}
	if o.nodes > 0 {
		text += fmt.Sprintf(" --nodes %d", o.nodes)
	}
	return text
}
