package gossip

import "time"

// tally is which of a node's numbered chunks were heard.
type tally struct {
	base  uint64 // all up to it, or what came later says as much
	ahead uint64 // bit i: base+1+i
	far   uint64 // the highest beyond those
}

func (t *tally) heard(n uint64) {
	switch {
	case n <= t.base:
	case n-t.base > 64:
		t.far = max(t.far, n)
	default:
		t.ahead |= 1 << (n - t.base - 1)
		t.settle()
	}
}

// covered notes that everything was told as of a number.
func (t *tally) covered(n uint64) {
	if n > t.base {
		t.ahead >>= n - t.base
		t.base = n
		t.settle()
	}
}

func (t *tally) settle() {
	for t.ahead&1 != 0 {
		t.base++
		t.ahead >>= 1
	}
}

func (t *tally) gap() bool { return t.ahead != 0 || t.far > t.base }

// wish is how long a gap has been there, and what was done about it.
type wish struct {
	since, asked time.Time
	tries        int
}

// gaps is whom to ask now for all of their reports. Who loses much asks only a
// few at a time: answers to many would be lost as well.
func (r *reports) gaps(list []peer, now time.Time) (ask []peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.lastAsks) >= askAgain {
		r.lastAsks, r.asks = now, 0
	}
	for _, p := range list {
		o := r.of(p.mark, p.boot)
		switch w := &o.wish; {
		case o.boot != p.boot: // its new start is not known everywhere yet
		case !o.latest.IsZero() && !o.tally.gap():
			*w = wish{}
		case w.since.IsZero():
			w.since = now
		case now.Sub(w.since) >= askAfter && now.Sub(w.asked) >= askAgain && w.tries < mostAsks && r.asks < asksAtOnce:
			w.asked, w.tries = now, w.tries+1
			r.asks++
			ask = append(ask, p)
		}
	}
	return ask
}
