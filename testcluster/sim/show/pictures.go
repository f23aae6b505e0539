package main

import (
	"fmt"
	"math"
	"path/filepath"

	"gonum.org/v1/plot/plotter"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster/sim"
)

// line is one curve.
type line struct {
	name   string
	points plotter.XYs
}

// picture is curves in one frame.
type picture struct {
	file, title, x, y string
	lines             []line
	xs, ys            []float64 // where the axes have figures
	logX, logY        bool
	dots              bool // the points are marked: there are few
}

// pictures draws what a table tells badly.
func pictures(s *stage) (table, error) {
	rules := []named{
		{"round_robin", sim.Rule{Policy: backend.RoundRobin}},
		{"weighted_round_robin", sim.Rule{Policy: backend.WeightedRoundRobin, Weights: true}},
		{"least_connections, weights", sim.Rule{Policy: backend.LeastConnections, Weights: true}},
		{"peak_ewma", sim.Rule{Policy: backend.PeakEWMA}},
		{"p2c", sim.Rule{Policy: backend.StepTime}},
		{"oracle", sim.Rule{Policy: sim.Oracle}},
	}
	var words string
	for _, p := range []picture{s.byLoad(rules), s.bySize(rules), s.tail(rules), s.gray(rules)} {
		words += fmt.Sprintf("![%s](img/%s)\n", p.title, p.file)
		if s.docs == "" {
			continue
		}
		if err := p.draw(filepath.Join(s.docs, "img")); err != nil {
			return table{}, fmt.Errorf("picture %s: %w", p.file, err)
		}
	}
	return table{words: words}, nil
}

// curves plays the rules in every cell and draws one figure over x.
func (s *stage) curves(p picture, rules []named, xs []float64, cell func(x float64) sim.Cell, f figure) picture {
	var cells []sim.Cell
	for _, r := range rules {
		for _, x := range xs {
			c := told(cell(x), r.rule, sim.ByEngine)
			c.Load.Requests = fewer
			cells = append(cells, s.cell(c))
		}
	}
	played := sim.Play(cells, 1)
	for i, r := range rules {
		l := line{name: r.name}
		for j, x := range xs {
			l.points = append(l.points, plotter.XY{X: x, Y: f(played[i*len(xs)+j][0].Rule)})
		}
		p.lines = append(p.lines, l)
	}
	p.dots = true
	return p
}

func (s *stage) byLoad(rules []named) picture {
	p := picture{file: "balance-load.svg", title: "Slowdown p99 by load", x: "rho", y: "slowdown p99", logY: true,
		xs: []float64{.3, .4, .5, .6, .7, .8, .9}, ys: []float64{1, 2, 3, 5, 10}}
	return s.curves(p, rules, []float64{.3, .4, .5, .6, .7, .8, .85, .9, .95}, func(rho float64) sim.Cell { return sim.Sized(16, 64, rho) }, slow99)
}

func (s *stage) bySize(rules []named) picture {
	p := picture{file: "balance-proxies.svg", title: "Slowdown p99 by number of proxies", x: "proxies", y: "slowdown p99", logX: true, logY: true,
		xs: []float64{1, 4, 16, 64, 256}, ys: []float64{2, 3, 5, 10}}
	return s.curves(p, rules, []float64{1, 4, 16, 64, 256}, func(n float64) sim.Cell { return sim.Sized(int(n), 64, .85) }, slow99)
}

// tail shows how many requests are slower than so much.
func (s *stage) tail(rules []named) picture {
	p := picture{file: "balance-tail.svg", title: "Share of requests that are slower, reference cell", x: "slowdown", y: "share of requests", logX: true, logY: true,
		xs: []float64{1, 2, 3, 5, 10, 20}, ys: []float64{1e-4, 1e-3, .01, .1, 1}}
	for _, r := range rules {
		c := told(sim.Reference(), r.rule, sim.ByEngine)
		c.Load.Requests = fewer
		slow := sim.Look(s.cell(c)).Slowdown
		l := line{name: r.name}
		for share := 1.0; share > 1e-4; share *= 0.9 {
			at := min(int((1-share)*float64(len(slow))), len(slow)-1)
			l.points = append(l.points, plotter.XY{X: slow[at], Y: share})
		}
		p.lines = append(p.lines, l)
	}
	return p
}

// graySeeds is how many runs gray adds up: one has few requests in a step.
const graySeeds = 8

// gray shows how streams leave an engine that has become ten times slower.
func (s *stage) gray(rules []named) picture {
	p := picture{file: "balance-gray.svg", title: "An engine of 64, twice as fast as most, runs at a tenth of its speed from 0 to 60 s", x: "seconds", y: "its share of the requests, %",
		xs: []float64{-30, -15, 0, 15, 30, 45, 60, 75}, ys: []float64{0, 2, 4, 6, 8, 10}}
	const step, before, after = 5.0, 30.0, 15.0
	for _, r := range rules {
		l := line{name: r.name}
		c := told(sim.Faulty(sim.Gray, sim.Fast), r.rule, sim.ByEngine)
		bins := map[int][2]float64{} // all requests, and those to the engine
		for range graySeeds {
			for _, pick := range sim.Look(c).Picks {
				at := int(math.Floor((pick.At - c.Faults[0].From) / step))
				n := bins[at]
				n[0]++
				if pick.Engine == sim.Fast {
					n[1]++
				}
				bins[at] = n
			}
			c.Seed++
		}
		for at := int(-before / step); at < int((c.Faults[0].To-c.Faults[0].From+after)/step); at++ {
			if n := bins[at]; n[0] > 0 {
				l.points = append(l.points, plotter.XY{X: (float64(at) + 0.5) * step, Y: 100 * n[1] / n[0]})
			}
		}
		p.lines = append(p.lines, l)
	}
	return p
}
