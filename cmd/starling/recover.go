package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node"
)

func newRecover() *cobra.Command {
	var path string
	var yes bool
	c := &cobra.Command{
		Use:   "recover --config FILE",
		Short: "Begin a cluster's shard 0 again from this node, which does not run",
		Long: "Recover is for a cluster whose shard 0 has lost most of its nodes for good: nothing\n" +
			"moves and nobody joins any more. Run it on one node that hosted shard 0, the one\n" +
			"that knows the highest revision, while that node does not run; then start it. The\n" +
			"others hear of it and go on, also the lost ones, should they come back. Run it once,\n" +
			"on one node only: of two, one gives way when they meet, and what its side has\n" +
			"decided is lost. A node that hears at its start that shard 0 has a leader, or was\n" +
			"recovered on another node, drops the order, says so in its log, and follows.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return recoverMeta(c, path, yes) },
	}
	configFlag(c, &path)
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

func recoverMeta(c *cobra.Command, path string, yes bool) (err error) {
	config, err := node.Load(path)
	if err != nil {
		return err
	}
	r, err := node.Recover(config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	m := r.Map()
	w := c.OutOrStdout()
	fmt.Fprintf(w, "cluster %s, as this node knows it: revision %d, %d nodes, %d shards.\n", m.Cluster, m.Revision, len(m.Nodes), m.Count())
	if !r.Held() {
		fmt.Fprintf(w, "This node had no replica of shard 0, and may have heard of that late: if one that had is left, recover there.\n")
	}
	fmt.Fprintf(w, "Shard 0 will begin again on this node alone. What was agreed after that revision is lost:\n"+
		"nodes that joined or left, replicas that moved, what operators decided of backends. Sessions\n"+
		"are in the other shards and stay.\n")
	if !yes && !confirm(c.InOrStdin(), w) {
		return errors.New("nothing was changed")
	}
	if err := r.Do(); err != nil {
		return err
	}
	fmt.Fprintf(w, "Ordered, in %s: move that file away to take it back. The start begins with the newest map\n"+
		"that the nodes it meets have; if shard 0 is led, or was recovered on another node, it drops the order\n"+
		"and says so in the log.\n", r.Order())
	fmt.Fprintln(w, "Done. Start this node now.")
	return nil
}

// confirm asks on a terminal, or whatever stands in for it.
func confirm(in io.Reader, w io.Writer) bool {
	fmt.Fprint(w, "The other nodes of shard 0 are lost for good? Type yes: ")
	line, _ := bufio.NewReader(in).ReadString('\n') // what ends without an end of line counts, too
	return strings.TrimSpace(line) == "yes"
}
