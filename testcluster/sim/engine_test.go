package sim

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// script plays streams at one server and writes down when each makes its first
// token and its last.
func script(s *server, starts map[float64]Job, changes ...change) string {
	var log strings.Builder
	names := map[*request]string{}
	next := func() (at float64, kind string) {
		at = s.due()
		kind = "mark"
		for t := range starts {
			if t < at || t == at && kind == "mark" {
				at, kind = t, "start"
			}
		}
		if len(changes) > 0 && changes[0].at <= at {
			at, kind = changes[0].at, "change"
		}
		return at, kind
	}
	for at, kind := next(); !math.IsInf(at, 1); at, kind = next() {
		switch kind {
		case "start":
			s.advance(at)
			r := &request{job: starts[at]}
			delete(starts, at)
			names[r] = string(rune('a' + len(names)))
			if !s.add(r) {
				fmt.Fprintf(&log, "%s no place; ", names[r])
			}
		case "change":
			s.advance(at)
			changes[0].do(s)
			s.share()
			changes = changes[1:]
		default:
			r, first := s.reach(at)
			what := "ends"
			if first {
				what = "begins"
			}
			fmt.Fprintf(&log, "%s %s %.3f; ", names[r], what, at)
		}
	}
	return strings.TrimSuffix(log.String(), "; ")
}

func TestEngine(t *testing.T) {
	short := Job{Prompt: 800, Output: 50}  // 0.1 s and 1 s
	long := Job{Prompt: 8000, Output: 100} // 1 s and 2 s
	for _, tc := range []struct {
		name    string
		engine  Engine
		starts  map[float64]Job
		changes []change
		want    string
	}{
		{"alone", Batching(1), map[float64]Job{0: short}, nil, "a begins 0.120; a ends 1.100"},
		{"alone and twice as fast", Batching(2), map[float64]Job{0: short}, nil, "a begins 0.060; a ends 0.550"},
		{"one token only", Batching(1), map[float64]Job{0: {Prompt: 8, Output: 1}}, nil, "a begins 0.021; a ends 0.021"},
		{"two share", Engine{Speed: 1, Knee: 1, Slots: 2}, map[float64]Job{0: short, 0.1: long}, nil,
			"a begins 0.140; a ends 2.100; b begins 2.120; b ends 4.100"},
		{"one after the other", Engine{Speed: 1, Knee: math.Inf(1), Slots: 1, Queue: 1}, map[float64]Job{0: short, 0.1: short, 0.2: short}, nil,
			"a begins 0.120; c no place; a ends 1.100; b begins 1.220; b ends 2.200"},
		{"frozen from 0.5 to 10", Batching(1), map[float64]Job{0: short}, []change{{at: 0.5, do: Frozen.begin()}, {at: 10, do: mend}},
			"a begins 0.120; a ends 10.600"},
		{"gray from 0.1 on", Batching(1), map[float64]Job{0: short}, []change{{at: 0.1, do: Gray.begin()}},
			"a begins 0.300; a ends 10.100"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &server{Engine: tc.engine, factor: 1}
			s.share()
			if got := script(s, tc.starts, tc.changes...); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if s.held() != 0 {
				t.Errorf("%d streams are left", s.held())
			}
		})
	}
}

// TestPlayOnce: runs that are equal are made once and shared, and every series
// has its own seeds.
func TestPlayOnce(t *testing.T) {
	turns, least := small(), small()
	turns.Rule.Policy, least.Rule.Policy = "round_robin", "least_connections"
	played := Play([]Cell{turns, least, turns}, 2)
	for i, s := range played {
		if len(s) != 2 || s[0].Rule.Latency == s[1].Rule.Latency {
			t.Fatalf("series %d has the seeds' figures %+v", i, s)
		}
		for seed := range s {
			if s[seed].Oracle.Latency != played[0][seed].Oracle.Latency {
				t.Errorf("series %d has another oracle", i)
			}
		}
	}
	if played[0][0].Rule.Latency != played[2][0].Rule.Latency || played[0][0].Rule.Latency == played[1][0].Rule.Latency {
		t.Errorf("equal cells differ, or unequal ones do not")
	}
	first := func(p Pair) float64 { return p.Rule.Latency.P99 }
	if m := played[0].Median(first); m != (played[0][0].Rule.Latency.P99+played[0][1].Rule.Latency.P99)/2 {
		t.Errorf("the median of two is %v", m)
	}
}
