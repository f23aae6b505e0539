package main

import (
	"encoding/json"
	"fmt"
	"time"

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
	c.Flags().Bool("cluster", false, "every node of the cluster reads its own file, one after the other, until one refuses")
	c.RunE = func(c *cobra.Command, _ []string) error {
		node, err := a.client()
		if err != nil {
			return err
		}
		node.Wait(reloadTime)
		var got api.Reloaded
		if err := as(c, node).PostFor(c.Context(), &got, "reload"); err != nil {
			return err
		}
		if a.json {
			return json.NewEncoder(c.OutOrStdout()).Encode(got)
		}
		if got.Nodes == nil {
			_, err = fmt.Fprintln(c.OutOrStdout(), reloadedText(got.ConfigHash, got.Changed))
		}
		for _, n := range got.Nodes {
			text := reloadedText(n.ConfigHash, n.Changed)
			if n.Error != "" {
				text = n.Error
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", n.Name, text)
		}
		return err
	}
	return c
}

// reloadTime is for many nodes, one after the other.
const reloadTime = 5 * time.Minute

func reloadedText(hash string, changed bool) string {
	if changed {
		return "configuration " + hash + " is in force now"
	}
	return "configuration " + hash + " is in force already"
}
