package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// stretchNodes is enough to see what a rate of changes does to a node.
const stretchNodes = 4

// stretch shows how often nodes speak on which more and more changes.
func stretch(ctx context.Context, out io.Writer, lasts time.Duration) (err error) {
	fmt.Fprintf(out, "\n%d nodes on each of which so many entries change per second, of %d:\n\n", stretchNodes, backends)
	fmt.Fprintln(out, "| changed entries/s per node | changes go out each, ms | packets/s in per node | kB/s in per node, with headers |")
	fmt.Fprintln(out, "|---|---|---|---|")
	all, err := cluster(ctx, stretchNodes)
	defer func() { err = errors.Join(err, stop(all)) }()
	if err != nil {
		return err
	}
	for _, rate := range []int{2, 5, 10, 20, 40, 80} {
		if err := churn(ctx, all, rate, settle, func() error { return nil }); err != nil {
			return err
		}
		start, bytes, packets, each := time.Now(), total(all, "bytes"), total(all, "packets"), 0.0
		err := churn(ctx, all, rate, lasts, func() error {
			each = interval(all)
			return nil
		})
		if err != nil {
			return err
		}
		per := time.Since(start).Seconds() * stretchNodes
		bytes, packets = total(all, "bytes")-bytes, total(all, "packets")-packets
		fmt.Fprintf(out, "| %d | %.0f | %.1f | %.1f |\n", rate, each*1000, packets/per, (bytes+28*packets)/per/1000)
	}
	return nil
}

// churn changes entries at every node at a rate, for some time, and has
// something measured at its end.
func churn(ctx context.Context, all []*member, rate int, lasts time.Duration, measure func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var changing sync.WaitGroup
	defer changing.Wait()
	defer cancel()
	for _, m := range all {
		changing.Go(func() {
			tick := time.NewTicker(time.Second / time.Duration(rate))
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-tick.C:
					m.change(i%backends, func(r *backend.Report) { r.InFlight = 1 + r.InFlight%100 })
				case <-ctx.Done():
					return
				}
			}
		})
	}
	if err := pause(ctx, lasts); err != nil {
		return err
	}
	return measure()
}

// interval is how often nodes tell what changed, on average, in seconds.
func interval(all []*member) (sum float64) {
	for _, m := range all {
		families, err := m.registry.Gather()
		if err != nil {
			panic("BUG: " + err.Error())
		}
		for _, f := range families {
			if f.GetName() == "starling_report_interval_seconds" {
				sum += f.GetMetric()[0].GetGauge().GetValue()
			}
		}
	}
	return sum / float64(len(all))
}
