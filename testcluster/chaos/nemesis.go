package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// random are the faults that a nemesis picks from: those that undo themselves.
func random() []string {
	var all []string
	for _, k := range []history.Kind{
		history.Partition, history.OneWay, history.Flap, history.Loss, history.Delay, history.Reset, history.Kill, history.Pause,
		history.Disk, history.Clock, history.Restart, history.Backend, history.Traffic, history.Drain, history.Operate,
	} {
		all = append(all, string(k))
	}
	return all
}

// named are those that it may be told to pick from.
func named() []string {
	return append(random(), string(history.HandOver), string(history.Twice), string(history.Duplicate), string(history.Reorder), string(history.Corrupt))
}

// nemesisLoop makes one fault after the other, each of a kind and a length by
// chance. The same seed draws the same ones.
func (r *run) nemesisLoop(ctx context.Context, n *Nemesis, dice *rand.Rand) {
	list := n.Kinds
	if len(list) == 0 {
		list = random()
	}
	for {
		rest := time.Duration((0.5 + dice.Float64()) * float64(n.Rest))
		s := draw(dice, history.Kind(list[dice.IntN(len(list))]))
		s.For = n.Least + time.Duration(dice.Float64()*float64(n.Most-n.Least))
		if !pause(ctx, rest) {
			return
		}
		if s.Fault == history.Pause && r.o.Level == Inside {
			continue
		}
		if s.Fault == history.Pause && dice.IntN(2) == 0 {
			s.For = 200*time.Millisecond + time.Duration(dice.Float64()*float64(2*time.Second)) // some within a lease
		}
		r.do(ctx, s, true)
	}
}

// draw makes a fault of a kind.
func draw(dice *rand.Rand, k history.Kind) Step {
	one := func(of ...string) string { return of[dice.IntN(len(of))] }
	s := Step{Fault: k, When: "now", Target: one("any", "any", "leader", "meta"), Over: one("both", "both", "both", "udp", "tcp"), Factor: 1, Count: 1}
	switch k {
	case history.Partition:
		s.Target = one("any", "half", "leader", "meta")
	case history.Loss:
		s.Loss = 0.01 + 0.29*dice.Float64()
	case history.Duplicate, history.Reorder, history.Corrupt:
		s.Share = 0.05 + 0.45*dice.Float64()
	case history.Delay:
		s.By = time.Duration(5+dice.IntN(196)) * time.Millisecond
	case history.Flap:
		s.By = time.Duration(300+dice.IntN(3000)) * time.Millisecond
	case history.Clock:
		s.By = time.Duration(1+dice.IntN(30)) * time.Second
	case history.Disk:
		s.How, s.By = one("slow", "slow", "stall", "full", "fail"), time.Duration(5+dice.IntN(200))*time.Millisecond
	case history.Backend:
		s.Target, s.How = "any", one("dead", "hung", "slow", "flap", "break")
		s.Factor, s.By = float64(2+dice.IntN(10)), time.Duration(500+dice.IntN(3000))*time.Millisecond
	case history.Traffic:
		s.Factor = 1 + 2*dice.Float64()
	case history.Drain:
		s.Target = "any"
	}
	return s
}
