// Command gossip measures clusters of gossiping nodes in one process over
// loopback: how soon all know all, how soon a crash is seen, how soon a change
// of load is known, and what it costs in bytes. It must not know anything of
// gossip but what package gossip tells everybody.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// goals are what issue and design ask of every size.
const goals = "| goal | | 1000 | 3500 | 300 | | 25.0 at 64 × 64 |"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, log io.Writer) int {
	f := flag.NewFlagSet("gossip", flag.ContinueOnError)
	f.SetOutput(log)
	sizes := f.String("nodes", "3,8,32", "sizes of clusters, with commas")
	rounds := f.Int("rounds", 3, "clusters of each size")
	load := f.Duration("load", 20*time.Second, "how long the load of each cluster is measured")
	if err := f.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	fmt.Fprintf(out, "gossip: %d rounds a size, all nodes in one process over loopback, %d CPUs, %s, encrypted\n", *rounds, runtime.NumCPU(), runtime.Version())
	fmt.Fprintf(out, "load: %d backends, streams of %v on average; bytes at %.0f starts/s in all: payloads of UDP and TCP, and with 28 bytes a packet for headers, all that came, what had come before by another way as well; changes are timed at a 64th of that at each node\n\n", backends, meanStream, startRate)
	fmt.Fprintln(out, "| nodes | round | all know all, ms | crash seen by all, ms | a change is known: p50 / p99, ms | packets/s in per node | kB/s in per node, payload / with headers |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
	for text := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 || n > 64 {
			fmt.Fprintf(log, "gossip: -nodes %q: write numbers from 2 to 64\n", text)
			return 2
		}
		for i := range *rounds {
			r, err := measure(ctx, n, *load)
			if err != nil {
				fmt.Fprintln(log, "gossip:", err)
				return 1
			}
			fmt.Fprintf(out, "| %d | %d | %d | %d | %d / %d | %.1f | %.1f / %.1f |\n", n, i+1, ms(r.join), ms(r.crash), ms(part(r.spread, 0.5)), ms(part(r.spread, 0.99)), r.packets, r.payload/1000, r.wire/1000)
		}
	}
	fmt.Fprintln(out, goals)
	fmt.Fprintf(out, "\ncomputed for 64 nodes and 64 backends: %.1f kB/s in per node with headers\n", computed(64, 64)/1000)
	if err := stretch(ctx, out, *load/2); err != nil {
		fmt.Fprintln(log, "gossip:", err)
		return 1
	}
	return 0
}

func ms(d time.Duration) int64 { return d.Round(time.Millisecond).Milliseconds() }

func part(list []time.Duration, share float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[min(int(share*float64(len(list))), len(list)-1)]
}

// computed is the arithmetic behind the budget, in bytes per second into one
// node: packets of changes, each some time after the one before and, if nothing has
// changed by then, at the look after the next change, their entries, empty ones
// after a second's silence, full reports, pings and exchanges.
func computed(nodes, backends float64) float64 {
	const (
		head   = 28 + 2 + 28 + 15 // IP and UDP, frame, seal, chunk
		entry  = 9                // of a backend at which streams run
		look   = 0.05             // s
		tail   = 1.0              // s of silence
		full   = 10.0             // s
		others = 800 + 1200       // pings with what they carry; an exchange each half minute, both ways
	)
	peers := nodes - 1
	own := 2 * startRate / nodes // starts and ends at one node, per second
	gap := min(1, max(0.15, 0.004*nodes)*max(1, own*1.5/10))
	packets := 1 / (gap + exp(-own*gap)*(1/own+look/2))
	packets += packets * exp(-own*tail)
	entries := own * 1.5 // and first bytes that come alone
	busy := backends * (1 - exp(-startRate*meanStream.Seconds()/nodes/backends))
	return peers*(packets*head+entries*entry+(head+busy*entry)/full) + others
}
