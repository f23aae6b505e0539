package main

import (
	"fmt"
	"math"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster/sim"
)

// rivals are the policies that the wide tables compare.
func rivals() (all []named) {
	for _, n := range []named{
		{"`weighted_round_robin`", sim.Rule{Policy: backend.WeightedRoundRobin, Weights: true}},
		{"`least_connections`, weights", sim.Rule{Policy: backend.LeastConnections, Weights: true}},
		{"`peak_ewma`", sim.Rule{Policy: backend.PeakEWMA}},
		{"`p2c`, draws 2", sim.Rule{Policy: backend.StepTime, Draws: 2}},
		{"`p2c`, draws 3", sim.Rule{Policy: backend.StepTime, Draws: 3}},
		{"`p2c`", sim.Rule{Policy: backend.StepTime}},
	} {
		n.rule.Caps = sim.ByEngine
		all = append(all, n)
	}
	return all
}

// untold is p2c where nobody tells the caps.
func untold() named { return named{"`p2c`, caps not told", sim.Rule{Policy: backend.StepTime}} }

// fewer requests do where many cells are played and no goal is at stake.
const fewer = 100_000

// row is one cell of a wide table.
type row struct {
	name string
	cell sim.Cell
}

// grid plays every rule in every cell, with one seed, and shows
// slowdown p99 and, in brackets, TTFT p99 over the oracle's.
func (s *stage) grid(words, first string, rules []named, rows []row) table {
	var cells []sim.Cell
	for _, r := range rows {
		if len(r.cell.Engines) <= 64 {
			r.cell.Load.Requests = fewer // a thousand engines need all to be busy
		}
		for _, n := range rules {
			r.cell.Rule = n.rule
			cells = append(cells, s.cell(r.cell))
		}
	}
	played := sim.Play(cells, 1)
	t := table{words: words, head: []string{first}}
	for _, n := range rules {
		t.head = append(t.head, n.name)
	}
	for i, r := range rows {
		line := []string{r.name}
		for j := range rules {
			p := played[i*len(rules)+j]
			line = append(line, fmt.Sprintf("%s (%s)", times(p, slow99), times(p, ttft99)))
		}
		t.add(line...)
	}
	return t
}

func peers(s *stage) (table, error) {
	var rows []row
	for _, c := range []struct {
		proxies, engines int
		rho              float64
	}{{1, 64, .85}, {16, 64, .85}, {64, 64, .85}, {256, 64, .85}, {16, 4, .85}, {16, 16, .85}, {16, 1000, .85}, {16, 64, .5}, {16, 64, .7}, {16, 64, .95}, {64, 16, .95}} {
		rows = append(rows, row{fmt.Sprintf("%d, %d, %v", c.proxies, c.engines, c.rho), sim.Sized(c.proxies, c.engines, c.rho)})
	}
	return s.grid("By number of proxies, of engines, and load: slowdown p99 over the oracle's, in brackets TTFT p99; one seed:",
		"proxies, engines, rho", append(rivals(), untold()), rows), nil
}

func ages(s *stage) (table, error) {
	var rules []named
	for _, d := range []int{2, 3, 4, 8} {
		rules = append(rules, named{fmt.Sprintf("draws %d", d), sim.Rule{Policy: backend.StepTime, Draws: d, Caps: sim.ByEngine}})
	}
	rules = append(rules, named{"draws auto", sim.Rule{Policy: backend.StepTime, Caps: sim.ByEngine}})
	var rows []row
	for _, a := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second} {
		c := sim.Reference()
		c.Age = a
		rows = append(rows, row{a.String(), c})
	}
	return s.grid("`p2c` by the mean age of the other proxies' reports, and by how many engines a pick looks at:", "age", rules, rows), nil
}

func robust(s *stage) (table, error) {
	vary := func(name string, change func(*sim.Cell)) row {
		c := sim.Reference()
		change(&c)
		return row{name, c}
	}
	engines := func(of func(float64) sim.Engine, speeds ...float64) func(*sim.Cell) {
		return func(c *sim.Cell) { c.Engines = sim.Fleet(64, of, speeds...) }
	}
	knee := func(k float64) func(float64) sim.Engine {
		return func(speed float64) sim.Engine {
			e := sim.Batching(speed)
			e.Knee = k
			return e
		}
	}
	rows := []row{
		vary("like engines", engines(sim.Batching, 1)),
		vary("very unlike: 1, 1, 4, .25", engines(sim.Batching, 1, 1, 4, .25)),
		vary("caps grow with speed", engines(func(speed float64) sim.Engine {
			e := sim.Batching(speed)
			e.Slots = int(math.Round(64 * speed))
			return e
		}, 1, 1, 2, .5)),
		vary("knee 8, taken for 32", engines(knee(8), 1, 1, 2, .5)),
		vary("knee 128, taken for 32", engines(knee(128), 1, 1, 2, .5)),
		vary("heavier sizes, sigma 2", func(c *sim.Cell) { c.Load.Sigma = 2 }),
		vary("FIFO engines of 8 slots", engines(sim.FIFO, 1, 1, 2, .5)),
	}
	return s.grid("In other worlds, one seed:", "case", append(rivals(), untold()), rows), nil
}

func traces(s *stage) (table, error) {
	rules := append(rivals(), untold(),
		named{"`least_response_time`", sim.Rule{Policy: backend.LeastResponseTime, Caps: sim.ByEngine}},
		named{"`round_robin`", sim.Rule{Policy: backend.RoundRobin, Caps: sim.ByEngine}})
	rows := []row{{"chat", sim.Traced(sim.Chat)}, {"code completion", sim.Traced(sim.Code)}}
	return s.grid("Real arrivals and sizes (Azure 2023), scaled to rho 0.85:", "trace", rules, rows), nil
}

func faulted(s *stage) (table, error) {
	t := table{
		words: fmt.Sprintf("An engine of speed 2 of 64 fails for 60 s at rho 0.7; a quarter of the engines joins, at half speed for 15 s. Of the requests that come in that time, medians of %d seeds:", s.seeds),
		head:  []string{"policy", "gray (a tenth of its speed): its share %", "slowdown p99 x", "p99.9 x", "dead (refuses): attempts %", "failed %", "frozen: slowdown p99 x", "p99.9 x", "join: p99 x"},
	}
	rules := append([]named{{"`round_robin`", sim.Rule{Policy: backend.RoundRobin}}, {"`least_connections`", sim.Rule{Policy: backend.LeastConnections}}}, rivals()...)
	var cells []sim.Cell
	for _, r := range rules {
		for _, c := range []sim.Cell{sim.Faulty(sim.Gray, sim.Fast), sim.Faulty(sim.Dead, sim.Fast), sim.Faulty(sim.Frozen, sim.Fast), sim.Joining()} {
			cells = append(cells, told(c, r.rule, sim.ByEngine))
		}
	}
	played := sim.Play(cells, s.seeds)
	share := func(f sim.Figures) float64 { return 100 * f.Attempts[sim.Fast] }
	for i, r := range rules {
		gray, dead, frozen, join := played[4*i], played[4*i+1], played[4*i+2], played[4*i+3]
		t.add(r.name, of(gray, share), times(gray, slow99), times(gray, slow999), of(dead, share), of(dead, failed),
			times(frozen, slow99), times(frozen, slow999), times(join, slow99))
	}
	return t, nil
}
