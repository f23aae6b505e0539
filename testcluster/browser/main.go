// Command browser looks at the dashboard as people do: in Chromium, without a
// window. It starts a cluster with load, clicks, types, and holds what the page
// says against what the nodes say. Each check is one line of a table, and one that
// fails makes the exit code 1.
//
// `make browser` runs it; -shots DIR keeps pictures to look at. It must not know
// how starling is made.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/tool"
)

const bound = 8 * time.Minute // on all of it: some twenty times what it takes

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, log io.Writer) int {
	var program, shots string
	return tool.Tool{
		Name: "browser", Bound: bound,
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&program, "chromium", "", "`PROGRAM` to run (default: chromium, chromium-browser or google-chrome)")
			f.StringVar(&shots, "shots", "", "`DIR` for pictures of the page")
		},
		Do: func(ctx context.Context, out io.Writer) (bool, error) {
			t := &table{out: out, began: time.Now()}
			err := drive(ctx, program, shots, t)
			for _, line := range t.failed {
				fmt.Fprintln(out, line)
			}
			fmt.Fprintf(out, "%d passed, %d failed\n", t.passed, len(t.failed))
			return len(t.failed) == 0, err
		},
	}.Run(args, out, log)
}

// table says what was checked as it goes, and at its end what failed once more.
type table struct {
	out    io.Writer
	began  time.Time
	passed int
	failed []string
}

func (t *table) add(check string, err error) {
	took := time.Since(t.began)
	t.began = time.Now()
	result := "passed"
	if t.passed++; err != nil {
		t.passed--
		t.failed = append(t.failed, fmt.Sprintf("%s: FAILED: %v", strings.TrimSpace(check), err))
		result = "FAILED"
	}
	fmt.Fprintf(t.out, "%-72s %-7s %6d ms\n", check, result, took.Milliseconds())
	if err != nil {
		fmt.Fprintf(t.out, "    %v\n", err)
	}
}
