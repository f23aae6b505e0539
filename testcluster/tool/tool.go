// Package tool is what the commands share that check something of starling and say so
// by a table and an exit code: flags, a bound in time, a signal that ends them.
package tool

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

// Tool is such a command. It takes flags alone.
type Tool struct {
	Name  string
	Bound time.Duration       // on all of it
	Flags func(*flag.FlagSet) // declares them

	// Do checks, and tells whether all is well; an error is of the check itself.
	Do func(ctx context.Context, out io.Writer) (ok bool, err error)
}

// Run returns the exit code: 0 all is well, or help was asked for; 1 it is not; 2 the
// flags are wrong.
func (t Tool) Run(args []string, out, log io.Writer) int {
	f := flag.NewFlagSet(t.Name, flag.ContinueOnError)
	f.SetOutput(log)
	t.Flags(f)
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil || f.NArg() > 0:
		fmt.Fprintf(log, "%s: there are only flags, see -h\n", t.Name)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, t.Bound)
	defer cancel()
	ok, err := t.Do(ctx, out)
	if err != nil {
		fmt.Fprintf(log, "%s: %v\n", t.Name, err)
	}
	if err != nil || !ok {
		return 1
	}
	return 0
}
