package proxy

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy/backend"
)

// metrics is what the data plane counts. Gauges are read from the live counts
// when they are scraped, so they cannot drift from them.
type metrics struct {
	server   *Server
	compared comparison

	streams      *prometheus.CounterVec
	durations    *prometheus.HistogramVec
	firstBytes   *prometheus.HistogramVec
	added        prometheus.Histogram
	ejections    *prometheus.CounterVec
	retries      *prometheus.CounterVec
	exhausted    *prometheus.CounterVec
	waits        *prometheus.HistogramVec
	sheds        *prometheus.CounterVec
	timeouts     *prometheus.CounterVec
	acceptErrors prometheus.Counter
	routeMisses  *prometheus.CounterVec
	logDrops     prometheus.Counter
	spanDrops    prometheus.Counter
	drains       *prometheus.CounterVec
	drainTimes   prometheus.Histogram
	lookups      *prometheus.CounterVec
	binds        prometheus.Histogram

	speeds, stepSpread, streamSpread *prometheus.Desc

	inFlight, state, panics, links, connections, mayConnect, waiting, mayWait, replay *prometheus.Desc
}

// backendMetrics are one backend's, looked up once.
type backendMetrics struct {
	ends       map[backend.Reason]prometheus.Counter
	durations  prometheus.Observer
	firstBytes prometheus.Observer
	ejections  prometheus.Counter
}

// poolMetrics are one pool's.
type poolMetrics struct {
	retries   prometheus.Counter
	exhausted prometheus.Counter
	waits     prometheus.Observer
}

func newMetrics(s *Server) *metrics {
	long := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	short := []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .1, 1, 10, 60, 600}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "starling", Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "starling", Name: name, Help: help, Buckets: buckets}, []string{"pool", "backend"})
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("starling_"+name, help, labels, nil)
	}
	return &metrics{
		server:     s,
		compared:   newComparison(long),
		streams:    counter("streams_total", "Streams that ended, by why; backend is empty where none was chosen.", "pool", "backend", "reason"),
		durations:  histogram("stream_duration_seconds", "From a request's head to the last byte of its answer.", long),
		firstBytes: histogram("time_to_first_byte_seconds", "From a request's head to the head of its answer.", long),
		added: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "starling", Name: "added_latency_seconds", Buckets: short,
			Help: "What starling itself adds before a request is sent on: from the head read to the head written, connecting left out.",
		}),
		ejections: counter("ejections_total", "Times a backend was ejected.", "pool", "backend"),
		retries:   counter("retries_total", "Requests tried again, here or elsewhere.", "pool"),
		exhausted: counter("retry_budget_exhausted_total", "Requests not tried again since as many retries ran as the pool allows.", "pool"),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "starling", Name: "queue_wait_seconds", Help: "How long streams waited for a backend with room, whatever came of it.", Buckets: long,
		}, []string{"pool"}),
		sheds:    counter("shed_total", "Requests turned away at once.", "pool", "code"),
		timeouts: counter("timeouts_total", "Time-outs that ended something.", "kind"),
		acceptErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "starling", Name: "accept_errors_total", Help: "Connections that could not be accepted, for want of descriptors above all.",
		}),
		routeMisses: counter("body_route_misses_total", "JSON bodies in which a route's field was not found, by why.", "cause"),
		logDrops: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "starling", Name: "access_log_dropped_total", Help: "Lines of the access log that were lost.",
		}),
		spanDrops: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "starling", Name: "trace_spans_dropped_total", Help: "Spans that were lost before, or refused by, the collector.",
		}),
		drains: counter("drains_total", "Drains of backends that are over.", "result"),
		drainTimes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "starling", Name: "drain_seconds", Help: "How long drains of backends took.", Buckets: long,
		}),
		lookups: counter("sticky_lookups_total", "Requests to pools with sessions, by how their session was found.", "pool", "result"),
		binds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "starling", Name: "bind_seconds", Help: "From a request's head to the answer where its session lives, for those that this node did not know.", Buckets: long,
		}),
		panics:       desc("panic", "1 while so few backends are usable that their health is ignored.", "pool"),
		waiting:      desc("queue_waiting", "Streams of this node that wait for a backend with room.", "pool"),
		mayWait:      desc("queue_limit", "Streams that may wait on this node for a backend with room.", "pool"),
		replay:       desc("replay_bytes", "Bytes of requests' bodies that are kept to be sent again."),
		speeds:       desc("backend_speed", "Measured speed beside the median of the pool.", "pool", "backend"),
		stepSpread:   desc("step_time_cv", "How unlike the usable backends' predicted step times are: standard deviation over mean.", "pool"),
		streamSpread: desc("in_flight_cv", "How unlike the usable backends' streams are: standard deviation over mean.", "pool"),
		inFlight:     desc("streams_in_flight", "Streams of this node at a backend now.", "pool", "backend"),
		state:        desc("backend_state", "1 for the state a backend is in.", "pool", "backend", "state"),
		links:        desc("pool_connections", "Connections to a backend.", "pool", "backend", "state"),
		connections:  desc("client_connections", "Open connections of clients.", "listener"),
		mayConnect:   desc("client_connections_limit", "Connections of clients that a listener takes.", "listener"),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	for _, c := range append(m.compared.collectors(),
		m.streams, m.durations, m.firstBytes, m.added, m.ejections, m.retries, m.exhausted, m.waits, m.sheds, m.timeouts, m.acceptErrors,
		m.routeMisses, m.logDrops, m.spanDrops, m.drains, m.drainTimes, m.lookups, m.binds, m) {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	for _, kind := range []string{"connect", "response_header", "stream_idle", "stream_total", "queue", "tunnel_idle", "request_body", "request_header", "write_idle"} {
		m.timeouts.WithLabelValues(kind)
	}
	for _, result := range []string{"done", "timeout"} {
		m.drains.WithLabelValues(result)
	}
	for _, cause := range []string{"absent", "malformed", "far", "late"} {
		m.routeMisses.WithLabelValues(cause)
	}
	return nil
}

