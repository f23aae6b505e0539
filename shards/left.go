package shards

import (
	"math"
	"slices"
)

// A backend that has left its pool is nobody's by the pool's configuration, and its
// sessions are bound to it until they have moved. Whose they are, and so by what rule,
// the log knows: also for a leader that has never seen the backend.

// pool is a backend's, also of one that has left; "": nobody knows.
func (o *Owner) pool(backend string) (pool string) {
	if pool = o.desk.rules.Of(backend); pool == "" {
		o.machine.View(func(t *Table, _ Position) { pool = t.pool(backend) })
	}
	return pool
}

// poolIn is pool for who looks at the table already.
func (o *Owner) poolIn(t *Table, backend string) string {
	if pool := o.desk.rules.Of(backend); pool != "" {
		return pool
	}
	return t.pool(backend)
}

// rule is that of a backend's pool.
func (o *Owner) rule(backend string) Rule { return o.desk.rules.Pool(o.pool(backend)) }

// pool is whose set names a backend.
func (t *Table) pool(backend string) string {
	for _, s := range t.sets {
		if s.index(backend) >= 0 {
			return s.Pool
		}
	}
	return ""
}

// withLeft are the backends of a pool's next set, with those of the last one that have
// left and still have sessions: they have no weight, for nobody goes there.
func (o *Owner) withLeft(next Set) []Backend {
	all := slices.Clone(next.Backends)
	o.machine.View(func(t *Table, _ Position) {
		last, _ := t.Set(next.Pool)
		for _, b := range last.Backends {
			pool := o.desk.rules.Of(b.ID)
			if next.index(b.ID) >= 0 || pool != "" && pool != next.Pool || t.Count(b.ID) == 0 || len(all) >= math.MaxUint16 {
				continue
			}
			all = append(all, Backend{ID: b.ID})
		}
	})
	return all
}
