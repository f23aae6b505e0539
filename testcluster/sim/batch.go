package sim

import (
	"math"
	"reflect"
	"runtime"
	"slices"
	"sync"
)

// Pair is the figures of a rule and of the oracle, with the same requests.
type Pair struct{ Rule, Oracle Figures }

// Series is one cell with one rule, played with several seeds.
type Series []Pair

// Median is the middle of what of says of each seed.
func (s Series) Median(of func(Pair) float64) float64 {
	var v []float64
	for _, p := range s {
		v = append(v, of(p))
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Worst is the largest of what of says of each seed.
func (s Series) Worst(of func(Pair) float64) float64 {
	worst := math.Inf(-1)
	for _, p := range s {
		worst = max(worst, of(p))
	}
	return worst
}

// Play plays every cell by its own rule and by the oracle, with so many seeds from
// its own on, as many at a time as there are processors. Equal runs are made once:
// cells that differ in the rule alone share the oracle's.
func Play(cells []Cell, seeds int) []Series {
	var b batch
	played := make([]Series, len(cells))
	for i, c := range cells {
		played[i] = make(Series, seeds)
		for seed := range seeds {
			c := c
			c.Seed += uint64(seed)
			b.want(c, &played[i][seed].Rule)
			known := c
			known.Rule = Rule{Policy: Oracle}
			b.want(known, &played[i][seed].Oracle)
		}
	}
	b.run()
	return played
}

// Alone plays every cell by its own rule and no oracle: where sessions have caches,
// one that knows the loads alone is no limit.
func Alone(cells []Cell, seeds int) [][]Figures {
	var b batch
	played := make([][]Figures, len(cells))
	for i, c := range cells {
		played[i] = make([]Figures, seeds)
		for seed := range seeds {
			c.Seed = uint64(seed + 1)
			b.want(c, &played[i][seed])
		}
	}
	b.run()
	return played
}

// batch is runs to make, and where their figures go.
type batch struct {
	cells []Cell
	to    [][]*Figures
}

func (b *batch) want(c Cell, to *Figures) {
	for i := range b.cells {
		if reflect.DeepEqual(b.cells[i], c) {
			b.to[i] = append(b.to[i], to)
			return
		}
	}
	b.cells, b.to = append(b.cells, c), append(b.to, []*Figures{to})
}

func (b *batch) run() {
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				f := Run(b.cells[i])
				for _, to := range b.to[i] {
					*to = f
				}
			}
		})
	}
	for i := range b.cells {
		next <- i
	}
	close(next)
	workers.Wait()
}
