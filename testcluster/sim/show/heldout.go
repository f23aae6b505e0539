package main

import (
	"fmt"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster/sim"
)

// heldOut are cells that no constant of the product was chosen by: other seeds,
// sizes, speeds, loads, caps and requests than everywhere else.
func heldOut() []row {
	vary := func(name string, change func(*sim.Cell)) row {
		c := sim.Reference()
		c.Seed, c.Load.Requests = 101, fewer
		change(&c)
		return row{name, c}
	}
	engines := func(slots int, knee float64, speeds ...float64) []sim.Engine {
		return sim.Fleet(48, func(speed float64) sim.Engine {
			return sim.Engine{Speed: speed, Knee: knee, Slots: slots, Queue: slots}
		}, speeds...)
	}
	load := func(rho, sigma, prompt float64) sim.Load {
		return sim.Load{Requests: fewer, Rho: rho, Sigma: sigma, Prompt: prompt}
	}
	return []row{
		vary("the reference cell, other seeds", func(*sim.Cell) {}),
		vary("24 proxies, 40 engines of 1, 0.8, 0.6, 0.4, rho 0.9", func(c *sim.Cell) {
			c.Proxies, c.Engines, c.Load.Rho = 24, sim.Fleet(40, sim.Batching, 1, .8, .6, .4), .9
		}),
		vary("6 proxies, 48 engines of 1, 3, 0.75, rho 0.75", func(c *sim.Cell) {
			c.Proxies, c.Engines, c.Load.Rho = 6, engines(64, 32, 1, 3, .75), .75
		}),
		vary("24 slots each, rho 0.8", func(c *sim.Cell) { c.Engines, c.Load.Rho = engines(24, 32, 1, 1, 2, .5), .8 }),
		vary("160 slots each, rho 0.8", func(c *sim.Cell) { c.Engines, c.Load.Rho = engines(160, 32, 1, 1, 2, .5), .8 }),
		vary("knee 16, taken for 32", func(c *sim.Cell) { c.Engines = engines(64, 16, 1, 1.5, .5) }),
		vary("prompts of 100 tokens", func(c *sim.Cell) { c.Load = load(.85, 0, 100) }),
		vary("prompts of 4,000 tokens", func(c *sim.Cell) { c.Load = load(.85, 0, 4000) }),
		vary("answers alike, sigma 0.6, rho 0.9", func(c *sim.Cell) { c.Load = load(.9, .6, 0) }),
		vary("sigma 1.6, rho 0.6", func(c *sim.Cell) { c.Load = load(.6, 1.6, 0) }),
		vary("chat trace, rho 0.7", func(c *sim.Cell) { c.Load = sim.Traced(sim.Chat).Load; c.Load.Rho = .7 }),
		vary("code trace, rho 0.7", func(c *sim.Cell) { c.Load = sim.Traced(sim.Code).Load; c.Load.Rho = .7 }),
	}
}

// heldSeeds is how many seeds the held-out cells are played with.
const heldSeeds = 3

func heldout(s *stage) (table, error) {
	t := table{
		words: fmt.Sprintf("`p2c` over the oracle, medians of %d seeds, in brackets the worst:", heldSeeds),
		head:  []string{"cell", "slowdown p99", "p99.9", "TTFT p99", "caps not told: slowdown p99", "p99.9", "TTFT p99"},
	}
	rows := heldOut()
	var cells []sim.Cell
	for _, r := range rows {
		for _, caps := range []sim.Caps{sim.ByEngine, sim.Untold} {
			cells = append(cells, told(s.cell(r.cell), sim.Rule{Policy: backend.StepTime}, caps))
		}
	}
	played := sim.Play(cells, heldSeeds)
	for i, r := range rows {
		line := []string{r.name}
		for _, p := range played[2*i : 2*i+2] {
			for _, f := range []figure{slow99, slow999, ttft99} {
				over := func(p sim.Pair) float64 { return f(p.Rule) / f(p.Oracle) }
				line = append(line, fmt.Sprintf("%s (%s)", num(p.Median(over)), num(p.Worst(over))))
			}
		}
		t.add(line...)
	}
	return t, nil
}
