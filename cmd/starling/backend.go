package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
)

// newBackend is the command with an operator's verbs for backends.
func newBackend() *cobra.Command {
	c := &cobra.Command{
		Use:   "backend",
		Short: "Change a backend",
		Long: "Backend changes what a running node does with a backend. Decisions to add, remove,\n" +
			"drain and weigh outlive a restart and beat the configuration until they are reset.",
	}
	c.AddCommand(newAdd(),
		complete(change("remove ID", "Take a backend out of its pool; its streams run to their end", "removed", 1, removeBackend), backendIDs),
		verb("drain", "Give a backend nothing new; its streams run to their end", "draining"),
		verb("undrain", "Take a drain back", "takes streams again"),
		here(verb("eject", "Take a backend out for a while, as failures would, at all nodes", "ejected")),
		here(verb("admit", "Take an ejection back at once, at all nodes", "admitted")),
		verb("reset", "Take all decisions on a backend back", "as the configuration says"),
		complete(change("weight ID WEIGHT", "Change a backend's share of new streams", "weight changed", 2, weighBackend), backendIDs),
	)
	return c
}

func newPolicy() *cobra.Command {
	var want api.Policy
	c := change("policy POOL NAME", "Change how a pool's backends are chosen; running streams are left alone", "policy changed", 2,
		func(ctx context.Context, node *client.Client, args []string) error {
			want.Policy = args[1]
			return node.Post(ctx, want, "pools", args[0], "policy")
		})
	c.Long = "Policy changes how a pool's backends are chosen, for the next stream on, and holds over\n" +
		"restarts: p2c, round_robin, weighted_round_robin, random, least_connections, peak_ewma,\n" +
		"least_response_time, consistent_hash, ip_hash. NAME \"\" goes back to the configuration's."
	c.Flags().StringVar(&want.Second, "second", "", "policy `NAME` to measure beside it (default: the configuration's)")
	c.Flags().Float64Var(&want.Share, "share", 0, "share of the pool's streams, 0 to 1, that the second policy places")
	return complete(c, poolNames, oneOf(api.Policies()...))
}

func newRebalance() *cobra.Command {
	c := change("rebalance on|off POOL", "Switch the moving of sessions to even out load", "rebalancing is switched", 2,
		func(ctx context.Context, node *client.Client, args []string) error {
			if args[0] != "on" && args[0] != "off" {
				return fmt.Errorf("%q is neither on nor off", args[0])
			}
			return node.Post(ctx, api.Rebalancing{Enabled: args[0] == "on"}, "pools", args[1], "rebalance")
		})
	c.Long = "Rebalance says whether sessions of a pool are moved, between their turns, where its\n" +
		"backends are unlike in the time of a step. It holds for all nodes, and over restarts."
	return complete(c, oneOf("on", "off"), poolNames)
}

func newAdd() *cobra.Command {
	var b api.NewBackend
	var pool string
	c := change("add URL", "Add a backend to a pool", "added", 1, func(ctx context.Context, node *client.Client, args []string) (err error) {
		b.URL = args[0]
		in, err := poolOr(ctx, node, pool)
		if err != nil {
			return err
		}
		return node.Post(ctx, b, "pools", in, "backends")
	})
	c.Flags().StringVar(&pool, "pool", "", "`POOL` that it joins (default: the only one)")
	c.Flags().StringVar(&b.ID, "id", "", "`ID` of the backend (default: host:port of the URL)")
	c.Flags().IntVar(&b.Weight, "weight", 1, "share of new streams beside the others'")
	c.Flags().IntVar(&b.MaxStreams, "max-streams", 0, "streams at a time; 0: what the pool says")
	return c
}

// onlyPool is the name of the node's pool, if it has one.
func onlyPool(ctx context.Context, node *client.Client) (string, error) {
	var l api.Pools
	if err := node.Get(ctx, &l, "pools"); err != nil {
		return "", err
	}
	if len(l.Pools) != 1 {
		return "", fmt.Errorf("the node has %d pools; say which with --pool", len(l.Pools))
	}
	return l.Pools[0].Name, nil
}

func verb(name, short, done string) *cobra.Command {
	return complete(change(name+" ID", short, done, 1, func(ctx context.Context, node *client.Client, args []string) error {
		return node.Post(ctx, nil, "backends", args[0], name)
	}), backendIDs)
}

func removeBackend(ctx context.Context, node *client.Client, args []string) error {
	var l api.Backends
	if err := node.Get(ctx, &l, "backends"); err != nil {
		return err
	}
	for _, b := range l.Backends {
		if b.ID == args[0] {
			return node.Delete(ctx, "pools", b.Pool, "backends", b.ID)
		}
	}
	return fmt.Errorf("there is no backend %q; starling backends lists what there is", args[0])
}

func weighBackend(ctx context.Context, node *client.Client, args []string) error {
	weight, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("weight %q: write a number from 1 to 1000", args[1])
	}
	return node.Post(ctx, map[string]int{"weight": weight}, "backends", args[0], "weight")
}
