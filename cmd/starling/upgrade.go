package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node/api"
)

func newUpgrade() *cobra.Command {
	var a admin
	c := asking(&cobra.Command{
		Use:   "upgrade",
		Short: "Have the program that is at a node's path by now become the node, and refuse no connection",
		Long: "Upgrade has a node start the program at the path and with the arguments that it was\n" +
			"started with, and hand its sockets, its data directory and its part in the cluster\n" +
			"over. The process before carries its streams to their end, or to node.drain_timeout.\n" +
			"Where the new one does not come up, the node goes on as before, and it says why.",
		Args: cobra.NoArgs,
	}, &a)
	c.RunE = func(c *cobra.Command, _ []string) error {
		node, err := a.client()
		if err != nil {
			return err
		}
		node.Wait(upgradeTime)
		out := c.OutOrStdout()
		if !a.json {
			fmt.Fprintln(out, "a new process begins")
		}
		var got api.Upgraded
		if err := node.PostFor(c.Context(), &got, "upgrade"); err != nil {
			return err
		}
		if a.json {
			return json.NewEncoder(out).Encode(got)
		}
		_, err = fmt.Fprintf(out, "process %d (%s) is the node, after %v; who connected meanwhile waited for up to %v\n", got.PID, got.Version, millis(got.Took), millis(got.Waited))
		if err == nil && got.Streams > 0 {
			_, err = fmt.Fprintf(out, "the process before carries its %d streams to their end; starling status shows how many are left\n", got.Streams)
		}
		return err
	}
	return c
}

// upgradeTime is longer than a node tries.
const upgradeTime = 3 * time.Minute

// showElders tells what older processes of a node still carry.
func showElders(w io.Writer, elders []api.Elder) {
	for _, e := range elders {
		end := "none is cut"
		if !e.Deadline.IsZero() {
			end = "it cuts what is left in " + time.Until(e.Deadline).Round(time.Second).String()
		}
		fmt.Fprintf(w, "elder\tprocess %d (%s) carries %d of them since %s; %s\n", e.PID, e.Version, e.InFlight, ago(e.Since), end)
	}
}

func millis(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}
