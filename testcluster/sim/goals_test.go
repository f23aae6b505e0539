package sim

import (
	"runtime"
	"testing"
	"time"
)

// Goals in their short form: an eighth of the requests where nothing fails, one
// seed, no cell of a thousand engines. `make sim SIMFLAGS=-check` plays them whole.

// slack is what the few requests of the short form may cost.
const slack = 1.04

func TestGoals(t *testing.T) {
	began := time.Now()
	for _, g := range Goals() {
		c := g.Cell
		if len(c.Engines) > 64 {
			continue
		}
		if len(c.Faults) == 0 && c.Load.Rows == nil {
			c.Load.Requests /= 8
		}
		t.Run(g.Name, func(t *testing.T) {
			got := Play([]Cell{c}, 1)[0].Median(g.Of)
			t.Logf("%.3f %s, at most %v", got, g.Unit, g.Most)
			if got > g.Most*slack {
				t.Errorf("%.3f %s, want at most %v", got, g.Unit, g.Most)
			}
		})
	}
	t.Logf("%v on %d processors", time.Since(began), runtime.GOMAXPROCS(0))
}

func TestFlat(t *testing.T) {
	var cells []Cell
	for _, c := range Flat() {
		if c.Proxies <= 64 {
			c.Load.Requests /= 8
			cells = append(cells, c)
		}
	}
	if got := Spread(Play(cells, 1)); got > FlatMost*slack {
		t.Errorf("p99 differs by a factor of %.3f between 1 and 64 proxies, want at most %v", got, FlatMost)
	}
}

// TestBetterThanPeers: p2c leaves the classic rules behind where engines differ.
func TestBetterThanPeers(t *testing.T) {
	cells := []Cell{}
	policies := []string{"p2c", "round_robin", "weighted_round_robin", "random", "least_connections", "peak_ewma", "least_response_time", "ip_hash"}
	for _, p := range policies {
		c := Reference()
		c.Rule.Policy, c.Rule.Weights = p, p == "weighted_round_robin"
		c.Load.Requests /= 8
		cells = append(cells, c)
	}
	played := Play(cells, 1)
	p99 := func(p Pair) float64 { return p.Rule.Slowdown.P99 }
	own := played[0].Median(p99)
	for i, p := range policies[1:] {
		if got := played[i+1].Median(p99); got < 1.2*own {
			t.Errorf("%s has a p99 of %.3f, p2c %.3f", p, got, own)
		}
	}
}
