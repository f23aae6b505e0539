package backend

import "math"

// maxTurns are the most that one pick lets pass. Where so many in a row do not
// fit, hardly one does, and whoever does gets the stream by its load: a pool
// that is full should say so soon.
const maxTurns = 256

// inTurn takes one after the other, whatever their weights.
type inTurn struct{}

func (inTurn) choose(c choice) *Backend {
	n := uint64(len(c.list))
	for range min(2*n, maxTurns) {
		// Who does not fit loses its turn to the whole round: taken over by the
		// next alone, it would give that one two.
		if b := c.list[(c.pool.turn.Add(1)-1)%n]; c.fits(b) && c.willing(b) {
			return b
		}
	}
	return c.least(byLoad)
}

// smooth takes backends by their weights, each as evenly over time as can be:
// with 4, 2 and 1 that is A B A C A B A, not A A A A B B C. The order is made
// with the set, so that a pick only takes the next turn.
type smooth struct{ order []uint16 }

// maxOrder bounds an order, in turns: where the weights ask for a longer one,
// they are rounded to it.
const maxOrder = 8192

func (s smooth) choose(c choice) *Backend {
	n := uint64(len(s.order))
	for range min(2*n, maxTurns) {
		if b := c.list[s.order[(c.pool.turn.Add(1)-1)%n]]; c.fits(b) && c.willing(b) {
			return b
		}
	}
	return c.least(byLoad)
}

// evenly takes any, by weight and chance.
type evenly struct{ smooth }

func (e evenly) choose(c choice) *Backend {
	for range 4 * redraws {
		if b := c.list[e.order[below(c.pool.random(), len(e.order))]]; c.fits(b) && c.willing(b) {
			return b
		}
	}
	return c.least(byLoad)
}

// newSmooth makes the order as nginx does: each turn every backend earns its
// weight, the richest goes and pays the sum of all.
func newSmooth(list []*Backend) smooth {
	turns := turnsOf(list)
	sum := 0
	for _, n := range turns {
		sum += n
	}
	earned, order := make([]int, len(list)), make([]uint16, 0, sum)
	for range sum {
		best := 0
		for i, n := range turns {
			if earned[i] += n; earned[i] > earned[best] {
				best = i
			}
		}
		earned[best] -= sum
		order = append(order, uint16(best))
	}
	return smooth{order}
}

// turnsOf are the backends' turns in one round, in proportion to their weights
// and as few as can be; each has one at least.
func turnsOf(list []*Backend) []int {
	turns := make([]int, len(list))
	common, sum := 0, 0
	for i, b := range list {
		turns[i] = b.terms.Load().Weight
		common = divisor(common, turns[i])
		sum += turns[i]
	}
	for i, w := range turns {
		if turns[i] = w / common; sum/common > maxOrder {
			turns[i] = max(1, int(math.Round(float64(w)*maxOrder/float64(sum))))
		}
	}
	return turns
}

// divisor is the greatest that both have.
func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
