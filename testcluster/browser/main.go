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
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const bound = 8 * time.Minute // on all of it: some twenty times what it takes

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, log io.Writer) int {
	f := flag.NewFlagSet("browser", flag.ContinueOnError)
	f.SetOutput(log)
	program := f.String("chromium", "", "`PROGRAM` to run (default: chromium, chromium-browser or google-chrome)")
	shots := f.String("shots", "", "`DIR` for pictures of the page")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil || f.NArg() > 0:
		fmt.Fprintln(log, "browser: there are only flags, see -h")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	t := &table{out: out, began: time.Now()}
	err := drive(ctx, *program, *shots, t)
	for _, line := range t.failed {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", t.passed, len(t.failed))
	if err != nil {
		fmt.Fprintln(log, "browser:", err)
	}
	if err != nil || len(t.failed) > 0 {
		return 1
	}
	return 0
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
