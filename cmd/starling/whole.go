package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
)

// whole gives a command that asks a node a flag to ask it about all.
func whole(c *cobra.Command) *cobra.Command {
	c.Flags().Bool("cluster", false, "of all nodes of the cluster, which the one that is asked asks")
	return c
}

// limited gives a command that lists a flag that says how much.
func limited(c *cobra.Command) *cobra.Command {
	c.Flags().Int("limit", 0, "list at most `N` (default: 100)")
	return c
}

// here gives an operator's verb of all nodes a flag to do it at one.
func here(c *cobra.Command) *cobra.Command {
	c.Flags().Bool("here", false, "the node that is asked does so alone, and keeps nothing of it")
	return c
}

// as is a client that asks what the command's flags say.
func as(c *cobra.Command, node *client.Client) *client.Client {
	if all, err := c.Flags().GetBool("cluster"); err == nil && all {
		node = node.With("scope", "cluster")
	}
	if alone, err := c.Flags().GetBool("here"); err == nil && alone {
		node = node.With("scope", "node")
	}
	if c.Flags().Changed("limit") {
		node = node.With("limit", c.Flags().Lookup("limit").Value.String())
	}
	return node
}

// showNodes is a line for each node, and how the cluster is as the one sees it that
// was asked.
func showNodes(w io.Writer, s api.Status) {
	var streams, waiting int64
	answered := 0
	fmt.Fprintln(w, "NODE\tSTATE\tVERSION\tUP\tSTREAMS\tWAITING\tCONFIG\tSAYS")
	for _, n := range s.Nodes {
		if n.Status == nil {
			fmt.Fprintf(w, "%s\t%s\t-\t-\t-\t-\t-\tno answer: %s\n", n.Name, n.State, n.Error)
			continue
		}
		one := n.Status
		answered++
		streams, waiting = streams+one.Streams.InFlight, waiting+one.Streams.Waiting
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", n.Name, stateText(string(n.State), one.Node.Agreed), one.Node.Version,
			strings.TrimSuffix(ago(one.Node.Started), " ago"), one.Streams.InFlight, one.Streams.Waiting, one.ConfigHash, dash(saysText(*one)))
	}
	fmt.Fprintf(w, "\nanswered\t%d of %d nodes\n", answered, len(s.Nodes))
	fmt.Fprintf(w, "streams\t%d running, %d waiting\n", streams, waiting)
	showCluster(w, s)
	if text := hashesText(s.Cluster.ConfigHashes); text != "" {
		fmt.Fprintf(w, "config\t%s\n", strings.TrimPrefix(text, "; "))
	}
}

// saysText is what a person should know of a node.
func saysText(s api.Status) string {
	var all []string
	if s.NotReady != "" {
		all = append(all, "not ready: "+s.NotReady)
	}
	if d := s.Drain; d != nil && !d.Deadline.IsZero() {
		all = append(all, fmt.Sprintf("its drain ends in %v at the latest", seconds(d.Left)))
	}
	for _, e := range s.Elders {
		all = append(all, fmt.Sprintf("process %d (%s) carries %d of its streams", e.PID, e.Version, e.InFlight))
	}
	return strings.Join(append(all, s.Faults...), "; ")
}

// showGaps says whose part is missing.
func showGaps(w io.Writer, nodes []api.NodeAnswer) {
	for _, n := range nodes {
		if n.Error != "" {
			fmt.Fprintf(w, "nothing of %s (%s): %s\n", n.Name, n.State, n.Error)
		}
	}
}
