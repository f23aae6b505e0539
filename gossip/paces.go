package gossip

import (
	"strings"

	"github.com/starling-lb/starling/proxy/backend"
)

// What a node says of a pool is how many requests a second begin there: a planner
// that hears of it all does not move sessions in a spike that comes by other nodes.
// It travels as an entry of the report, whose speed it is, under an id that no
// backend has: nodes that do not know of it pass it over like any backend that is
// none of theirs, and what holds for entries holds for it. It is news where it is two
// thirds off, for a few requests a second come by chance; it rides along with what else
// there is to say, and has nothing else said more rarely.
const poolPrefix = "\x00pool "

func isPool(id string) bool { return strings.HasPrefix(id, poolPrefix) }

// speedSteps is by how many of its codes, of which eight are a doubling, a speed must be
// off to be news.
func speedSteps(id string) int {
	if isPool(id) {
		return 6
	}
	return 3
}

// loads is how many of the entries are of backends.
func (s *speaker) loads(entries []entry) (n int) {
	ids := *s.ids.Load()
	for _, e := range entries {
		if !isPool(ids[e.mark]) {
			n++
		}
	}
	return n
}

// paces is what this node says of its pools.
func (c *Cluster) paces() (list []backend.Report) {
	if c.opt.Paces == nil {
		return nil
	}
	for pool, v := range c.opt.Paces() {
		list = append(list, backend.Report{ID: poolPrefix + pool, Speed: v})
	}
	return list
}

// paceOf adds up what the others say of a pool.
func paceOf(voices []voice, mark uint64) (sum float64) {
	for _, v := range voices {
		if h, ok := v.entries[mark]; ok {
			sum += speedOf(h.speed)
		}
	}
	return sum
}
