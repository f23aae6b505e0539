package sim

import "math"

// The cells that goals are set for, and the experiments that docs/balance.md
// shows.

// Sized is the reference cell with other numbers of proxies and engines, and
// another load.
func Sized(proxies, engines int, rho float64) Cell {
	c := Reference()
	c.Proxies, c.Engines, c.Load.Rho = proxies, Fleet(engines, Batching, 1, 1, 2, 0.5), rho
	return c
}

// Traced is the reference cell with the arrivals and sizes of a trace.
func Traced(name string) Cell {
	c := Reference()
	c.Load.Rows = Trace(name)
	return c
}

// When faults come in the cells that have some: after the streams of the empty
// start have made room for those that last.
const (
	faultFrom = 150.0
	faultTo   = 210.0
	faultEnd  = 225.0 // of the arrivals
)

// Faulty is a cell at rho 0.7 with faults of a minute.
func Faulty(kind Kind, engines ...int) Cell {
	c := Sized(16, 64, 0.7)
	for _, e := range engines {
		c.Faults = append(c.Faults, Fault{Kind: kind, Engine: e, From: faultFrom, To: faultTo})
	}
	c.Load.Requests = c.arrivals(faultEnd)
	return c
}

// arrivals is about how many requests come in a time.
func (c *Cell) arrivals(seconds float64) int {
	const meanWork = 7.37 // seconds, of the lognormal sizes
	return int(seconds * c.Load.Rho * c.capacity() / meanWork)
}

// Joining is a cell where a quarter of the engines is new, and at half speed for
// 15 s.
func Joining() Cell {
	c := Sized(16, 64, 0.7)
	for e := range len(c.Engines) / 4 {
		c.Faults = append(c.Faults, Fault{Kind: Join, Engine: e, From: faultFrom, To: faultFrom + 15})
	}
	c.Load.Requests = c.arrivals(faultEnd)
	return c
}

// Fast is an engine of the reference cell that has twice the speed of most.
const Fast = 2

// Goal is what the product's p2c has to reach in one cell.
type Goal struct {
	Name string
	Cell Cell
	Most float64
	Unit string // of Most and of what Of says
	Of   func(Pair) float64
}

func slow99(p Pair) float64  { return p.Rule.Slowdown.P99 / p.Oracle.Slowdown.P99 }
func slow999(p Pair) float64 { return p.Rule.Slowdown.P999 / p.Oracle.Slowdown.P999 }
func ttft99(p Pair) float64  { return p.Rule.TTFT.P99 / p.Oracle.TTFT.P99 }
func failed(p Pair) float64  { return 100 * (p.Rule.Failed + p.Rule.Rejected) }

// attempts is the share of attempts on an engine, in percent of the requests.
func attempts(engine int) func(Pair) float64 {
	return func(p Pair) float64 { return 100 * p.Rule.Attempts[engine] }
}

// Goals are all goals but Flat.
func Goals() []Goal {
	const times = "x oracle"
	gray, dead := Faulty(Gray, Fast), Faulty(Dead, Fast)
	return []Goal{
		{"reference cell, slowdown p99", Reference(), 1.05, times, slow99},
		{"reference cell, slowdown p99.9", Reference(), 1.10, times, slow999},
		{"reference cell, TTFT p99", Reference(), 1.05, times, ttft99},
		{"256 proxies, 1000 engines, slowdown p99", Sized(256, 1000, 0.85), 1.08, times, slow99},
		{"rho 0.5, slowdown p99", Sized(16, 64, 0.5), 1.20, times, slow99},
		{"rho 0.7, slowdown p99", Sized(16, 64, 0.7), 1.10, times, slow99},
		{"rho 0.95, slowdown p99", Sized(16, 64, 0.95), 1.12, times, slow99},
		{"gray engine, its share", gray, 0.1, "%", attempts(Fast)},
		{"gray engine, slowdown p99 of the others' requests too", gray, 1.10, times, slow99},
		{"dead engine, attempts on it", dead, 0.5, "%", attempts(Fast)},
		{"dead engine, requests that failed after 2 retries", dead, 0, "%", failed},
		{"chat trace, slowdown p99", Traced(Chat), 1.05, times, slow99},
		{"code trace, slowdown p99", Traced(Code), 1.20, times, slow99},
	}
}

// Flat are the cells among which slowdown p99 may differ by FlatMost: as many
// proxies as one likes change nothing.
func Flat() []Cell {
	var cells []Cell
	for _, n := range []int{1, 4, 16, 64, 256} {
		c := Sized(n, 64, 0.85)
		c.Load.Requests = 100_000
		cells = append(cells, c)
	}
	return cells
}

// FlatMost is the largest of them over the smallest.
const FlatMost = 1.03

// Spread is the largest median of slowdown p99 over the smallest.
func Spread(all []Series) float64 {
	least, most := math.Inf(1), 0.0
	for _, s := range all {
		m := s.Median(func(p Pair) float64 { return p.Rule.Slowdown.P99 })
		least, most = min(least, m), max(most, m)
	}
	return most / least
}
