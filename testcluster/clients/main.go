// Command clients drives clients that people use through starling: the npm
// packages openai, ws and eventsource, and curl. Each check is one line of a
// table, and one that fails makes the exit code 1.
//
// `make clients` installs the packages and runs it. It must not know how
// starling is made: what counts is what these clients see.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"time"

	"github.com/starling-lb/starling/testcluster/tool"
)

const bound = 100 * time.Second // on all of it

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, log io.Writer) int {
	dir := ""
	return tool.Tool{
		Name: "clients", Bound: bound,
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&dir, "dir", "testcluster/clients", "`DIR` of the scripts, where npm ci was run")
		},
		Do: func(ctx context.Context, out io.Writer) (bool, error) {
			t := &table{}
			err := drive(ctx, dir, t)
			t.print(out)
			return t.failed() == 0, err
		},
	}.Run(args, out, log)
}

// drive runs all clients, one after the other, against one starling.
func drive(ctx context.Context, dir string, t *table) (err error) {
	r, err := start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	var errs []error
	for _, name := range []string{"openai", "eventsource", "ws"} {
		errs = append(errs, r.script(ctx, dir, name, t, nil))
	}
	errs = append(errs, r.curl(ctx, t), r.atRest(ctx, t))
	// The last one sees starling stop.
	errs = append(errs, r.script(ctx, dir, "drain", t, r.drain))
	return errors.Join(errs...)
}
