package sim

import "math"

// calendar knows for each of a fixed number of sources when its next event is,
// and which comes first. Equal times go by the source's number, so that a run
// can be repeated.
type calendar struct {
	at    []float64 // by source; +Inf: none
	heap  []int32   // sources
	where []int32   // by source: its place in heap
}

func newCalendar(sources int) *calendar {
	c := &calendar{at: make([]float64, sources), heap: make([]int32, sources), where: make([]int32, sources)}
	for i := range c.at {
		c.at[i], c.heap[i], c.where[i] = math.Inf(1), int32(i), int32(i)
	}
	return c
}

// first is the source whose event is next, and when.
func (c *calendar) first() (source int, at float64) {
	s := c.heap[0]
	return int(s), c.at[s]
}

// set says when a source's next event is.
func (c *calendar) set(source int, at float64) {
	if c.at[source] == at {
		return
	}
	c.at[source] = at
	c.down(c.up(int(c.where[source])))
}

func (c *calendar) before(a, b int32) bool {
	return c.at[a] < c.at[b] || c.at[a] == c.at[b] && a < b
}

func (c *calendar) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !c.before(c.heap[i], c.heap[parent]) {
			break
		}
		c.swap(i, parent)
		i = parent
	}
	return i
}

func (c *calendar) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(c.heap); child++ {
			if c.before(c.heap[child], c.heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		c.swap(i, least)
		i = least
	}
}

func (c *calendar) swap(i, j int) {
	c.heap[i], c.heap[j] = c.heap[j], c.heap[i]
	c.where[c.heap[i]], c.where[c.heap[j]] = int32(i), int32(j)
}
