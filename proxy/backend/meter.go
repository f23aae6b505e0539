package backend

import (
	"sync/atomic"
	"time"
)

// meter counts what is under way and adds up for how long, exactly and without
// a lock: the count and the sum of the moments at which it changed are one
// word, so that nobody reads one without the other. With n under way at the
// moment t, the time spent so far is n*t less that sum.
type meter struct{ word atomic.Uint64 }

// countBits hold the count, which is below a million; the rest of the word is
// the sum, in microseconds, whose overflow cancels out where two readings are
// compared.
const countBits = 20

const countMask = 1<<countBits - 1

func (m *meter) begin(at uint64) { m.word.Add(at<<countBits + 1) }

func (m *meter) end(at uint64) { m.word.Add(-(at<<countBits + 1)) }

// under begins one unless most are under way.
func (m *meter) under(at uint64, most int64) bool {
	for w := m.word.Load(); int64(w&countMask) < most; w = m.word.Load() {
		if m.word.CompareAndSwap(w, w+at<<countBits+1) {
			return true
		}
	}
	return false
}

func (m *meter) count() int64 { return int64(m.word.Load() & countMask) }

// spent is the time spent so far, in microseconds. Only differences mean
// something: see since.
func (m *meter) spent(at uint64) uint64 {
	w := m.word.Load()
	return (w&countMask)*at - w>>countBits
}

// since is the time spent between two readings, in seconds.
func since(now, before uint64) float64 {
	d := int64((now-before)<<countBits) >> countBits // what overflowed is shifted out, the sign in
	return max(0, float64(d)/1e6)
}

// micros is a moment in microseconds since the pool was made.
func (p *Pool) micros(now time.Time) uint64 { return uint64(now.Sub(p.made) / time.Microsecond) }
