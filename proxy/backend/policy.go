package backend

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// policy is a rule of placement. It is made for one set of backends, and what
// it keeps does not change; what must outlive the set is the Pool's.
type policy interface {
	// choose takes one of the backends that fit; nil where none does. It counts
	// nothing.
	choose(c choice) *Backend
}

// The policies' names; the list is closed.
const (
	StepTime           = "p2c"
	RoundRobin         = "round_robin"
	WeightedRoundRobin = "weighted_round_robin"
	Random             = "random"
	LeastConnections   = "least_connections"
	PeakEWMA           = "peak_ewma"
	LeastResponseTime  = "least_response_time"
	ConsistentHash     = "consistent_hash"
	IPHash             = "ip_hash"
)

// Policies lists every policy.
func Policies() []string {
	return []string{StepTime, RoundRobin, WeightedRoundRobin, Random, LeastConnections, PeakEWMA, LeastResponseTime, ConsistentHash, IPHash}
}

// newPolicy makes the policy of that name for the set's backends.
func newPolicy(name string, s *set) policy {
	switch name {
	case RoundRobin:
		return inTurn{}
	case WeightedRoundRobin:
		return newSmooth(s.list)
	case Random:
		return evenly{newSmooth(s.list)}
	case LeastConnections:
		return cheapest{byLoad}
	case PeakEWMA:
		return cheapest{byPeak}
	case LeastResponseTime:
		return cheapest{byMean}
	case ConsistentHash:
		return newMaglev(s.list, float64(s.rules.Placement.BoundedLoad)/100)
	case IPHash:
		return newMaglev(s.list, 0)
	}
	return step{}
}

// Placement says how a pool chooses.
type Placement struct {
	Policy string  // empty: p2c
	Second string  // measured beside it, for the share; empty: none
	Share  float64 // of the streams, 0 to 1

	Knee        int           // streams at a backend that slow each other to half the speed of one alone; 0: 32
	Draws       int           // backends that p2c looks at; 0: 2 to 4, by how many streams arrive within a report's age
	BoundedLoad int           // percent of the mean that consistent_hash gives a backend at most; 0: no bound
	SlowStart   time.Duration // until a backend that comes, or comes back, has its whole share; 0: at once
	ReportAge   time.Duration // between two reports of other nodes; 0: 200 ms
}

// SetPolicy changes how the pool chooses, while streams run, whatever its rules
// say; the empty name takes that back. A share of the streams, 0 to 1, can be
// given to a second policy; where none is named, the rules' keeps its share.
func (p *Pool) SetPolicy(name string, share float64, second string) error {
	known := func(n string) bool { return n == "" || slices.Contains(Policies(), n) }
	switch {
	case !known(name):
		return fmt.Errorf("policy %q is none; write one of %s", name, strings.Join(Policies(), ", "))
	case !known(second):
		return fmt.Errorf("second policy %q is none; write one of %s", second, strings.Join(Policies(), ", "))
	case share < 0 || share > 1 || share > 0 && second == "":
		return fmt.Errorf("share %v of a second policy %q: write a share from 0 to 1 and the policy that gets it", share, second)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chosen = nil
	if name != "" || second != "" {
		p.chosen = &Placement{Policy: name, Second: second, Share: share}
	}
	s := p.now.Load()
	p.adopt(s.list, s.rules)
	p.queue.review()
	return nil
}

// Chosen is what SetPolicy chose; what is empty is as the rules say.
func (p *Pool) Chosen() Placement {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.chosen == nil {
		return Placement{}
	}
	return *p.chosen
}

// Hashes is the name of the policy, or of the second one, that goes by a key;
// empty where none does.
func (p *Pool) Hashes() string { return p.now.Load().hashes }

// Placement is how the pool chooses now.
func (p *Pool) Placement() Placement { return p.now.Load().placement }

// random is 64 bits, by chance.
func (p *Pool) random() uint64 {
	if p.Random != nil {
		return p.Random()
	}
	return rand.Uint64()
}

// float is from 0 up to 1, by chance.
func (p *Pool) float() float64 { return float64(p.random()>>11) / (1 << 53) }

// below is a number from 0 up to n, by 32 bits of chance.
func below(bits uint64, n int) int { return int(uint64(uint32(bits)) * uint64(n) >> 32) }
