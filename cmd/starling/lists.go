package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node/api"
)

// newLists are the commands that only show.
func newLists() []*cobra.Command {
	return []*cobra.Command{
		whole(list("status", "Show how a node is, or all of them", at("status"), cobra.NoArgs, showStatus)),
		list("members", "List the nodes of the cluster", at("members"), cobra.NoArgs, showMembers),
		whole(list("pools", "List the pools", at("pools"), cobra.NoArgs, showPools)),
		whole(list("backends", "List the backends, their state and load", at("backends"), cobra.NoArgs, showBackends)),
		newShards(),
		newEvents(),
		newTop(),
		list("config", "Show the configuration in force, as a file with every key, secrets masked", at("config"), cobra.NoArgs, showConfig),
		limited(whole(list("streams", "List the streams that run, oldest first", at("streams"), cobra.NoArgs, showStreams))),
	}
}

func showStatus(w io.Writer, s api.Status) {
	if s.Nodes != nil {
		showNodes(w, s)
		return
	}
	fmt.Fprintf(w, "node\t%s (%s)\n", s.Node.Name, s.Node.ID)
	fmt.Fprintf(w, "version\t%s\n", s.Node.Version)
	fmt.Fprintf(w, "state\t%s; the node started %s\n", stateText(string(s.Node.State), s.Node.Agreed), ago(s.Node.Started))
	if s.NotReady != "" {
		fmt.Fprintf(w, "not ready\t%s\n", s.NotReady)
	}
	fmt.Fprintf(w, "members\t%d of %d alive\n", s.Cluster.Alive, s.Cluster.Members)
	showCluster(w, s)
	fmt.Fprintf(w, "streams\t%d running, %d waiting\n", s.Streams.InFlight, s.Streams.Waiting)
	showElders(w, s.Elders)
	if s.Drain != nil {
		end := "has no deadline"
		if !s.Drain.Deadline.IsZero() {
			end = fmt.Sprintf("ends in %v at the latest", seconds(s.Drain.Left))
		}
		fmt.Fprintf(w, "drain\t%s (%s), %d streams finished\n", end, s.Drain.Phase, s.Drain.Finished)
	}
	fmt.Fprintf(w, "config\t%s%s\n", s.ConfigHash, hashesText(s.Cluster.ConfigHashes))
	for _, f := range s.Faults {
		fmt.Fprintf(w, "fault\t%s\n", f)
	}
}

func showCluster(w io.Writer, s api.Status) {
	switch {
	case s.Cluster.ID != "":
		fmt.Fprintf(w, "cluster\t%s at revision %d; %s\n", s.Cluster.ID, s.Cluster.Revision, quorumText(s.Cluster.MetaQuorum))
		fmt.Fprintf(w, "shards\t%d, of which this node leads %d, and nobody %d; something is done to %d\n", s.Shards.Count, s.Shards.Led, s.Shards.WithoutLeader, s.Shards.Steps)
	case s.Cluster.Waits != "":
		fmt.Fprintf(w, "cluster\tnone yet: %s\n", s.Cluster.Waits)
	}
	if s.Cluster.Paused != "" {
		fmt.Fprintf(w, "repairs\trest: %s\n", s.Cluster.Paused)
	}
}

// stateText is how a node is, and what the cluster has agreed on about it where that
// says more.
func stateText(state string, agreed api.Agreed) string {
	if agreed == "" || agreed == api.ActiveNode || string(agreed) == state {
		return state
	}
	return state + " (" + string(agreed) + ")"
}

func hashesText(hashes int) string {
	if hashes < 2 {
		return ""
	}
	return fmt.Sprintf("; the nodes that are alive have %d different ones", hashes)
}

func quorumText(has bool) string {
	if has {
		return "it can decide"
	}
	return "it cannot decide anything now: too few of the nodes that keep its map answer"
}

func showConfig(w io.Writer, c api.Config) {
	fmt.Fprintf(w, "# %s of %s, read %s\n%s", c.Hash, dash(c.File), ago(c.Read), c.YAML)
}

func showPools(w io.Writer, l api.Pools) {
	of := column(l.Nodes)
	fmt.Fprintf(w, "POOL\t%sPOLICY\tUSABLE\tIN FLIGHT\tWAITING\tSTEP CV\tPANIC\tREBALANCE\tLAST LOOK\n", of("NODE"))
	for _, p := range l.Pools {
		fmt.Fprintf(w, "%s\t%s%s\t%d\t%d\t%d\t%.2f\t%s\t%s\t%s\n", p.Name, of(p.Node), policies(p), p.Usable, p.InFlight, p.Waiting, p.StepTimeCV, yes(p.Panic), yes(p.Rebalance.Enabled), dash(p.Rebalance.Reason))
	}
	showGaps(w, l.Nodes)
}

// policies are the pool's policy and what is measured beside it.
func policies(p api.Pool) string {
	if p.Second == "" {
		return p.Policy
	}
	return fmt.Sprintf("%s, %.0f%% %s", p.Policy, 100*p.Share, p.Second)
}

func showBackends(w io.Writer, l api.Backends) {
	of := column(l.Nodes)
	fmt.Fprintf(w, "BACKEND\tPOOL\t%sSTATE\tFOR\tIN FLIGHT\tCLUSTER\tSESSIONS\tCAP\tWEIGHT\tSPEED\tSTEP\tREASON\n", of("NODE"))
	for _, b := range l.Backends {
		state := string(b.State)
		if b.Slow {
			state += ", slow"
		}
		limit := "-"
		if b.Cap > 0 {
			limit = fmt.Sprintf("%d (%s)", b.Cap, b.CapSource)
		}
		speed := "-"
		if b.Speed > 0 {
			speed = fmt.Sprintf("%.1f/s", b.Speed)
		}
		step := "-"
		if b.StepTime > 0 {
			step = fmt.Sprintf("%.0fms", 1000*b.StepTime)
		}
		fmt.Fprintf(w, "%s\t%s\t%s%s\t%s\t%d\t%d\t%d\t%s\t%d\t%s\t%s\t%s\n", b.ID, b.Pool, of(b.Node), state, strings.TrimSuffix(ago(b.Since), " ago"),
			b.InFlight.Local, b.InFlight.Cluster, b.Sessions, limit, b.Weight, speed, step, b.Reason)
	}
	showGaps(w, l.Nodes)
}

func showStreams(w io.Writer, l api.StreamList) {
	of := column(l.Nodes)
	fmt.Fprintf(w, "STREAM\t%sPOOL\tBACKEND\tPHASE\tSTARTED\tCLIENT\tBYTES OUT\n", of("NODE"))
	for _, s := range l.Streams {
		fmt.Fprintf(w, "%s\t%s%s\t%s\t%s\t%s\t%s\t%d\n", s.ID, of(s.Node), s.Pool, dash(s.Backend), s.Phase, ago(s.Started), s.Client, s.BytesOut)
	}
	if all := has(l.Nodes); all > int64(len(l.Streams)) {
		fmt.Fprintf(w, "%d of %d streams are listed\n", len(l.Streams), all)
	}
	showGaps(w, l.Nodes)
}

// column is the cell of a column that is there only where all nodes were asked.
func column(asked []api.NodeAnswer) func(string) string {
	return func(text string) string {
		if asked == nil {
			return ""
		}
		return text + "\t"
	}
}

// has is how many streams all nodes have that answered.
func has(asked []api.NodeAnswer) (all int64) {
	for _, n := range asked {
		all += n.Count
	}
	return all
}

// ago is how long something was before now, for people.
func ago(t time.Time) string {
	return time.Since(t).Round(time.Second).String() + " ago"
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
