package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/starling-lb/starling/testcluster/sim"
)

// What a picture measures, in points but for its own size.
const (
	wide, high   = 21 * vg.Centimeter, 11 * vg.Centimeter
	margin       = 8
	legendStrip  = 158 // right of the curves: over them it would hide some
	legendIndent = 12
)

// draw writes the picture as SVG.
func (p *picture) draw(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	frame, legend := p.frame(), plot.NewLegend()
	legend.Top, legend.Left, legend.Padding, legend.TextStyle.Font = true, true, 5, sans(10)
	for i, l := range p.lines {
		if err := p.curve(frame, &legend, i, l); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	sheet := vgsvg.New(wide, high)
	all := draw.New(sheet)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	frame.Draw(draw.Crop(all, margin, -legendStrip, margin, -margin))
	legend.Draw(draw.Crop(all, wide-legendStrip+legendIndent, 0, 0, -4*margin))
	var text bytes.Buffer
	if _, err := sheet.WriteTo(&text); err != nil {
		return err
	}
	// Where the font is not at hand any other without serifs will do.
	svg := bytes.ReplaceAll(text.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Helvetica,Arial,sans-serif;"))
	return os.WriteFile(filepath.Join(dir, p.file), svg, 0o644)
}

// frame is the axes and the grid.
func (p *picture) frame() *plot.Plot {
	frame := plot.New()
	frame.Title.Text, frame.X.Label.Text, frame.Y.Label.Text = p.title, p.x, p.y
	frame.Title.TextStyle.Font, frame.Title.Padding = sans(12), margin
	for _, a := range []struct {
		axis *plot.Axis
		at   []float64
		log  bool
	}{{&frame.X, p.xs, p.logX}, {&frame.Y, p.ys, p.logY}} {
		a.axis.Label.TextStyle.Font, a.axis.Label.Padding, a.axis.Tick.Label.Font = sans(10), 4, sans(9)
		ticks := plot.ConstantTicks{}
		for _, v := range a.at {
			ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%g", v)})
			a.axis.Min, a.axis.Max = min(a.axis.Min, v), max(a.axis.Max, v)
		}
		a.axis.Tick.Marker = ticks
		if a.log {
			a.axis.Scale = plot.LogScale{}
		}
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{222}, color.Gray{222}
	frame.Add(grid)
	return frame
}

func (p *picture) curve(frame *plot.Plot, legend *plot.Legend, i int, l line) error {
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
	legend.Add(l.name, curve)
	if p.dots {
		points.Color, points.Shape, points.Radius = curve.Color, draw.CircleGlyph{}, vg.Points(2)
		frame.Add(points)
	}
	return nil
}

func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// ink is colours that the colour-blind can tell apart (Okabe and Ito 2008).
func ink() []color.Color {
	return []color.Color{
		color.RGBA{213, 94, 0, 255}, color.RGBA{86, 180, 233, 255}, color.RGBA{0, 114, 178, 255},
		color.RGBA{204, 121, 167, 255}, color.RGBA{0, 158, 115, 255}, color.RGBA{0, 0, 0, 255},
	}
}
