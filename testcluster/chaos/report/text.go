// Package report tells people what became of a chaos run: in a terminal, and as
// one HTML page that needs nothing beside itself.
package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// Text is the verdict for a terminal: a line for each promise, the story of each
// that was broken, and how to have it again.
func Text(w io.Writer, run *history.Run, verdicts []history.Verdict) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n\n", headline(run, verdicts), subline(run))
	for _, v := range verdicts {
		word := "held"
		if !v.Held {
			word = "BROKEN"
		}
		fmt.Fprintf(&b, "  %-8s  %-6s  %s\n                    %s\n", v.Promise, word, v.Words, v.Numbers)
	}
	for _, v := range verdicts {
		if v.Held {
			continue
		}
		fmt.Fprintf(&b, "\n%s is broken: %s\n", v.Promise, v.Words)
		for _, line := range v.Story {
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	for _, trouble := range run.Trouble {
		fmt.Fprintf(&b, "\nthe harness: %s", trouble)
	}
	fmt.Fprintf(&b, "\nagain: %s\n", run.Command)
	_, err := io.WriteString(w, b.String())
	return err
}

func brokenOf(verdicts []history.Verdict) (names []string) {
	for _, v := range verdicts {
		if !v.Held {
			names = append(names, v.Promise)
		}
	}
	return names
}

func headline(run *history.Run, verdicts []history.Verdict) string {
	if names := brokenOf(verdicts); len(names) > 0 {
		return fmt.Sprintf("%s: broken: %s", run.Scenario, strings.Join(names, ", "))
	}
	return fmt.Sprintf("%s: all promises held", run.Scenario)
}

func subline(run *history.Run) string {
	s := total(run)
	return fmt.Sprintf("%d nodes, %d backends, %s, seed %d: %d faults in %v; %d turns, %d whole, %d broken, %d refused, %d found nobody in; first byte p50 %v, p99 %v",
		run.Nodes, run.Backends, run.Level, run.Seed, len(run.Faults), lasted(run).Round(time.Second), s.Turns, s.Whole, s.Broken, s.Refused, s.Away, round(s.P50), round(s.P99))
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// recovery says how long each thing took, by name.
func recovery(run *history.Run) (rows []row) {
	for _, what := range slices.Sorted(maps.Keys(run.Wanted)) {
		took, came := run.Recovered[what]
		r := row{Name: what, Value: fmt.Sprintf("%.1f s", took.Seconds()), Limit: fmt.Sprintf("%.0f s", run.Wanted[what].Seconds()), Bad: took > run.Wanted[what]}
		if !came {
			r.Value, r.Bad = "never", true
		}
		rows = append(rows, r)
	}
	return rows
}

type row struct {
	Name, Value, Limit string
	Bad                bool
}
