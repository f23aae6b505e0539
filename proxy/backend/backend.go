package backend

import (
	"sync/atomic"
	"time"
)

// Backend is one server that streams go to. It lives as long as its id stays
// configured with the same URL, whatever else of the pool changes.
type Backend struct {
	ID     string
	URL    string
	Addr   Address
	Beside any // what Hooks.Joined gave: somebody else's, never changed

	pool      *Pool
	alone     []*Backend // itself
	terms     atomic.Pointer[Terms]
	elsewhere atomic.Pointer[Elsewhere]
	left      atomic.Bool // Hooks.Left was called

	inFlight atomic.Int64
	waiting  atomic.Int64 // streams that only this backend can serve
	failures atomic.Int64 // in a row, before the first byte
	trial    atomic.Bool  // an ejected backend's one trial stream is under way
	standing atomic.Pointer[Standing]
}

// Terms are what is agreed of a backend and may change while it runs.
type Terms struct {
	Weight    int // share of new streams beside the others' weights; at least 1
	Cap       int // streams at a time, the whole cluster's; 0: none
	CapSource CapSource
}

// Terms are the backend's terms now.
func (b *Backend) Terms() Terms { return *b.terms.Load() }

// Elsewhere is what the other nodes said last of the backend.
func (b *Backend) Elsewhere() Elsewhere { return *b.elsewhere.Load() }

// Standing is a backend's state, and why and since when it has it.
type Standing struct {
	State  State
	Reason string
	Since  time.Time
	Until  time.Time // end of an ejection; zero otherwise
	Times  int       // ejections in a row
}

// InFlight is the number of this node's streams at the backend: exact at every
// moment.
func (b *Backend) InFlight() int64 { return b.inFlight.Load() }

// Waiting is the number of this node's streams that wait for the backend and
// may go to no other.
func (b *Backend) Waiting() int64 { return b.waiting.Load() }

// Standing is the backend's state now.
func (b *Backend) Standing() Standing { return *b.standing.Load() }

// Lease is one stream's claim on a backend: counted from the pick until it is
// given back. The zero Lease claims nothing.
type Lease struct {
	backend *Backend
	trial   bool
}

// Backend is where the stream goes; nil for the zero Lease.
func (l *Lease) Backend() *Backend { return l.backend }

// Release gives the claim back; a second call does nothing. Where a stream
// waits that the backend may serve, the claim becomes that stream's.
func (l *Lease) Release() {
	b := l.backend
	if b == nil {
		return
	}
	l.backend = nil
	if l.trial {
		b.trial.Store(false)
	}
	q := &b.pool.queue
	if q.length.Load() > 0 && q.pass(b) {
		return
	}
	if b.inFlight.Add(-1) == 0 && b.standing.Load().State == Removed {
		b.pool.gone(b)
	}
	if q.length.Load() > 0 {
		q.review() // who came to wait meanwhile did not see the place
	}
}

// open tells whether the backend takes streams, were it not for its cap.
func (b *Backend) open(now time.Time) bool {
	s := b.standing.Load()
	return s.State == Active || s.State == Ejected && now.After(s.Until) && !b.trial.Load()
}

// usable tells whether the backend may take a stream now; trial says that the
// stream is the one that decides over an ejected backend.
func (b *Backend) usable(now time.Time) (ok, trial bool) {
	s := b.standing.Load()
	switch s.State {
	case Active:
		return true, false
	case Ejected:
		if !now.After(s.Until) || !b.trial.CompareAndSwap(false, true) {
			return false, false
		}
		if b.standing.Load() == s {
			return true, true
		}
		b.trial.Store(false) // another trial has decided meanwhile
	}
	return false, false
}

// room is how many streams this node may have at the backend beside those of
// other nodes; negative: no limit.
func (b *Backend) room() int64 {
	limit := b.terms.Load().Cap
	if limit == 0 {
		return -1
	}
	return max(0, int64(limit-b.elsewhere.Load().InFlight))
}

// full tells whether the backend has as many streams as it may.
func (b *Backend) full() bool {
	room := b.room()
	return room >= 0 && b.inFlight.Load() >= room
}

// claim counts a stream at the backend, never over its cap; ok is false where
// others were faster.
func (b *Backend) claim(trial bool) (l Lease, ok bool) {
	room := b.room()
	if room < 0 {
		b.inFlight.Add(1)
		return Lease{backend: b, trial: trial}, true
	}
	for n := b.inFlight.Load(); n < room; n = b.inFlight.Load() {
		if b.inFlight.CompareAndSwap(n, n+1) {
			return Lease{backend: b, trial: trial}, true
		}
	}
	if trial {
		b.trial.Store(false)
	}
	return Lease{}, false
}
