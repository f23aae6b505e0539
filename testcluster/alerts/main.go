// Command alerts shows that each alert of docs/operations/alerts.yml fires when
// it should, and is quiet before and after. It stages real trouble with real
// nodes, films their metrics, and has promtool evaluate the rules over the film,
// in which time runs faster: two pictures are 15 s apart for the rules, and a
// tenth of a second for the nodes.
//
// `make alerts` runs it. promtool is part of Debian's package prometheus.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/starling-lb/starling/testcluster/tool"
)

const (
	bound = 10 * time.Minute // on all of it
	tries = 3                // of a stage
	once  = 3 * time.Minute  // on one of them
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, log io.Writer) int {
	var rules, keep, only string
	return tool.Tool{
		Name: "alerts", Bound: bound,
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&rules, "rules", "docs/operations/alerts.yml", "`FILE` of the alerts")
			f.StringVar(&keep, "keep", "", "`DIR` to leave the films in; empty: nowhere")
			f.StringVar(&only, "only", "", "`ALERT` to stage; empty: all")
		},
		Do: func(ctx context.Context, out io.Writer) (bool, error) { return judge(ctx, rules, keep, only, out) },
	}.Run(args, out, log)
}

// judge stages every alert of the file and prints a line for each.
func judge(ctx context.Context, file, keep, only string, out io.Writer) (ok bool, err error) {
	if _, err := exec.LookPath("promtool"); err != nil {
		return false, fmt.Errorf("promtool is needed, of Debian's package prometheus: %w", err)
	}
	book, err := readRules(file)
	if err != nil {
		return false, err
	}
	if keep == "" {
		if keep, err = os.MkdirTemp("", "alerts-"); err != nil {
			return false, fmt.Errorf("directory for the films: %w", err)
		}
		defer os.RemoveAll(keep)
	}
	if err := os.MkdirAll(keep, 0o700); err != nil {
		return false, err
	}
	results := play(ctx, stages(), book, keep, only)
	staged := map[string]bool{}
	var failed, again []string
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ALERT\tSTAGED BY\tSECONDS\tRESULT")
	for _, r := range results {
		for _, alert := range r.stage.alerts {
			staged[alert] = true
			verdict := "fired, and cleared"
			if n := len(r.before) + 1; r.err != nil {
				verdict = "FAILED"
				failed = append(failed, fmt.Sprintf("%s: FAILED, also at try %d: %v", alert, n, r.err))
			} else if n > 1 {
				verdict = fmt.Sprintf("fired, and cleared, at try %d", n)
			}
			fmt.Fprintf(w, "%s\t%s\t%.0f\t%s\n", alert, r.stage.name, r.took.Seconds(), verdict)
		}
		for i, err := range r.before {
			again = append(again, fmt.Sprintf("%s: try %d: %v", r.stage.alerts[0], i+1, err))
		}
	}
	for _, alert := range book.alerts {
		if only == "" && !staged[alert] {
			failed = append(failed, alert+": FAILED: nobody stages it")
		}
	}
	err = w.Flush()
	for _, line := range append(again, failed...) {
		fmt.Fprintln(out, line)
	}
	return len(failed) == 0, err
}

type result struct {
	stage  stage
	took   time.Duration // by the last try
	err    error         // of the last try
	before []error       // of the tries before it
}

func (r *result) try(ctx context.Context, book rulebook, dir string) {
	if r.err != nil {
		r.before = append(r.before, r.err)
	}
	began := time.Now()
	r.err = r.stage.perform(ctx, book, dir)
	r.took = time.Since(began)
}

// play runs the stages, a few at a time: they wait more than they work. Time runs 150
// times faster for the rules, so a machine that is busy for half a second is in
// trouble for more than a minute, and alerts that are right to fire then. So a stage
// that failed is played again, alone, when the others are over; what is wrong with a
// rule is wrong each time.
func play(ctx context.Context, all []stage, book rulebook, dir, only string) []result {
	if only != "" {
		all = slices.DeleteFunc(all, func(s stage) bool { return !slices.Contains(s.alerts, only) })
	}
	results := make([]result, len(all))
	room := make(chan struct{}, 3)
	var plays sync.WaitGroup
	for i, s := range all {
		plays.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			results[i].stage = s
			results[i].try(ctx, book, dir)
		})
	}
	plays.Wait()
	for i := range results {
		for n := 1; n < tries && results[i].err != nil && ctx.Err() == nil; n++ {
			results[i].try(ctx, book, dir)
		}
	}
	return results
}
