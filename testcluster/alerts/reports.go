package main

import (
	"context"
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
		heal: func(_ context.Context, s *scene) error {
			s.Heal()
			return nil
		},
	}
}
