// Command show plays the simulator's experiments, prints their tables and
// writes them, and pictures, into docs/balance.md. `make sim` runs it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/starling-lb/starling/testcluster/sim"
)

var (
	errUsage  = errors.New("bad arguments")
	errMissed = errors.New("goals are missed; the table above says which")
)

func main() {
	err := show(os.Args[1:])
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, "sim:", err)
	if errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

// options say how much is played and what becomes of it.
type options struct {
	quick bool
	check bool
	seeds int
	only  string
	docs  string
}

func (o *options) parse(args []string) error {
	f := flag.NewFlagSet("sim", flag.ContinueOnError)
	f.BoolVar(&o.quick, "quick", false, "an eighth of the requests, one seed, the goals and the first table alone; writes nothing")
	f.BoolVar(&o.check, "check", false, "fail where a goal is missed")
	f.IntVar(&o.seeds, "seeds", 5, "of the goals and the first table; all else has one")
	f.StringVar(&o.only, "only", "", "a part's `name`: "+strings.Join(names(), ", "))
	f.StringVar(&o.docs, "docs", "docs", "`directory` of balance.md and img; empty: print only")
	if err := f.Parse(args); err != nil {
		return err
	}
	known := o.only == ""
	for _, n := range names() {
		known = known || n == o.only
	}
	if f.NArg() > 0 || o.seeds < 1 || o.seeds > 100 || !known {
		return fmt.Errorf("%w: want -seeds from 1 to 100, -only one of %s, and nothing beside the flags", errUsage, strings.Join(names(), ", "))
	}
	if o.quick {
		o.seeds, o.docs = 1, ""
	}
	return nil
}

// part is one table, or a picture and its table.
type part struct {
	name  string
	quick bool // played in the short form, too
	play  func(*stage) (table, error)
}

func parts() []part {
	return []part{
		{"goals", true, goals},
		{"policies", true, policies},
		{"peers", false, peers},
		{"ages", false, ages},
		{"robust", false, robust},
		{"heldout", false, heldout},
		{"faults", false, faulted},
		{"traces", false, traces},
		{"sessions", false, sessions},
		{"pictures", false, pictures},
	}
}

func names() (all []string) {
	for _, p := range parts() {
		all = append(all, p.name)
	}
	return all
}

// stage is what the parts are played on.
type stage struct {
	options
	missed bool
}

func show(args []string) error {
	var s stage
	if err := s.parse(args); err != nil {
		return err
	}
	written := map[string]string{}
	for _, p := range parts() {
		if s.only != "" && s.only != p.name || s.quick && !p.quick {
			continue
		}
		t, err := p.play(&s)
		if err != nil {
			return fmt.Errorf("part %s: %w", p.name, err)
		}
		fmt.Printf("%s\n", t.markdown())
		written[p.name] = t.markdown()
	}
	if s.docs != "" {
		if err := insert(filepath.Join(s.docs, "balance.md"), written); err != nil {
			return err
		}
	}
	if s.check && s.missed {
		return errMissed
	}
	return nil
}

// cell is a cell as the options want it.
func (s *stage) cell(c sim.Cell) sim.Cell {
	if s.quick && len(c.Faults) == 0 {
		c.Load.Requests = min(c.Load.Requests, 300_000/8)
	}
	return c
}
