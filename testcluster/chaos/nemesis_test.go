package chaos

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-lb/starling/testcluster/chaos/history"
	"github.com/starling-lb/starling/testcluster/fault"
)

// TestDraw: a nemesis's faults are ones that a file could ask for, of every kind,
// and the same seed draws the same.
func TestDraw(t *testing.T) {
	a, b := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(1, 1))
	for _, k := range named() {
		for range 50 {
			s := draw(a, history.Kind(k))
			if other := draw(b, history.Kind(k)); s != other {
				t.Fatalf("%+v and %+v of one seed", s, other)
			}
			sc := Scenario{Nodes: 3, Backends: 2, Steps: []Step{s}}
			sc.check(func(key, format string, args ...any) { t.Errorf("%+v: %s: "+format, append([]any{s, key}, args...)...) })
		}
	}
}

// noted are ways that only note what they are told.
type noted map[[2]string]path

func (n noted) Set(from, to string, p path) {
	if n[[2]string{from, to}] = p; p == (path{}) {
		delete(n, [2]string{from, to})
	}
}
func (noted) Reset(string, string) int { return 0 }

type notedGround struct {
	ground
	noted noted
}

func (g notedGround) ways() ways { return g.noted }

// TestBend: of several faults on one way each holds until it is over, whichever
// ends first.
func TestBend(t *testing.T) {
	n := noted{}
	r := &rig{ground: notedGround{noted: n}, harm: map[int][]bent{}, bent: map[[2]string]bool{}}
	r.bend(1, between([]string{"a"}, []string{"b", "c"}, path{Off: true}, true))
	r.bend(2, between([]string{"a"}, []string{"b"}, path{Loss: 0.5, UDP: true}, false))
	if len(n) != 4 || !n[[2]string{"a", "b"}].Off || n[[2]string{"a", "b"}].Loss != 0.5 || n[[2]string{"a", "b"}].UDP || !n[[2]string{"c", "a"}].Off {
		t.Errorf("both: %+v", n)
	}
	r.bend(3, between([]string{"c"}, []string{"a"}, path{Flipped: 0.1}, false))
	if got := n[[2]string{"c", "a"}]; got != (path{Off: true, Flipped: 0.1}) {
		t.Errorf("cut off, and packets are corrupt: %+v", got)
	}
	r.bend(3, nil)
	r.bend(4, between([]string{"a"}, []string{"b"}, path{Twice: 0.3}, false))
	r.bend(1, nil)
	if got := n[[2]string{"a", "b"}]; got != (path{Loss: 0.5, UDP: true, Twice: 0.3}) {
		t.Errorf("lost are packets alone, and others come twice: %+v", got)
	}
	r.bend(4, nil)
	if len(n) != 1 || n[[2]string{"a", "b"}] != (fault.Path{Loss: 0.5, UDP: true}) {
		t.Errorf("the second alone: %+v", n)
	}
	r.bend(2, nil)
	if len(n) != 0 {
		t.Errorf("none: %+v", n)
	}
	if all := between([]string{"a", "b"}, []string{"a", "b"}, path{Off: true}, false); len(all) != 2 || slices.ContainsFunc(all, func(b bent) bool { return b.from == b.to }) {
		t.Errorf("between two: %+v", all)
	}
}
