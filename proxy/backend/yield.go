package backend

// A place that is given back goes to who waits at this node. Streams that wait
// at others would get none for as long as anybody waits here: so a node takes no
// more than its part of a cap while others want places, and of those that do not
// divide evenly leaves one alone now and then, for long enough that others hear
// of it.

// Samples, of which there are ten a second.
const (
	yieldEvery = 10 // from one place that is left to others to the next, at least
	yieldOver  = 7  // of these, the last, in which it may be taken back
)

// yield tells whether a stream's place at the backend is to be left to other
// nodes, now that it is given back.
func (b *Backend) yield() bool {
	e, limit := b.elsewhere.Load(), b.limit()
	if limit < 0 || e.Stale || e.Wanting == 0 || b.flights.count() <= int64(limit/(e.Wanting+1)) {
		return false
	}
	return b.yields.CompareAndSwap(0, yieldEvery)
}

// part is this node's of a cap of which others want places.
func (b *Backend) part(limit, wanting int) int64 {
	if b.yields.Load() > yieldOver {
		return int64(limit / (wanting + 1))
	}
	return int64((limit + wanting) / (wanting + 1))
}

// elapse counts a sample. It tells whether a place may be taken back from now
// on.
func (b *Backend) elapse() bool {
	n := b.yields.Load()
	if n > 0 {
		b.yields.Store(n - 1)
	}
	return n == yieldOver+1
}
