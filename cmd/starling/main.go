// Command starling is a load balancer for long streams. This package knows
// flags, signals and exit codes; what the commands do is node's and
// testcluster's job.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node"
)

// The exit codes of the contract.
const (
	exitError = 1
	exitUsage = 2 // and a configuration that is wrong
)

// exit is an error that says how the process ends.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string { return e.err.Error() }
func (e *exit) Unwrap() error { return e.err }

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// newRoot is the whole tree of commands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "starling",
		Short:         "A load balancer for long streams",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       node.Version().Version,
	}
	root.SetVersionTemplate(versionText(node.Version()))
	root.AddCommand(newServe(), newReload(), newUpgrade(), newCheck(), newDev(), newVersion(), newBackend(), newPolicy(), newRebalance(), newSession(), newMove(), newNode(), newRecover(), newKeys(), newChaos(), newChaosNode(), newBench())
	root.AddCommand(newLists()...)
	return root
}

// run is main with its surroundings handed in.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	began := false
	watch(root, &began)
	asked, err := root.ExecuteContextC(context.Background())
	return report(asked, err, began, stderr)
}

// watch notes when a command's own code begins: until then, cobra can only have
// refused the arguments. Cobra counts them; which they are, the usage says.
func watch(c *cobra.Command, began *bool) {
	if inner := c.Args; inner != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := inner(c, args); err != nil {
				return fmt.Errorf("%w; usage: %s", err, c.UseLine())
			}
			return nil
		}
	}
	if inner := c.RunE; inner != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			*began = true
			return inner(c, args)
		}
	}
	for _, sub := range c.Commands() {
		watch(sub, began)
	}
}

// report says once what went wrong with the command that was asked for, and returns the
// exit code for it.
func report(asked *cobra.Command, err error, began bool, stderr io.Writer) int {
	var faults *node.FaultsError
	var coded *exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &faults):
		fmt.Fprintln(stderr, faults) // each line names file and line, and editors find it there
		return exitUsage
	case !began:
		fmt.Fprintf(stderr, "starling: %s\nstarling: see %s --help\n", strings.TrimSpace(err.Error()), asked.CommandPath())
		return exitUsage
	}
	fmt.Fprintf(stderr, "starling: %v\n", err)
	if errors.As(err, &coded) {
		return coded.code
	}
	return exitError
}

// configFlag adds the flag that names the configuration file.
func configFlag(c *cobra.Command, path *string) {
	c.Flags().StringVar(path, "config", "", "configuration `FILE`")
	if err := c.MarkFlagRequired("config"); err != nil {
		panic("BUG: " + err.Error())
	}
}
