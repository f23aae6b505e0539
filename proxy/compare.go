package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy/backend"
)

// comparison measures two policies of one pool side by side, each by the streams
// that it placed. Pools with one policy are not in it.
type comparison struct {
	streams    *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	firstBytes *prometheus.HistogramVec
}

func newComparison(buckets []float64) comparison {
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "starling", Name: name, Help: help, Buckets: buckets}, []string{"pool", "policy"})
	}
	return comparison{
		streams: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "starling", Name: "policy_streams_total", Help: "Streams that ended, of pools with a second policy, by which one placed them and why they ended.",
		}, []string{"pool", "policy", "reason"}),
		durations:  histogram("policy_stream_duration_seconds", "From a request's head to the last byte of its answer, of pools with a second policy."),
		firstBytes: histogram("policy_time_to_first_byte_seconds", "From a request's head to the head of its answer, of pools with a second policy."),
	}
}

func (c *comparison) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.streams, c.durations, c.firstBytes}
}

// begin has a pool's series begin at 0.
func (c *comparison) begin(pool string, place backend.Placement) {
	if place.Second == "" {
		return
	}
	for _, policy := range []string{place.Policy, place.Second} {
		c.durations.WithLabelValues(pool, policy)
		c.firstBytes.WithLabelValues(pool, policy)
		for _, reason := range backend.Reasons() {
			c.streams.WithLabelValues(pool, policy, string(reason))
		}
	}
}

// chooser is the policy that chose a stream's backend; empty where there is one
// alone, or none did: the stream was bound.
func chooser(place backend.Placement, l *backend.Lease, ask backend.Ask) string {
	switch {
	case place.Second == "" || ask.Only != nil:
		return ""
	case l.Second():
		return place.Second
	}
	return place.Policy
}

// settled counts a stream at its end, for the policy that chose, whichever does by
// now.
func (c *comparison) settled(s *Stream, why backend.Reason) {
	if s.policy == "" {
		return
	}
	c.streams.WithLabelValues(s.pool.Name, s.policy, string(why)).Inc()
	c.durations.WithLabelValues(s.pool.Name, s.policy).Observe(time.Since(s.started).Seconds())
	if s.headIn > 0 {
		c.firstBytes.WithLabelValues(s.pool.Name, s.policy).Observe(s.headIn.Seconds())
	}
}
