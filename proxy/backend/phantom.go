package backend

import "time"

const (
	maxPhantoms    = 64          // of one backend; beyond, the oldest goes
	longestPhantom = time.Minute // however long streams are and however many failed
	longestRow     = 16          // beyond, longestPhantom was reached long ago
	firstMean      = time.Second // of streams, before any has ended
	meanOf         = 64          // streams, about, that their mean is made of
)

// phantoms are failures that still count as streams, so that a backend which
// fails at once does not look idle: it would draw all traffic, being always
// free. They never change; who adds one makes others.
type phantoms struct {
	ends    []int64 // in ns since 1970, oldest failure first
	refused bool    // all of them are connects that failed, which a passed check disproves
}

// haunt adds a phantom for the row-th failure in a row.
func (p *Pool) haunt(b *Backend, now time.Time, kind FailureKind, row int64) {
	mean := time.Duration(p.mean.Load())
	if mean == 0 {
		mean = firstMean
	}
	length := longestPhantom
	if row <= longestRow && mean < longestPhantom {
		length = min(longestPhantom, 2*mean<<(row-1))
	}
	at := now.UnixNano()
	for {
		old := b.haunted.Load()
		next := &phantoms{refused: kind == FailedConnect}
		if old != nil {
			for _, end := range old.ends {
				if end > at {
					next.ends = append(next.ends, end)
				}
			}
			next.refused = next.refused && (old.refused || len(next.ends) == 0)
		}
		next.ends = append(next.ends[max(0, len(next.ends)+1-maxPhantoms):], at+int64(length))
		if b.haunted.CompareAndSwap(old, next) {
			return
		}
	}
}

// Phantoms are the failures on this node that still count as streams.
func (b *Backend) Phantoms(now time.Time) float64 { return b.phantoms(now) }

func (b *Backend) phantoms(now time.Time) float64 {
	h := b.haunted.Load()
	if h == nil {
		return 0
	}
	n, at := 0, now.UnixNano()
	for _, end := range h.ends {
		if end > at {
			n++
		}
	}
	return float64(n)
}

// Finished tells the pool that a stream ran to the end of its answer, and how
// long it took in all.
func (p *Pool) Finished(b *Backend, took time.Duration) {
	if b.breaks.Load() != 0 {
		b.breaks.Store(0)
	}
	mean := p.mean.Load()
	if mean == 0 {
		mean = int64(took)
	}
	p.mean.Store(mean + (int64(took)-mean)/meanOf) // two at once may lose one of them
}
