package gossip

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy/backend"
)

// counters are what the transport counts; whoever scrapes reads them.
type counters struct {
	bytesIn, bytesOut, packetsIn, packetsOut, errors atomic.Uint64
	udpLost                                          atomic.Uint64    // pings that only TCP answered
	asked                                            atomic.Uint64    // others, for all of their reports
	joins                                            [2]atomic.Uint64 // failed, done
	refused                                          [causeFull + 1]atomic.Uint64
}

func (c *counters) in(n int)  { c.packetsIn.Add(1); c.bytesIn.Add(uint64(n)) }
func (c *counters) out(n int) { c.packetsOut.Add(1); c.bytesOut.Add(uint64(n)) }

// metrics reads the cluster when it is scraped.
type metrics struct {
	of    *Cluster
	descs descs
}

type descs struct {
	members, byState, hashes, reportAge, rtt, interval, queue, score *prometheus.Desc
	bytes, packets, errors, refused, joins, udpLost, asked           *prometheus.Desc
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(c *Cluster) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("starling_"+name, help, labels, nil)
	}
	return &metrics{c, descs{
		members:   desc("members", "Nodes of the cluster that are alive, this one among them."),
		byState:   desc("members_by_state", "Nodes that this one knows, by state.", "state"),
		hashes:    desc("config_hashes", "Different configurations among the nodes that are alive."),
		reportAge: desc("report_age_seconds", "Since the last report of another node.", "peer"),
		rtt:       desc("gossip_rtt_seconds", "Round trip of the last ping of another node over UDP.", "peer"),
		interval:  desc("report_interval_seconds", "How often this node tells the others what changed."),
		queue:     desc("gossip_queue", "Messages that wait to be passed on."),
		score:     desc("gossip_health_score", "How badly this node meets gossip's deadlines itself; 0: well."),
		bytes:     desc("gossip_bytes_total", "Bytes of gossip, without the headers of IP, UDP and TCP.", "direction"),
		packets:   desc("gossip_packets_total", "Packets of gossip.", "direction"),
		errors:    desc("gossip_errors_total", "Errors of gossip's sockets."),
		refused:   desc("gossip_refused_total", "Messages and nodes that were refused.", "cause"),
		joins:     desc("gossip_joins_total", "Times that another node was asked to let this one join.", "result"),
		udpLost:   desc("gossip_udp_lost_total", "Pings that a node answered over TCP and not over UDP."),
		asked:     desc("report_asks_total", "Times that another node was asked for all of its report, since some of it was lost."),
	}}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	d := m.descs
	for _, one := range []*prometheus.Desc{
		d.members, d.byState, d.hashes, d.reportAge, d.rtt, d.interval, d.queue, d.score, d.bytes, d.packets, d.errors, d.refused, d.joins, d.udpLost, d.asked,
	} {
		out <- one
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v *atomic.Uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v.Load()), labels...)
	}
	m.collectMembers(gauge)
	gauge(m.descs.interval, time.Duration(m.of.speaker.interval.Load()).Seconds())
	gauge(m.descs.queue, float64(m.of.records.queue.NumQueued()))
	gauge(m.descs.score, float64(m.of.score()))
	c := &m.of.count
	counter(m.descs.bytes, &c.bytesIn, "in")
	counter(m.descs.bytes, &c.bytesOut, "out")
	counter(m.descs.packets, &c.packetsIn, "in")
	counter(m.descs.packets, &c.packetsOut, "out")
	counter(m.descs.errors, &c.errors)
	counter(m.descs.udpLost, &c.udpLost)
	counter(m.descs.asked, &c.asked)
	counter(m.descs.joins, &c.joins[0], "failed")
	counter(m.descs.joins, &c.joins[1], "done")
	for i := causeVersion; i <= causeFull; i++ {
		counter(m.descs.refused, &c.refused[i], i.name())
	}
}

func (m *metrics) collectMembers(gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	states := map[backend.MemberState]int{}
	hashes := map[string]bool{}
	names := map[string]bool{}
	ages := m.of.ReportAges()
	alive := 0
	for _, n := range m.of.Members() {
		states[n.State]++
		if n.State == backend.MemberDead || n.State == backend.MemberLeft {
			continue
		}
		alive++
		hashes[n.Meta.ConfigHash] = true
		if n.Self {
			continue
		}
		name := cmp.Or(n.Meta.Name, n.ID)
		for names[name] { // two of one name, or one that has another's id for a name
			name += " " + n.ID
		}
		names[name] = true
		if age, ok := ages[n.ID]; ok {
			gauge(m.descs.reportAge, age.Seconds(), name)
		}
		gauge(m.descs.rtt, n.RTT.Seconds(), name)
	}
	gauge(m.descs.members, float64(alive))
	gauge(m.descs.hashes, float64(len(hashes)))
	for _, s := range []backend.MemberState{backend.MemberAlive, backend.MemberSuspect, backend.MemberDead, backend.MemberLeft, backend.MemberDraining} {
		gauge(m.descs.byState, float64(states[s]), string(s))
	}
}

// ReportAges is how old the last report of each other live node is; none where
// it has said nothing yet.
func (c *Cluster) ReportAges() map[string]time.Duration {
	return c.reports.ages(c.members.peers.Load(), time.Now())
}

// score is memberlist's own judgement of how late this node is.
func (c *Cluster) score() int {
	select {
	case <-c.started:
		return c.list.GetHealthScore()
	default:
		return 0
	}
}
