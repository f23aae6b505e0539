package quorum

import (
	"maps"
	"slices"

	"github.com/starling-lb/starling/shards"
)

// Sessions is how many sessions live at a backend, in the shards of which this node
// has a replica: in a small cluster, all.
func (q *Quorum) Sessions(backend string) (n int) {
	q.mu.Lock()
	machines := slices.Collect(maps.Values(q.machines))
	q.mu.Unlock()
	for _, m := range machines {
		m.View(func(t *shards.Table, _ shards.Position) { n += t.Count(backend) })
	}
	return n
}
