// Command figures measures what sessions cost and holds it to its limits: bytes per
// session, snapshots, hits of the cache, and new bindings on three nodes that sync
// their disks. `make figures` runs it; it exits 1 where a limit is missed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

var (
	errUsage  = errors.New("bad arguments")
	errMissed = errors.New("limits are missed; the table says which")
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, "figures:", err)
	if errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

// options say how much is measured, and where.
type options struct {
	dir      string        // of what is synced
	only     string        // a part's name; "": all
	sessions int           // in memory
	lone     int           // bindings made one at a time
	span     time.Duration // of each load
}

func (o *options) parse(args []string) error {
	f := flag.NewFlagSet("figures", flag.ContinueOnError)
	f.StringVar(&o.dir, "dir", "", "`directory` on the disk to measure with; empty: that of temporary files")
	f.StringVar(&o.only, "only", "", "a part's `name`: "+strings.Join(names(), ", "))
	f.IntVar(&o.sessions, "sessions", 1_000_000, "in memory; the limits are those of a million")
	f.IntVar(&o.lone, "lone", 1000, "bindings made one at a time")
	f.DurationVar(&o.span, "span", 5*time.Second, "of each load")
	if err := f.Parse(args); err != nil {
		return err
	}
	known := o.only == ""
	for _, n := range names() {
		known = known || n == o.only
	}
	if f.NArg() > 0 || !known || o.sessions < 1000 || o.sessions > 10_000_000 || o.lone < 10 || o.lone > 100_000 || o.span < 100*time.Millisecond || o.span > time.Minute {
		return fmt.Errorf("%w: want -sessions from 1000 to 10000000, -lone from 10 to 100000, -span from 100ms to 1m, -only one of %s, and nothing beside the flags", errUsage, strings.Join(names(), ", "))
	}
	return nil
}

// part measures something.
type part struct {
	name    string
	measure func(options) ([]row, error)
}

func parts() []part {
	return []part{{"memory", memory}, {"snapshot", snapshot}, {"sessions", sessions}}
}

func names() (all []string) {
	for _, p := range parts() {
		all = append(all, p.name)
	}
	return all
}

// row is a figure beside its limit.
type row struct {
	what, unit string
	value      float64
	most       float64 // 0: no limit
	least      float64 // likewise
}

func (r row) met() bool {
	return (r.most == 0 || r.value <= r.most) && (r.least == 0 || r.value >= r.least)
}

// limit and verdict are words for the table.
func (r row) limit() string {
	switch {
	case r.most > 0:
		return "≤ " + number(r.most)
	case r.least > 0:
		return "≥ " + number(r.least)
	}
	return ""
}

func (r row) verdict() string {
	switch {
	case r.limit() == "":
		return ""
	case r.met():
		return "yes"
	}
	return "NO"
}

// number writes about three digits.
func number(x float64) string {
	switch {
	case x >= 100 || x == float64(int(x)):
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func run(args []string, out io.Writer) error {
	var o options
	if err := o.parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "starling-figures-")
	if err != nil {
		return fmt.Errorf("a directory to measure in: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is no harm
	o.dir = dir
	c, err := look(filepath.Join(dir, "sync"))
	if err != nil {
		return err
	}
	var all []row
	for _, p := range parts() {
		if o.only != "" && o.only != p.name {
			continue
		}
		rows, err := p.measure(o)
		if err != nil {
			return fmt.Errorf("part %s: %w", p.name, err)
		}
		all = append(all, rows...)
	}
	return report(out, c.lines(args), all)
}

// report prints conditions and table, and fails where a limit is missed.
func report(out io.Writer, conditions []string, all []row) error {
	missed := false
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, l := range conditions {
		fmt.Fprintln(out, l)
	}
	fmt.Fprintf(t, "\nfigure\tunit\tmeasured\tlimit\tmet\n")
	for _, r := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.what, r.unit, number(r.value), r.limit(), r.verdict())
		missed = missed || !r.met()
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if missed {
		return errMissed
	}
	return nil
}
