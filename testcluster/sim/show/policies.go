package main

import (
	"fmt"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster/sim"
)

// named is a rule of placement under its name in the tables.
type named struct {
	name string
	rule sim.Rule
}

// everyPolicy is the product's policies, those that heed weights with the
// speeds told as weights.
func everyPolicy() (all []named) {
	weighted := map[string]bool{backend.WeightedRoundRobin: true, backend.Random: true, backend.LeastConnections: true, backend.ConsistentHash: true}
	for _, p := range backend.Policies() {
		all = append(all, named{"`" + p + "`", sim.Rule{Policy: p}})
		if weighted[p] {
			all = append(all, named{"`" + p + "`, weights", sim.Rule{Policy: p, Weights: true}})
		}
	}
	return all
}

func slow50(f sim.Figures) float64   { return f.Slowdown.P50 }
func slow95(f sim.Figures) float64   { return f.Slowdown.P95 }
func slow99(f sim.Figures) float64   { return f.Slowdown.P99 }
func slow999(f sim.Figures) float64  { return f.Slowdown.P999 }
func ttft99(f sim.Figures) float64   { return f.TTFT.P99 }
func stepCV(f sim.Figures) float64   { return f.StepCV }
func loadCV(f sim.Figures) float64   { return f.LoadCV }
func rejected(f sim.Figures) float64 { return 100 * f.Rejected }
func failed(f sim.Figures) float64   { return 100 * f.Failed }

type figure = func(sim.Figures) float64

// of is the median of a rule's own figure, times that of it beside the oracle's.
func of(s sim.Series, f figure) string {
	return num(s.Median(func(p sim.Pair) float64 { return f(p.Rule) }))
}

func times(s sim.Series, f figure) string {
	return num(s.Median(func(p sim.Pair) float64 { return f(p.Rule) / f(p.Oracle) }))
}

// told is the cell with what the configuration tells of the engines.
func told(c sim.Cell, r sim.Rule, caps sim.Caps) sim.Cell {
	c.Rule = r
	c.Rule.Caps = caps
	return c
}

// policies is the table that has all of them.
func policies(s *stage) (table, error) {
	rules := append(everyPolicy(),
		named{"`p2c`, draws 2", sim.Rule{Policy: backend.StepTime, Draws: 2}},
		named{"`p2c`, draws 3", sim.Rule{Policy: backend.StepTime, Draws: 3}},
		named{"oracle", sim.Rule{Policy: sim.Oracle}})
	reference := sim.Reference()
	reference.Load.Requests = fewer
	fifo := reference
	fifo.Engines = sim.Fleet(64, sim.FIFO, 1, 1, 2, 0.5)
	var cells []sim.Cell
	for _, r := range rules {
		cells = append(cells, s.cell(told(reference, r.rule, sim.ByEngine)), s.cell(told(reference, r.rule, sim.Untold)), s.cell(told(fifo, r.rule, sim.ByEngine)))
	}
	played := sim.Play(cells, s.seeds)
	t := table{
		words: fmt.Sprintf("All policies in the reference cell with 100,000 requests, medians of %d seeds; \"x\" is the figure over the oracle's:", s.seeds),
		head: []string{"policy", "slowdown p50", "p95", "p99", "p99.9", "p99 x", "TTFT p99 s", "x", "CV of step time", "of load/speed", "no place %",
			"caps not told: p99 x", "TTFT p99 x", "no place %", "FIFO: p99 x", "TTFT p99 x"},
	}
	for i, r := range rules {
		known, unknown, fifo := played[3*i], played[3*i+1], played[3*i+2]
		t.add(r.name, of(known, slow50), of(known, slow95), of(known, slow99), of(known, slow999), times(known, slow99), of(known, ttft99), times(known, ttft99),
			of(known, stepCV), of(known, loadCV), of(known, rejected),
			times(unknown, slow99), times(unknown, ttft99), of(unknown, rejected), times(fifo, slow99), times(fifo, ttft99))
	}
	return t, nil
}
