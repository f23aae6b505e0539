package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node/api"
)

func newReload() *cobra.Command {
	var a admin
	c := asking(&cobra.Command{
		Use:   "reload",
		Short: "Have a node read its configuration file again",
		Long: "Reload has a node read the file that it was started with, and work by what it says\n" +
			"now; no stream ends for it. Where anything is wrong with the file, or cannot change\n" +
			"while the node runs, nothing changes, and all of it is listed as by starling check.",
		Args: cobra.NoArgs,
	}, &a)
	c.RunE = func(c *cobra.Command, _ []string) error {
		node, err := a.client()
		if err != nil {
			return err
		}
		var got api.Reloaded
		if err := node.PostFor(c.Context(), &got, "reload"); err != nil {
			return err
		}
		said := "is in force already"
		if got.Changed {
			said = "is in force now"
		}
		if a.json {
			return json.NewEncoder(c.OutOrStdout()).Encode(got)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "configuration %s %s\n", got.ConfigHash, said)
		return err
	}
	return c
}
