package backend

import (
	"sync/atomic"
	"time"
)

// Backend is one server that streams go to. It lives as long as its id stays
// configured, whatever else of the pool changes.
type Backend struct {
	ID     string
	URL    string
	Addr   Address
	Weight int
	Slot   int // position in its Pool, for what others keep beside it

	inFlight atomic.Int64
	failures atomic.Int64 // in a row, before the first byte
	trial    atomic.Bool  // an ejected backend's one trial stream is under way
	standing atomic.Pointer[Standing]
}

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

// Release gives the claim back; a second call does nothing.
func (l *Lease) Release() {
	if l.backend == nil {
		return
	}
	if l.trial {
		l.backend.trial.Store(false)
	}
	l.backend.inFlight.Add(-1)
	l.backend = nil
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

func (b *Backend) claim(trial bool) Lease {
	b.inFlight.Add(1)
	return Lease{backend: b, trial: trial}
}
