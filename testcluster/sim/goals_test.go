//go:build !race

// The race detector changes no figure and takes ten times as long: it gets
// run_test.go, where every policy is played.

package sim

import "testing"

// Goals in their short form: a part of the requests where nothing fails, one seed,
// no cell of a thousand engines. `make sim SIMFLAGS=-check` plays them whole.

const (
	part  = 8    // of the requests are played in the short form
	slack = 1.04 // beside a goal that this may cost
)

func TestGoals(t *testing.T) {
	var goals []Goal
	var cells []Cell
	for _, g := range Goals() {
		c := g.Cell
		if len(c.Engines) > 64 {
			continue
		}
		if len(c.Faults) == 0 && c.Load.Rows == nil {
			c.Load.Requests /= part
		}
		goals, cells = append(goals, g), append(cells, c)
	}
	played := Play(cells, 1) // together: goals of one cell share its run
	for i, g := range goals {
		t.Run(g.Name, func(t *testing.T) {
			got := played[i].Median(g.Of)
			t.Logf("%.3f %s, at most %v", got, g.Unit, g.Most)
			if !(got <= g.Most*slack) {
				t.Errorf("%.3f %s, want at most %v", got, g.Unit, g.Most)
			}
		})
	}
}

func TestFlat(t *testing.T) {
	var cells []Cell
	for _, c := range Flat() {
		if c.Proxies <= 64 {
			c.Load.Requests = 300_000 / part
			cells = append(cells, c)
		}
	}
	if got := Spread(Play(cells, 1)); got > FlatMost*slack {
		t.Errorf("p99 differs by a factor of %.3f between few and many proxies, want at most %v", got, FlatMost)
	}
}

// TestBetterThanPeers: p2c leaves the classic rules behind where engines differ.
func TestBetterThanPeers(t *testing.T) {
	cells := []Cell{}
	policies := []string{"p2c", "round_robin", "weighted_round_robin", "random", "least_connections", "peak_ewma", "least_response_time", "ip_hash"}
	for _, p := range policies {
		c := Reference()
		c.Rule.Policy, c.Rule.Weights = p, p == "weighted_round_robin"
		c.Load.Requests /= part
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
