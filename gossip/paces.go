package gossip

import (
	"github.com/starling-lb/starling/proxy/backend"
)

// What a node says of a pool is how many requests a second begin there: a planner
// that hears of it all does not move sessions in a spike that comes by other nodes.
// It travels as an entry of the report, whose speed it is, under an id that no
// backend has: nodes that do not know of it pass it over like any backend that is
// none of theirs, and what holds for entries holds for it. It is news where it is a
// quarter off, and rides along with what else there is to say.
const poolPrefix = "\x00pool "

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
