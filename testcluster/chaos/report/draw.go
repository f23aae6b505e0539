package report

import (
	"fmt"
	"html"
	"math"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// The picture, in units of its view box.
const (
	width  = 1120.0
	left   = 96.0 // for the names of rows
	right  = 14.0
	lane   = 17.0 // a fault
	gap    = 26.0 // above each panel, for its title
	lanes  = 16   // of faults at once, at most
	strips = 24   // of nodes, at most
)

// canvas is a picture that grows downwards.
type canvas struct {
	b      strings.Builder
	behind strings.Builder // what stands behind it
	began  time.Time
	length time.Duration
	y      float64
}

func (c *canvas) x(d time.Duration) float64 {
	return left + (width-left-right)*min(1, max(0, d.Seconds()/c.length.Seconds()))
}

func (c *canvas) put(format string, args ...any) { fmt.Fprintf(&c.b, format, args...) }

func (c *canvas) text(class string, x, y float64, text string) {
	c.put(`<text class="%s" x="%.1f" y="%.1f">%s</text>`, class, x, y, html.EscapeString(text))
}

// draw is the whole picture as SVG.
func draw(run *history.Run) string {
	f := count(run)
	c := &canvas{began: run.Began, length: max(lasted(run), time.Second)}
	c.faults(run)
	c.curve("turns served whole, per second", 84, f, []line{{"area", f.whole, "whole"}})
	c.stack("turns that failed, per second", 56, f, []line{{"broken", f.broken, "broken"}, {"refused", f.refused, "refused"}, {"away", f.away, "nobody let them in"}})
	c.logs("time to the first byte", 96, f, []line{{"p99", f.p99, "p99"}, {"p50", f.p50, "p50"}})
	c.leaders(run)
	c.stack("bindings moved, per second", 44, f, []line{{"moved", f.moves, "moved"}})
	c.axis(run)
	return fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="time line of the run">%s</svg>`, width, c.y+8, c.behind.String()+c.b.String())
}

// group says which colour a fault has.
func group(k history.Kind) string {
	switch k {
	case history.Partition, history.OneWay, history.Flap, history.Loss, history.Delay, history.Duplicate, history.Reorder, history.Corrupt, history.Reset:
		return "network"
	case history.Kill, history.Pause, history.Disk, history.Clock, history.Wipe, history.Bootstrap:
		return "node"
	case history.Backend:
		return "backend"
	}
	return "operator"
}

// faults are bars, each in the first lane that is free.
func (c *canvas) faults(run *history.Run) {
	c.title("faults", []line{{"network", nil, "network"}, {"node", nil, "nodes"}, {"backend", nil, "backends"}, {"operator", nil, "operators, traffic"}})
	top, used := c.y, 1
	var free [lanes]float64
	for _, f := range run.Faults {
		from := c.x(f.Began.Sub(c.began))
		to := max(from+3, c.x(f.Ended.Sub(c.began)))
		if f.Ended.IsZero() {
			to = from + 3
		}
		name := fmt.Sprintf("%s %s", f.Kind, strings.Join(f.Target, " "))
		needs := max(to, from+6.2*float64(len(name))+4)
		i := 0
		for i < lanes-1 && free[i] > from {
			i++
		}
		free[i], used = needs, max(used, i+1)
		y := top + float64(i)*lane
		c.put(`<g class="fault"><rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.0f" rx="2"/><title>%s</title>`, group(f.Kind), from, y, to-from, lane-3,
			html.EscapeString(fmt.Sprintf("%s: %s, from %.1f s for %.1f s", name, f.Detail, f.Began.Sub(c.began).Seconds(), f.Ended.Sub(f.Began).Seconds())))
		c.text("name", from+4, y+lane-6.5, name)
		c.put(`</g>`)
	}
	c.y = top + float64(used)*lane
}

// line is one row of figures, with its class and its name for people.
type line struct {
	class  string
	values []float64
	name   string
}

