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
	looks, steps        *prometheus.Desc
	sessions, moves     *prometheus.Desc
	provisional, cut    *prometheus.Desc
	held, stale, freed  *prometheus.Desc
	commits             prometheus.Histogram
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(q *Quorum) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("starling_"+name, help, labels, nil)
	}
	return &metrics{
		of:          q,
		leader:      desc("shard_leader", "1 where this node leads the shard.", "shard"),
		term:        desc("raft_term", "Term of this node's replica of the shard.", "shard"),
		bytes:       desc("store_bytes", "Size of the file that keeps the logs of all replicas of this node."),
		steps:       desc("shard_step_seconds", "How long the longest of what is done to shards is under way; 0: nothing is."),
		looks:       desc("rebalance_looks_total", "Looks at a pool in a shard that this node leads, by what came of them.", "pool", "reason"),
		sessions:    desc("sessions", "Sessions that are bound, in the shards that this node leads.", "pool"),
		moves:       desc("moves_total", "Changes of sessions' bindings that waited for their turns to end, by what became of them, in the shards that this node leads.", "pool", "result"),
		provisional: desc("provisional_bindings", "Sessions for which this node chose a backend that no leader has agreed to yet."),
		cut:         desc("move_cut_streams_total", "Streams that a move has cut: none ever."),
		held:        desc("held_turns_total", "Turns of this node that waited for a change of their session's binding; timeout: for as long as one may.", "result"),
		stale:       desc("stale_turns_total", "Turns of this node beside which another of their session may have run elsewhere: last_known went where the session was last known to live, detour around a backend that did not answer, rebound bound it elsewhere for that, outlived still ran when the node had lost its lease or the session had another home.", "reason"),
		freed:       desc("sessions_evicted_total", "Sessions that were to be let go because their shard was full, in the shards that this node leads."),
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
	for _, d := range []*prometheus.Desc{m.leader, m.term, m.bytes, m.looks, m.steps, m.sessions, m.moves, m.provisional, m.cut, m.held, m.stale, m.freed} {
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
	if m.of.opened.Load() {
		if size, _, err := m.of.store.Usage(); err == nil { // else its disk is gone, which the log says
			gauge(m.bytes, float64(size))
		}
	}
	if r := m.of.Router(); r != nil {
		for pool, told := range r.Rebalanced() {
			for reason, n := range told.Counts {
				out <- prometheus.MustNewConstMetric(m.looks, prometheus.CounterValue, float64(n), pool, string(reason))
			}
		}
	}
	gauge(m.steps, m.of.longest().Seconds())
	m.collectSessions(out)
	m.commits.Collect(out)
}

func (m *metrics) collectSessions(out chan<- prometheus.Metric) {
	r := m.of.Router()
	if r == nil {
		return
	}
	count := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for pool, n := range r.Sessions() {
		out <- prometheus.MustNewConstMetric(m.sessions, prometheus.GaugeValue, float64(n), pool)
	}
	for pool, n := range r.Moves() {
		count(m.moves, n.Done, pool, "done")
		count(m.moves, n.Cancelled, pool, "cancelled")
	}
	c := r.Counts()
	out <- prometheus.MustNewConstMetric(m.provisional, prometheus.GaugeValue, float64(c.Provisional))
	count(m.cut, 0)
	count(m.held, c.Held-c.HeldOut, "done")
	count(m.held, c.HeldOut, "timeout")
	count(m.stale, c.Stale, "last_known")
	count(m.stale, c.Detours, "detour")
	count(m.stale, c.Rebound, "rebound")
	count(m.stale, c.Outlived, "outlived")
	count(m.freed, c.Evicted)
}
