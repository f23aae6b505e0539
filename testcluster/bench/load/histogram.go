package load

import (
	"math/bits"
	"time"
)

// A power of two is cut into this many equal steps: a quantile is at most
// 1/256 off.
const steps = 128

// Histogram counts durations at a fixed relative precision in fixed memory.
type Histogram struct {
	counts [58 * steps]uint32
	total  int
	max    time.Duration
}

// Add counts one duration; a negative one counts as zero.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.counts[step(uint64(d))]++
	h.total++
	h.max = max(h.max, d)
}

// Total is how many durations were added.
func (h *Histogram) Total() int { return h.total }

// Max is the longest duration, exactly.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile is the duration that a share q (0 to 1) of all is not longer than;
// 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := min(int(q*float64(h.total)), h.total-1)
	for i, n := range h.counts {
		if rank -= int(n); rank < 0 {
			return min(middle(i), h.max)
		}
	}
	return h.max
}

// step numbers the steps without a gap: below 2*steps each value has its own,
// above it the low bits are cut off so that 8 bits remain.
func step(v uint64) int {
	cut := max(bits.Len64(v)-8, 0)
	return cut*steps + int(v>>cut)
}

func middle(i int) time.Duration {
	if i < 2*steps {
		return time.Duration(i)
	}
	cut := i/steps - 1
	low := uint64(i-cut*steps) << cut
	return time.Duration(low + 1<<cut/2)
}
