package main

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-lb/starling/testcluster"
)

// loseReports cuts two nodes off from each other. A third one reaches both, so
// that they stay members.
func loseReports() stage {
	return stage{
		name: "two nodes do not reach each other, and a third reaches both", alerts: []string{"StarlingReportsOld"},
		set: func(ctx context.Context) (*scene, error) {
			return start(ctx, testcluster.Options{Nodes: 3, Backends: 1}, nil)
		},
		stir: func(ctx context.Context, s *scene) error {
			s.Partition([]int{0}, []int{1})
			select {
			case <-time.After(21 * time.Second): // the film begins when reports are as old as the rule says
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		heal: func(ctx context.Context, s *scene) error {
			s.Heal()
			return s.heard(ctx)
		},
	}
}

// heard waits until all nodes have heard reports of all others: that may take some
// seconds, in which the alert is right.
func (s *scene) heard(ctx context.Context) error {
	for {
		f := newFilm(func(metric string) bool { return metric == "starling_report_age_seconds" }, s.nodes)
		if err := f.roll(ctx, 1); err != nil {
			return fmt.Errorf("wait for reports: %w", err)
		}
		oldest := 0.0
		for _, ages := range f.series {
			oldest = max(oldest, ages[0])
		}
		if len(f.series) > 0 && oldest < 5 {
			return nil
		}
	}
}
