package report

import (
	"fmt"
	"html"
	"slices"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// leaders has a strip for each node: the more shards it leads the fuller, and none
// while it is down.
func (c *canvas) leaders(run *history.Run) {
	by := map[string][]history.Sample{}
	most := 1
	for _, s := range run.Samples {
		by[s.Node] = append(by[s.Node], s)
		most = max(most, s.Led)
	}
	var nodes []string
	for n := range by {
		nodes = append(nodes, n)
	}
	slices.Sort(nodes)
	c.title("shards that each node leads", []line{{"led", nil, fmt.Sprint("up to ", most)}, {"down", nil, "down"}})
	for _, n := range nodes[:min(len(nodes), strips)] {
		c.put(`<rect class="ground" x="%.0f" y="%.1f" width="%.0f" height="13"/>`, left, c.y, width-left-right)
		c.text("mark", left-8, c.y+11, n)
		c.strip(by[n], most)
		c.y += 16
	}
}

// strip draws what is alike in one piece.
func (c *canvas) strip(samples []history.Sample, most int) {
	slices.SortFunc(samples, func(a, b history.Sample) int { return a.At.Compare(b.At) })
	for i := 0; i < len(samples); {
		s, j := samples[i], i
		for j < len(samples) && samples[j].Up == s.Up && samples[j].Led == s.Led {
			j++
		}
		end := samples[j-1].At.Add(time.Second)
		if j < len(samples) {
			end = samples[j].At
		}
		from, to := c.x(s.At.Sub(c.began)), c.x(end.Sub(c.began))
		class, what, full := "led", fmt.Sprintf("leads %d", s.Led), 0.12+0.88*float64(s.Led)/float64(most)
		if !s.Up {
			class, what, full = "down", "down", 1
		}
		c.put(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="13" fill-opacity="%.2f"><title>%s</title></rect>`, class, from, c.y, to-from, full, html.EscapeString(s.Node+" "+what))
		i = j
	}
}

// axis ends the picture with the seconds, and the moment from which all should
// become well.
func (c *canvas) axis(run *history.Run) {
	step := time.Duration(nice(c.length.Seconds()/12)) * time.Second
	for at := time.Duration(0); at <= c.length; at += max(step, time.Second) {
		fmt.Fprintf(&c.behind, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.0f" y2="%.1f"/>`, c.x(at), c.x(at), gap, c.y)
		c.text("second", c.x(at), c.y+15, fmt.Sprintf("%.0f s", at.Seconds()))
	}
	if !run.Healed.IsZero() && len(run.Faults) > 0 {
		x := c.x(run.Healed.Sub(c.began))
		c.put(`<line class="healed" x1="%.1f" x2="%.1f" y1="%.0f" y2="%.1f"/>`, x, x, gap-18, c.y)
		c.text("over", x-5, gap-10, "the last fault is over")
	}
	c.y += 16
}
