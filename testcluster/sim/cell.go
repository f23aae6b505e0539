package sim

import (
	"math"
	"time"
)

// Cell is one experiment: everything that a run depends on.
type Cell struct {
	Proxies int
	Engines []Engine
	Load    Load
	Age     time.Duration // of reports between proxies, on average; even over half of it and half as much again. 0: 200ms
	Seed    uint64
	Faults  []Fault
	Rule    Rule

	Sessions *Sessions     // nil: every request stands alone
	Window   time.Duration // that is measured from the first fault on, at least; 0: a minute
}

// Rule is who places the requests.
type Rule struct {
	Policy  string // of the product; or Oracle
	Weights bool   // the configuration tells the engines' speeds, as weights
	Caps    Caps   // who tells how many streams an engine runs
	Knee    int    // what the configuration says of it; 0: the default
	Draws   int    // likewise; 0: auto
}

// Caps is who tells the pools how many streams an engine runs at a time.
type Caps int

// The ways to tell it.
const (
	Untold     Caps = iota // nobody: the pools learn it
	ByEngine               // the engine's own metrics, read every second
	Configured             // the configuration, as a limit: what has no slot waits at its proxy
)

// Oracle is the Rule that knows everything.
const Oracle = "oracle"

// Kind is what a Fault does to an engine.
type Kind int

// The kinds of faults.
const (
	Gray   Kind = iota // a tenth of its speed
	Dead               // refuses what is new; what runs there runs on
	Frozen             // not a token more, until it is over
	Join               // is not there before, and has half its speed during it
)

// Fault is what happens to one engine for a while. What is measured are the
// requests that come during the faults, where there are any.
type Fault struct {
	Kind     Kind
	Engine   int
	From, To float64 // seconds since the run began
}

// Fleet is m engines of the speeds in turn.
func Fleet(m int, of func(speed float64) Engine, speeds ...float64) []Engine {
	engines := make([]Engine, m)
	for i := range engines {
		engines[i] = of(speeds[i%len(speeds)])
	}
	return engines
}

// Reference is the cell that others vary: 16 proxies before 64 unlike engines.
func Reference() Cell {
	return Cell{
		Proxies: 16,
		Engines: Fleet(64, Batching, 1, 1, 2, 0.5),
		Load:    Load{Requests: 300_000, Rho: 0.85},
		Rule:    Rule{Policy: "p2c", Caps: ByEngine},
		Seed:    1,
	}
}

// age is the reports' mean age in seconds.
func (c *Cell) age() float64 {
	if c.Age == 0 {
		return 0.2
	}
	return c.Age.Seconds()
}

// capacity is the work per second that all engines which are there from the
// start do together.
func (c *Cell) capacity() float64 {
	sum := 0.0
	for i, e := range c.Engines {
		if !c.joins(i) {
			sum += e.capacity()
		}
	}
	return sum
}

func (c *Cell) joins(engine int) bool {
	for _, f := range c.Faults {
		if f.Kind == Join && f.Engine == engine {
			return true
		}
	}
	return false
}

// leastWindow is how long is measured from the first fault on, in seconds, however
// short the faults are.
const leastWindow = 60

// window is when the requests come that are measured.
func (c *Cell) window(jobs []Job) (from, to float64) {
	if len(c.Faults) == 0 {
		return jobs[len(jobs)/5].At, math.Inf(1)
	}
	from, to = math.Inf(1), 0
	for _, f := range c.Faults {
		from, to = min(from, f.From), max(to, f.To, f.From+leastWindow, f.From+c.Window.Seconds())
	}
	return from, to
}
