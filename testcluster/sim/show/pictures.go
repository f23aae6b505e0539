package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

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
	logX, logY        bool
	dots              bool // the points are marked: there are few
	right             bool // the legend stands there: the curves come down from the left
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
	p := picture{file: "balance-load.svg", title: "Slowdown p99 by load", x: "rho", y: "slowdown p99", logY: true}
	return s.curves(p, rules, []float64{.3, .4, .5, .6, .7, .8, .85, .9, .95}, func(rho float64) sim.Cell { return sim.Sized(16, 64, rho) }, slow99)
}

func (s *stage) bySize(rules []named) picture {
	p := picture{file: "balance-proxies.svg", title: "Slowdown p99 by number of proxies", x: "proxies", y: "slowdown p99", logX: true, logY: true}
	return s.curves(p, rules, []float64{1, 4, 16, 64, 256}, func(n float64) sim.Cell { return sim.Sized(int(n), 64, .85) }, slow99)
}

// tail shows how many requests are slower than so much.
func (s *stage) tail(rules []named) picture {
	p := picture{file: "balance-tail.svg", title: "Share of requests that are slower, reference cell", x: "slowdown", y: "share of requests", logX: true, logY: true, right: true}
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

// gray shows how streams leave an engine that has become ten times slower.
func (s *stage) gray(rules []named) picture {
	p := picture{file: "balance-gray.svg", title: "An engine of 64, twice as fast as most, runs at a tenth of its speed from 0 s to 60 s", x: "seconds", y: "its share of the requests, %", right: true}
	const step, before, after = 3.0, 30.0, 15.0
	for _, r := range rules {
		l := line{name: r.name}
		c := told(sim.Faulty(sim.Gray, sim.Fast), r.rule, sim.ByEngine)
		bins := map[int][2]float64{} // all requests, and those to the engine
		for _, pick := range sim.Look(c).Picks {
			at := int(math.Floor((pick.At - c.Faults[0].From) / step))
			n := bins[at]
			n[0]++
			if pick.Engine == sim.Fast {
				n[1]++
			}
			bins[at] = n
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

// draw writes the picture as SVG.
func (p *picture) draw(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	frame := plot.New()
	frame.Title.Text, frame.X.Label.Text, frame.Y.Label.Text = p.title, p.x, p.y
	frame.Legend.Top, frame.Legend.Left = true, !p.right
	frame.Add(plotter.NewGrid())
	if p.logX {
		frame.X.Scale, frame.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	if p.logY {
		frame.Y.Scale, frame.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	for i, l := range p.lines {
		if err := p.curve(frame, i, l); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	if !p.right {
		frame.Y.Max *= 3 // room for the legend, on a logarithmic axis
	}
	return frame.Save(18*vg.Centimeter, 12*vg.Centimeter, filepath.Join(dir, p.file))
}

func (p *picture) curve(frame *plot.Plot, i int, l line) error {
	curve, points, err := plotter.NewLinePoints(l.points)
	if err != nil {
		return err
	}
	curve.Color = ink()[i%len(ink())]
	curve.Width = vg.Points(1.5)
	if l.name == sim.Oracle {
		curve.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	frame.Add(curve)
	frame.Legend.Add(l.name, curve)
	if p.dots {
		points.Color, points.Shape, points.Radius = curve.Color, draw.CircleGlyph{}, vg.Points(2)
		frame.Add(points)
	}
	return nil
}

// ink is colours that the colour-blind can tell apart (Okabe and Ito 2008).
func ink() []color.Color {
	return []color.Color{
		color.RGBA{213, 94, 0, 255}, color.RGBA{86, 180, 233, 255}, color.RGBA{0, 114, 178, 255},
		color.RGBA{204, 121, 167, 255}, color.RGBA{0, 158, 115, 255}, color.RGBA{0, 0, 0, 255},
	}
}
