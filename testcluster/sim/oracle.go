package sim

import "math"

// oracle knows every server's load, speed, fault and cap at this very moment,
// and takes the one where a step will be the shortest, of those with a slot free
// while there is one.
type oracle struct{ servers []server }

func (o *oracle) pick(_ float64, _ *request) (server int, a answer) {
	best, least := -1, math.Inf(1)
	for i := range o.servers {
		if c := o.servers[i].cost(); c < least {
			best, least = i, c
		}
	}
	if best < 0 {
		return 0, none
	}
	return best, placed
}

// cost is the time of a step with one stream more.
func (s *server) cost() float64 {
	if s.absent || s.refuses || s.factor == 0 {
		return math.Inf(1)
	}
	n := s.held()
	if n >= s.Slots {
		return 1e4 * float64(n+1) / (float64(s.Slots) * s.Speed * s.factor)
	}
	return 1 / (s.factor * s.rate(n+1))
}

func (o *oracle) failed(float64, *request)         {}
func (o *oracle) settled(float64, *request)        {}
func (o *oracle) began(float64, *request)          {}
func (o *oracle) joined(float64, int)              {}
func (o *oracle) turns() int                       { return 0 }
func (o *oracle) turn(int, float64) (float64, int) { panic("BUG: an oracle needs no turn") }
