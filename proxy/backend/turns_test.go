package backend

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTurns(t *testing.T) {
	for _, c := range []struct {
		policy  string
		weights []int
		n       int
		want    []int
	}{
		{RoundRobin, []int{1, 1, 1}, 300, []int{100, 100, 100}},
		{RoundRobin, []int{5, 1}, 10, []int{5, 5}}, // whatever the weights
		{WeightedRoundRobin, []int{5, 3, 2}, 1000, []int{500, 300, 200}},
		{WeightedRoundRobin, []int{100, 200}, 300, []int{100, 200}},
	} {
		p := placed(t, Placement{Policy: c.policy}, c.weights...)
		if got := counts(sequence(t, p, c.n), len(c.weights)); !slices.Equal(got, c.want) {
			t.Errorf("%s of %v: %v of %d, want %v", c.policy, c.weights, got, c.n, c.want)
		}
	}
}

// With 4, 2 and 1 the turns are spread; naive ones, each backend's in a row,
// would be bursts.
func TestSmoothTurns(t *testing.T) {
	p := placed(t, Placement{Policy: WeightedRoundRobin}, 4, 2, 1)
	const naive = "AAAABBC"
	got := sequence(t, p, 14)
	if got != "ABACABAABACABA" {
		t.Errorf("turns of 4, 2, 1: %s", got)
	}
	if a, b := longest(got), longest(naive); a != 2 || b != 4 { // 2 where two rounds meet
		t.Errorf("%d in a row, naively %d", a, b)
	}
}

// longest is how many of one letter follow each other at most.
func longest(s string) (most int) {
	for i := range s {
		n := len(s[i:]) - len(strings.TrimLeft(s[i:], s[i:i+1]))
		most = max(most, n)
	}
	return most
}

// A backend that is out loses its turns to all others alike.
func TestTurnsOfOneThatIsOut(t *testing.T) {
	p := placed(t, Placement{Policy: RoundRobin}, 1, 1, 1, 1)
	p.Backends()[2].standing.Store(&Standing{State: Unhealthy})
	if got := counts(sequence(t, p, 300), 4); !slices.Equal(got, []int{100, 100, 0, 100}) {
		t.Errorf("with the third out: %v", got)
	}
}

// However large and odd the weights, a round is bounded and the shares hold.
func TestTurnsAreBounded(t *testing.T) {
	weights := make([]int, 900)
	sum := 0
	for i := range weights {
		weights[i] = 101 + i
		sum += weights[i]
	}
	p := placed(t, Placement{Policy: WeightedRoundRobin}, weights...)
	order := p.now.Load().policy.(smooth).order
	if len(order) > maxOrder+len(weights) {
		t.Fatalf("%d turns in a round", len(order))
	}
	got := make([]float64, len(weights))
	for _, i := range order {
		got[i]++
	}
	for i, w := range weights {
		share, want := got[i]/float64(len(order)), float64(w)/float64(sum)
		if math.Abs(share-want) > .75/float64(len(order)) && math.Abs(share/want-1) > .12 {
			t.Fatalf("weight %d of %d: a share of %v, want %v", w, sum, share, want)
		}
	}
}

// A large pool that is full says so without going through all turns.
func TestTurnsOfAFullPool(t *testing.T) {
	for _, policy := range []string{RoundRobin, WeightedRoundRobin} {
		p := placed(t, Placement{Policy: policy}, slices.Repeat([]int{1}, 1000)...)
		for _, b := range p.Backends() {
			b.terms.Store(&Terms{Weight: 1, Cap: 1, CapSource: CapConfig})
			b.flights.begin(0)
		}
		if _, err := p.Pick(time.Now(), Ask{}); !errors.Is(err, ErrFull) || p.turn.Load() > 300 {
			t.Errorf("%s: %v after %d turns", policy, err, p.turn.Load())
		}
		last := p.Backends()[777]
		last.flights.end(0)
		if l := pick(t, p); l.Backend() != last {
			t.Errorf("%s: %s was picked, and has no place", policy, l.Backend().ID)
		}
	}
}

func TestRandomByWeight(t *testing.T) {
	p := placed(t, Placement{Policy: Random}, 3, 1)
	got := counts(sequence(t, p, draws), 2)
	within(t, got, 0, draws*3/4)
	within(t, got, 1, draws/4)
}
