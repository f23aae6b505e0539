package backend

// cheapest takes the backend that costs least by something else than the step.
type cheapest struct{ cost }

// overview is up to how many backends cheapest looks at all; of more it draws.
const overview = 64

func (l cheapest) choose(c choice) *Backend {
	switch {
	case l.cost == byPeak:
		return c.drawn(2, l.cost)
	case len(c.list) <= overview:
		return c.least(l.cost)
	}
	return c.drawn(MaxDraws, l.cost)
}
