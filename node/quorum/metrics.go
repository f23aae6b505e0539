package quorum

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics reads the replicas when it is scraped.
type metrics struct {
	of                  *Quorum
	leader, term, bytes *prometheus.Desc
	looks               *prometheus.Desc
	commits             prometheus.Histogram
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(q *Quorum) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("starling_"+name, help, labels, nil)
	}
	return &metrics{
		of:     q,
		leader: desc("shard_leader", "1 where this node leads the shard.", "shard"),
		term:   desc("raft_term", "Term of this node's replica of the shard.", "shard"),
		bytes:  desc("store_bytes", "Size of the file that keeps the logs of all replicas of this node."),
		looks:  desc("rebalance_looks_total", "Looks at a pool in a shard that this node leads, by what came of them.", "pool", "reason"),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "starling", Name: "raft_commit_seconds", Help: "From an entry's proposal on this node until it was committed and applied here.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 600},
		}),
	}
}

// committed hears of every entry that was proposed here.
func (m *metrics) committed(took time.Duration) { m.commits.Observe(took.Seconds()) }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.leader, m.term, m.bytes, m.looks} {
		out <- d
	}
	m.commits.Describe(out)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, g := range m.of.groups.All() {
		shard, state := strconv.FormatUint(uint64(g.ID.Shard), 10), g.State()
		led := 0.0
		if state.Led {
			led = 1
		}
		gauge(m.leader, led, shard)
		gauge(m.term, float64(state.Term), shard)
	}
	if size, _, err := m.of.store.Usage(); err == nil { // else: not open yet, or its disk is gone, which the log says
		gauge(m.bytes, float64(size))
	}
	if r := m.of.Router(); r != nil {
		for pool, told := range r.Rebalanced() {
			for reason, n := range told.Counts {
				out <- prometheus.MustNewConstMetric(m.looks, prometheus.CounterValue, float64(n), pool, string(reason))
			}
		}
	}
	m.commits.Collect(out)
}
