package load

import (
	"math"
	"time"
)

const (
	finest  = 100 * time.Microsecond // what is quicker counts as this
	growth  = 1.05                   // from bucket to bucket, so a quantile is right within 5 %
	buckets = 330                    // up to a quarter of an hour
)

// histogram counts durations in buckets that grow.
type histogram struct {
	count [buckets]uint32
	total int64
}

func (h *histogram) add(d time.Duration) {
	i := 0
	if d > finest {
		i = min(buckets-1, int(math.Log(float64(d)/float64(finest))/math.Log(growth)))
	}
	h.count[i]++
	h.total++
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.count {
		h.count[i] += n
	}
	h.total += o.total
}

func (h *histogram) quantiles() Quantiles { return Quantiles{P50: h.at(0.5), P99: h.at(0.99)} }

// at is the upper edge of the bucket that holds quantile q.
func (h *histogram) at(q float64) time.Duration {
	rank := int64(math.Ceil(q * float64(h.total)))
	for i, n := range h.count {
		if rank -= int64(n); rank <= 0 && h.total > 0 {
			return time.Duration(float64(finest) * math.Pow(growth, float64(i+1)))
		}
	}
	return 0
}
