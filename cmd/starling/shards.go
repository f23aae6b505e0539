package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
)

// newShards lists the shards, and makes lost ones anew.
func newShards() *cobra.Command {
	c := list("shards", "List the shards of the sessions, who leads them and where their replicas are", at("shards"), cobra.NoArgs, showShards)
	c.AddCommand(change("reset ID", "Make a shard anew that has lost most of its replicas for good, from what is left of it", "it is made anew; starling shards shows how far it is", 1,
		func(ctx context.Context, node *client.Client, args []string) error {
			return node.Post(ctx, nil, "shards", args[0], "reset")
		}))
	return c
}

func showShards(w io.Writer, l api.ShardList) {
	fmt.Fprintln(w, "SHARD\tLEADER\tTERM\tAPPLIED\tSESSIONS\tREPLICAS\tSTEP")
	for _, s := range l.Shards {
		id := fmt.Sprint(s.ID)
		if s.ID == 0 {
			id = "0 (meta)"
		}
		if s.Incarnation > 1 {
			id += fmt.Sprintf(" #%d", s.Incarnation)
		}
		var replicas []string
		for _, r := range s.Replicas {
			replicas = append(replicas, replicaText(r))
		}
		step := "-"
		if s.Step != nil {
			step = strings.Join(strings.Fields(s.Step.Kind+" "+s.Step.Node), " ") + ": " + s.Step.Reason
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d of %d\t%d\t%s\t%s\n", id, dash(s.Leader), s.Term, s.Applied, s.LastIndex, s.Sessions, dash(strings.Join(replicas, " ")), step)
	}
}

// replicaText is a replica's node, with what is unusual about it.
func replicaText(r api.Replica) string {
	var notes []string
	if r.Role == api.NonvoterRole || r.Role == api.WantedRole {
		notes = append(notes, string(r.Role))
	}
	if r.Lag > 0 {
		notes = append(notes, fmt.Sprintf("lacks %d", r.Lag))
	}
	if len(notes) == 0 {
		return r.Node
	}
	return r.Node + " (" + strings.Join(notes, ", ") + ")"
}
