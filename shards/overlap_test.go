package shards

import (
	"fmt"
	"time"
)

// pair is two streams of a session that ran on two backends at once, the first one
// first.
type pair struct{ first, second *stream }

// closes is for how long an overlap means nothing, since news take their way.
const closes = 500 * time.Millisecond

// bury notes that a backend is declared dead.
func (r *recorder) bury(backend string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buried[backend] = r.w.now()
}

// judge holds each overlap to the stated exceptions, under either consistency: one of
// the two streams said at its end that another may have run beside it; or the session
// was bound elsewhere at once between the two, which the turn that had it bound has
// said; or the backend of the one by the older binding was declared dead.
func (r *recorder) judge() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pairs {
		if min(p.first.ended, p.second.ended)-p.second.began < closes {
			continue
		}
		if !r.excuses(p) {
			r.fault("nobody counted it: %s on %+v by %s from %v to %v, and on %+v by %s from %v to %v", p.first.session,
				p.first.home, p.first.node, p.first.began, p.first.ended, p.second.home, p.second.node, p.second.began, p.second.ended)
			continue
		}
		r.counted++
	}
}

func (r *recorder) excuses(p pair) bool {
	older, newer := p.first, p.second
	if newer.home.Epoch < older.home.Epoch {
		older, newer = newer, older
	}
	for e := older.home.Epoch + 1; e <= newer.home.Epoch; e++ {
		if r.atOnce[fmt.Sprintf("%s@%d", older.session, e)] || r.atOnce[newer.session+" at "+newer.home.Backend] {
			return true
		}
	}
	died, ok := r.buried[older.home.Backend]
	return older.stale || newer.stale || ok && died > older.began-lease && died < older.ended
}
