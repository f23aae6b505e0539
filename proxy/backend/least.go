package backend

// cheapest takes the backend that costs least by something else than the step.
type cheapest struct{ cost }

const (
	overview = 64 // up to so many backends cheapest looks at all of
	fewOf    = 5  // of more it draws so many: the least of all is what every node would find
)

func (l cheapest) choose(c choice) *Backend {
	switch {
	case l.cost == byPeak:
		return c.drawn(2, l.cost)
	case len(c.list) <= overview:
		return c.least(l.cost)
	}
	return c.drawn(fewOf, l.cost)
}
