package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node/client"
)

// admin is what every command has that asks a running node.
type admin struct {
	address, tokenFile, caFile string
	json                       bool
}

// asking gives a command the flags that say whom it asks.
func asking(c *cobra.Command, a *admin) *cobra.Command {
	c.Flags().StringVar(&a.address, "admin", "", "`URL` of the node's admin API (default: STARLING_ADMIN, or "+client.DefaultAdmin+")")
	c.Flags().StringVar(&a.tokenFile, "token-file", "", "`FILE` with the token that the admin API asks for")
	c.Flags().StringVar(&a.caFile, "ca-file", "", "`FILE` with who signed the admin API's certificate (default: the system's)")
	c.Flags().BoolVar(&a.json, "json", false, "print JSON, for programs")
	return c
}

func (a *admin) client() (*client.Client, error) {
	address := a.address
	if address == "" {
		address = os.Getenv("STARLING_ADMIN")
	}
	node, err := client.New(address, a.tokenFile)
	if err == nil && a.caFile != "" {
		err = node.Trust(a.caFile)
	}
	return node, err
}

// say tells what was done.
func (a *admin) say(c *cobra.Command, what string) error {
	if a.json {
		return json.NewEncoder(c.OutOrStdout()).Encode(map[string]string{"done": what})
	}
	_, err := fmt.Fprintln(c.OutOrStdout(), what)
	return err
}

// list makes a command that shows what stands at a path of the admin API: as a
// table for people, as it came for programs.
func list[T any](use, short string, path func(args []string) []string, args cobra.PositionalArgs, table func(io.Writer, T)) *cobra.Command {
	return listAt(use, short, func(_ context.Context, _ *client.Client, args []string) ([]string, error) { return path(args), nil }, args, table)
}

// listAt is list where the node may have to be asked for the path.
func listAt[T any](use, short string, path func(context.Context, *client.Client, []string) ([]string, error), args cobra.PositionalArgs, table func(io.Writer, T)) *cobra.Command {
	var a admin
	c := asking(&cobra.Command{Use: use, Short: short, Args: args}, &a)
	c.RunE = func(c *cobra.Command, args []string) error {
		node, err := a.client()
		if err != nil {
			return err
		}
		at, err := path(c.Context(), node, args)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := as(c, node).Get(c.Context(), &raw, at...); err != nil {
			return err
		}
		if a.json {
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s\n", strings.TrimSpace(string(raw)))
			return err
		}
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("the node's answer is not as expected (%w); is it a starling of another version?", err)
		}
		out := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
		table(out, v)
		return out.Flush()
	}
	return c
}

// at is a path that no argument changes.
func at(path ...string) func([]string) []string {
	return func([]string) []string { return path }
}

// change makes a command that has a node do something, and says that it did.
func change(use, short, done string, args int, do func(context.Context, *client.Client, []string) error) *cobra.Command {
	var a admin
	c := asking(&cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(args)}, &a)
	c.RunE = func(c *cobra.Command, args []string) error {
		node, err := a.client()
		if err != nil {
			return err
		}
		if err := do(c.Context(), as(c, node), args); err != nil {
			return err
		}
		said := done
		if whom := strings.Join(strings.Fields(strings.Join(args, " ")), " "); whom != "" { // an argument may be ""
			said = whom + ": " + done
		}
		return a.say(c, said)
	}
	return c
}
