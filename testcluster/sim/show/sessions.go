package main

import (
	"fmt"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster/sim"
)

// sessions shows what stickiness is worth, and what moves are.
func sessions(s *stage) (table, error) {
	t := table{
		words: fmt.Sprintf("Sessions; a server that has not the context reads it again. At rest: the reference cell, %d requests, 6 turns each, 10 s apart. "+
			"Join: a quarter of 64 engines is new, rho 0.65, 15 turns, some sessions far busier than others; five minutes from then on. Medians of seeds: %d.", fewer, s.seeds),
		head: []string{"sessions", "at rest: slowdown p99", "p99.9", "TTFT p99 s", "CV of step time", "moves per 100 turns", "join: requests to the new %", "slowdown p99", "p99.9", "moves per 100 turns"},
	}
	type way struct {
		name  string
		loose bool
		heavy bool
		moves *backend.RebalanceConfig
	}
	with := func(name string, heavy bool, threshold, share float64) way {
		c := backend.DefaultRebalance()
		c.Threshold, c.Share = threshold, share
		return way{name: name, heavy: heavy, moves: &c}
	}
	ways := []way{
		{name: "every turn placed anew", loose: true},
		{name: "kept, never moved"},
		with("**as it is**: the planner (CV of step time over 0.3, a fifth each 5 s), and heavy turns leave", true, 0.3, 0.2),
		{name: "heavy turns leave, no planner", heavy: true},
		with("the planner, no heavy turns", false, 0.3, 0.2),
		with("the planner alone, all of the excess each 5 s", false, 0.3, 1),
		with("CV over 0.2, a fifth", false, 0.2, 0.2),
		with("CV over 0.1, a fifth", false, 0.1, 0.2),
	}
	var cells []sim.Cell
	for _, w := range ways {
		for _, c := range []sim.Cell{sim.Talking(w.moves), sim.TalkingJoin(w.moves, 16, 64)} {
			c.Sessions.Loose, c.Sessions.Heavy = w.loose, w.heavy
			cells = append(cells, c)
		}
	}
	played := sim.Alone(cells, s.seeds)
	for i, w := range ways {
		rest, join := played[2*i], played[2*i+1]
		t.add(w.name, mid(rest, p99), mid(rest, p999), mid(rest, ttft), mid(rest, cv), mid(rest, moved),
			mid(join, sim.Figures.NewShare), mid(join, p99), mid(join, p999), mid(join, moved))
	}
	return t, nil
}

func p99(f sim.Figures) float64   { return f.Slowdown.P99 }
func p999(f sim.Figures) float64  { return f.Slowdown.P999 }
func ttft(f sim.Figures) float64  { return f.TTFT.P99 }
func cv(f sim.Figures) float64    { return f.StepCV }
func moved(f sim.Figures) float64 { return f.Moves }

// mid is the median over the seeds.
func mid(all []sim.Figures, of func(sim.Figures) float64) string {
	var series sim.Series
	for _, f := range all {
		series = append(series, sim.Pair{Rule: f})
	}
	return num(series.Median(func(p sim.Pair) float64 { return of(p.Rule) }))
}
