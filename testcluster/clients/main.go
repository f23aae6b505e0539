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
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const bound = 100 * time.Second // on all of it

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, log io.Writer) int {
	f := flag.NewFlagSet("clients", flag.ContinueOnError)
	f.SetOutput(log)
	dir := f.String("dir", "testcluster/clients", "`DIR` of the scripts, where npm ci was run")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil || f.NArg() > 0:
		fmt.Fprintln(log, "clients: there are only flags, see -h")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	t := &table{}
	err := drive(ctx, *dir, t)
	t.print(out)
	if err != nil {
		fmt.Fprintln(log, "clients:", err)
	}
	if err != nil || t.failed() > 0 {
		return 1
	}
	return 0
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