func (m *metrics) backend(pool, id string) *backendMetrics {
	b := &backendMetrics{
		ends:       map[backend.Reason]prometheus.Counter{},
		durations:  m.durations.WithLabelValues(pool, id),
		firstBytes: m.firstBytes.WithLabelValues(pool, id),
		ejections:  m.ejections.WithLabelValues(pool, id),
	}
	for _, r := range backend.Reasons() {
		b.ends[r] = m.streams.WithLabelValues(pool, id, string(r))
	}
	return b
}

// seriesKept is how long the series of a backend that left stay: a scrape or two
// should see what it did last.
const seriesKept = 10 * time.Minute

// leavers are the backends that left a pool, by id, with when. Their series are
// to go too, or those of a pool whose backends come and go would grow for ever.
type leavers struct {
	mu   sync.Mutex
	when map[string]time.Time
}

func (l *leavers) add(id string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.when == nil {
		l.when = map[string]time.Time{}
	}
	l.when[id] = now
}

// some tells whether any is left to forget.
func (l *leavers) some() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.when) > 0
}

// due takes those out who left long enough ago.
func (l *leavers) due(now time.Time) (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, when := range l.when {
		if now.Sub(when) >= seriesKept {
			ids = append(ids, id)
			delete(l.when, id)
		}
	}
	return ids
}

// forget takes away the series of backends that left a pool long ago, but for
// those whose id is there again.
func (m *metrics) forget(p *pool, now time.Time) {
	for _, id := range p.left.due(now) {
		if slices.ContainsFunc(p.Backends(), func(b *backend.Backend) bool { return b.ID == id }) {
			continue
		}
		labels := prometheus.Labels{"pool": p.Name, "backend": id}
		m.streams.DeletePartialMatch(labels)
		m.durations.DeletePartialMatch(labels)
		m.firstBytes.DeletePartialMatch(labels)
		m.ejections.DeletePartialMatch(labels)
	}
}

// forgetPool takes away the series of a pool that is gone.
func (m *metrics) forgetPool(name string) {
	labels := prometheus.Labels{"pool": name}
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{
		m.streams, m.retries, m.exhausted, m.waits, m.sheds, m.lookups, m.compared.streams, m.compared.durations, m.compared.firstBytes,
	} {
		v.DeletePartialMatch(labels)
	}
}

func (m *metrics) pool(name string, sessions bool) *poolMetrics {
	p := &poolMetrics{
		retries: m.retries.WithLabelValues(name), exhausted: m.exhausted.WithLabelValues(name), waits: m.waits.WithLabelValues(name),
	}
	if sessions {
		for _, l := range Lookups() {
			m.lookups.WithLabelValues(name, string(l))
		}
	}
	return p
}

func (m *metrics) timeout(kind string) { m.timeouts.WithLabelValues(kind).Inc() }

func (m *metrics) shed(pool string, code backend.Code) {
	m.sheds.WithLabelValues(pool, string(code)).Inc()
}

// settled counts a stream at its end; b is nil where it had no backend.
func (m *metrics) settled(s *Stream, b *backend.Backend, why backend.Reason) {
	if s.lookup() != "" {
		m.lookups.WithLabelValues(s.poolName, string(s.lookup())).Inc()
	}
	if b == nil {
		m.streams.WithLabelValues(s.poolName, "", string(why)).Inc()
		return
	}
	m.compared.settled(s, why)
	bm := s.pool.of(b).metrics
	bm.ends[why].Inc()
	bm.durations.Observe(time.Since(s.started).Seconds())
	if s.headIn > 0 {
		bm.firstBytes.Observe(s.headIn.Seconds())
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.speeds, m.stepSpread, m.streamSpread, m.inFlight, m.state, m.panics, m.links, m.connections, m.mayConnect, m.waiting, m.mayWait, m.replay} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(m.replay, float64(m.server.replay.Load()))
	now := time.Now()
	for _, p := range m.server.now.Load().all() {
		gauge(m.waiting, float64(p.Waiting()), p.Name)
		gauge(m.mayWait, float64(p.MaxWaiting()), p.Name)
		gauge(m.panics, truth(p.Panic()), p.Name)
		steps, streams := p.Spread(now)
		gauge(m.stepSpread, steps, p.Name)
		gauge(m.streamSpread, streams, p.Name)
		for _, b := range p.Backends() {
			gauge(m.inFlight, float64(b.Carried()), p.Name, b.ID)
			gauge(m.speeds, b.Speed(), p.Name, b.ID)
			gauge(m.links, float64(p.of(b).idle.Len()), p.Name, b.ID, "idle")
			gauge(m.links, float64(p.of(b).used.Load()), p.Name, b.ID, "used")
			is := b.Standing().State
			for _, s := range backend.States() {
				gauge(m.state, truth(s == is), p.Name, b.ID, string(s))
			}
		}
	}
	for _, l := range m.server.now.Load().listeners {
		gauge(m.connections, float64(l.open.Load()+l.told.Load()), l.address())
		if limit := l.gate.Load().limit; limit > 0 {
			gauge(m.mayConnect, float64(limit), l.address())
		}
	}
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// drained counts a drain of a backend that is over.
func (m *metrics) drained(_ *backend.Backend, took time.Duration, left int64) {
	result := "done"
	if left > 0 {
		result = "timeout"
	}
	m.drains.WithLabelValues(result).Inc()
	m.drainTimes.Observe(took.Seconds())
}
