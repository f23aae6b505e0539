package main

import (
	"fmt"

	"github.com/starling-lb/starling/testcluster/sim"
)

// goals holds the product's p2c to what it has to reach.
func goals(s *stage) (table, error) {
	var list []sim.Goal
	var cells []sim.Cell
	for _, g := range sim.Goals() {
		if !s.quick || len(g.Cell.Engines) <= 64 { // a thousand need many requests until they are busy
			list, cells = append(list, g), append(cells, s.cell(g.Cell))
		}
	}
	for _, c := range sim.Flat() {
		cells = append(cells, s.cell(c))
	}
	played := sim.Play(cells, s.seeds)
	t := table{
		words: fmt.Sprintf("What `p2c` has to reach, medians of %d seeds:", s.seeds),
		head:  []string{"goal", "measured", "at most", "met"},
	}
	verdict := func(name string, got, most float64, unit string) {
		met := "yes"
		if !(got <= most) {
			met, s.missed = "**no**", true
		}
		t.add(name, fmt.Sprintf("%.3f %s", got, unit), fmt.Sprintf("%.4g", most), met)
	}
	for i, g := range list {
		verdict(g.Name, played[i].Median(g.Of), g.Most, g.Unit)
	}
	verdict("1, 4, 16, 64, 256 proxies, slowdown p99", sim.Spread(played[len(list):]), sim.FlatMost, "largest / smallest")
	return t, nil
}