// title begins a panel.
func (c *canvas) title(text string, legend []line) {
	c.y += gap
	c.text("title", left, c.y-8, text)
	x := left + 7.2*float64(len(text)) + 16
	if len(legend) < 2 {
		return
	}
	for _, l := range legend {
		c.put(`<rect class="%s key" x="%.1f" y="%.1f" width="10" height="10" rx="2"/>`, l.class, x, c.y-17)
		c.text("legend", x+14, c.y-8, l.name)
		x += 14 + 6.6*float64(len(l.name)) + 14
	}
}

// frame draws a panel's ground and its marks, each a share of its height.
func (c *canvas) frame(height float64, marks map[float64]string) {
	c.put(`<rect class="ground" x="%.0f" y="%.1f" width="%.0f" height="%.0f"/>`, left, c.y, width-left-right, height)
	for at, text := range marks {
		y := c.y + height*(1-at)
		c.put(`<line class="grid" x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f"/>`, left, width-right, y, y)
		c.text("mark", left-8, y+4, text)
	}
}

// nice is the least of 1, 2, 5 times a power of ten that is not below v.
func nice(v float64) float64 {
	if v <= 0 {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5, 10} {
		if m*p >= v {
			return m * p
		}
	}
	return 10 * p
}

func most(lines []line, stacked bool) float64 {
	top := 0.0
	for i := range lines[0].values {
		sum := 0.0
		for _, l := range lines {
			if v := l.values[i]; stacked {
				sum += v
			} else {
				sum = max(sum, v)
			}
		}
		top = max(top, sum)
	}
	return top
}

func number(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// curve is one area.
func (c *canvas) curve(title string, height float64, f *figures, lines []line) {
	c.title(title, lines)
	top := nice(most(lines, false))
	c.frame(height, map[float64]string{1: number(top), 0.5: number(top / 2), 0: "0"})
	for _, l := range lines {
		var path strings.Builder
		fmt.Fprintf(&path, "M%.1f,%.1f", c.x(0), c.y+height)
		for i, v := range l.values {
			fmt.Fprintf(&path, "L%.1f,%.1f", c.x(time.Duration(i)*f.bucket), c.y+height*(1-v/top))
		}
		fmt.Fprintf(&path, "L%.1f,%.1fZ", width-right, c.y+height)
		c.put(`<path class="%s" d="%s"/>`, l.class, path.String())
	}
	c.y += height
}

// stack is bars upon bars.
func (c *canvas) stack(title string, height float64, f *figures, lines []line) {
	c.title(title, lines)
	top := nice(most(lines, true))
	c.frame(height, map[float64]string{1: number(top), 0: "0"})
	for i := range lines[0].values {
		y := c.y + height
		x := c.x(time.Duration(i) * f.bucket)
		w := max(1, c.x(time.Duration(i+1)*f.bucket)-x-0.5) // the last may end with the run
		for _, l := range lines {
			if v := l.values[i]; v > 0 {
				h := height * v / top
				y -= h
				c.put(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s: %s at %v</title></rect>`, l.class, x, y, w, h, l.name, number(v), time.Duration(i)*f.bucket)
			}
		}
	}
	c.y += height
}

// logs are curves on a scale of powers of ten, from 1 ms to 100 s.
func (c *canvas) logs(title string, height float64, f *figures, lines []line) {
	c.title(title, lines)
	const decades = 5
	share := func(v float64) float64 { return min(1, max(0, math.Log10(v/0.001)/decades)) }
	c.frame(height, map[float64]string{0: "1 ms", 0.2: "10 ms", 0.4: "100 ms", 0.6: "1 s", 0.8: "10 s", 1: "100 s"})
	for _, l := range lines {
		var path strings.Builder
		pen := "M"
		for i, v := range l.values {
			if v == 0 { // nobody was due
				pen = "M"
				continue
			}
			fmt.Fprintf(&path, "%s%.1f,%.1f", pen, c.x(time.Duration(i)*f.bucket), c.y+height*(1-share(v)))
			pen = "L"
		}
		c.put(`<path class="%s curve" d="%s"/>`, l.class, path.String())
	}
	c.y += height
}
