package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
)

// newShards lists the shards, and makes lost ones anew.
func newShards() *cobra.Command {
	c := list("shards", "List the shards of the sessions, who leads them and where their replicas are", at("shards"), cobra.NoArgs, showShards)
	c.AddCommand(newReset())
	return c
}

// newReset makes a lost shard anew.
func newReset() *cobra.Command {
	empty := false
	var c *cobra.Command
	c = change("reset ID", "Make a shard anew that has lost most of its replicas for good, from what is left of it", "it is made anew; starling shards shows how far it is", 1,
		func(ctx context.Context, node *client.Client, args []string) error {
			verb := "reset"
			if empty {
				verb = "empty"
			}
			say := time.AfterFunc(time.Second, func() {
				fmt.Fprintln(c.ErrOrStderr(), "waits for every node that runs to say what it has; one that has just died is seen dead after some seconds")
			})
			defer say.Stop()
			return node.Post(ctx, nil, "shards", args[0], verb)
		})
	c.Flags().BoolVar(&empty, "empty", false, "with nothing, since nothing is left of it: of its sessions only those are kept that running nodes remember")
	return c
}

func showShards(w io.Writer, l api.ShardList) {
	called := callers(l)
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
			replicas = append(replicas, replicaText(r, called(r.Node, r.ID)))
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d of %d\t%d\t%s\t%s\n", id, dash(called(s.Leader, s.LeaderID)), s.Term, s.Applied, s.LastIndex, s.Sessions,
			dash(strings.Join(replicas, " ")), stepText(s.Step, called))
	}
}

// callers says how to call a node: by its name, with the beginning of its id where
// two are called alike.
func callers(l api.ShardList) func(name, id string) string {
	ids := map[string]map[string]bool{}
	for _, s := range l.Shards {
		for _, r := range s.Replicas {
			if ids[r.Node] == nil {
				ids[r.Node] = map[string]bool{}
			}
			ids[r.Node][r.ID] = true
		}
	}
	return func(name, id string) string {
		if len(ids[name]) < 2 {
			return name
		}
		return name + "/" + id[:min(8, len(id))]
	}
}

// stepText is what is done to a shard, why, for how long, and what it waits for.
func stepText(s *api.ShardStep, called func(name, id string) string) string {
	if s == nil {
		return "-"
	}
	text := strings.Join(strings.Fields(s.Kind+" "+called(s.Node, s.NodeID)), " ") + ": " + s.Reason + fmt.Sprintf("; for %v", seconds(s.Age))
	if s.Still {
		text += ", stands still"
	}
	if s.Waits != "" {
		text += ", waits: " + s.Waits
	}
	return text
}

// replicaText is a replica's node, with what is unusual about it.
func replicaText(r api.Replica, node string) string {
	var notes []string
	if r.Role == api.NonvoterRole || r.Role == api.WantedRole {
		notes = append(notes, string(r.Role))
	}
	if r.State != "" && r.State != "alive" {
		notes = append(notes, string(r.State))
	}
	if r.Lag > 0 {
		notes = append(notes, fmt.Sprintf("lacks %d", r.Lag))
	}
	if len(notes) == 0 {
		return node
	}
	return node + " (" + strings.Join(notes, ", ") + ")"
}
