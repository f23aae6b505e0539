package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// doorMetrics count what happens before a connection's first request.
type doorMetrics struct {
	keyrings func() []*keyring // that are looked after

	handshakes *prometheus.CounterVec
	proxied    *prometheus.CounterVec
	displaced  *prometheus.CounterVec

	reloads, expiry *prometheus.Desc
}

func newDoorMetrics(keyrings func() []*keyring) *doorMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "starling", Name: name, Help: help}, labels)
	}
	return &doorMetrics{
		keyrings:   keyrings,
		handshakes: counter("tls_handshake_errors_total", "Connections of clients that ended in the TLS handshake.", "listener"),
		proxied:    counter("proxy_protocol_errors_total", "Connections closed for their PROXY protocol header: from a peer that is not trusted, or broken.", "listener", "cause"),
		displaced:  counter("client_connections_displaced_total", "Connections without a request that were closed for new ones at a full listener.", "listener"),
		reloads:    prometheus.NewDesc("starling_tls_reload_success", "1: the certificate files hold what is in force; 0: they cannot be used, and the old ones are.", []string{"of"}, nil),
		expiry:     prometheus.NewDesc("starling_tls_certificate_expires_seconds", "When the certificate in force expires, in seconds since 1970.", []string{"of"}, nil),
	}
}

// begin has a listener's counts begin at 0 rather than with the first error.
func (m *doorMetrics) begin(l *listener) {
	d := l.gate.Load()
	m.displaced.WithLabelValues(l.address())
	if d.keys != nil {
		m.handshakes.WithLabelValues(l.address())
	}
	if d.cfg.ProxyProtocol {
		m.proxied.WithLabelValues(l.address(), "untrusted")
		m.proxied.WithLabelValues(l.address(), "broken")
	}
}

// Describe implements prometheus.Collector.
func (m *doorMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.handshakes.Describe(ch)
	m.proxied.Describe(ch)
	m.displaced.Describe(ch)
	ch <- m.reloads
	ch <- m.expiry
}

// Collect implements prometheus.Collector.
func (m *doorMetrics) Collect(ch chan<- prometheus.Metric) {
	m.handshakes.Collect(ch)
	m.proxied.Collect(ch)
	m.displaced.Collect(ch)
	for _, k := range m.keyrings() {
		good := 0.0
		if k.good.Load() {
			good = 1
		}
		ch <- prometheus.MustNewConstMetric(m.reloads, prometheus.GaugeValue, good, k.of)
		if ends := k.ends.Load(); ends != 0 {
			ch <- prometheus.MustNewConstMetric(m.expiry, prometheus.GaugeValue, float64(ends), k.of)
		}
	}
}

// warnDescriptors says so where more connections are allowed than the process
// can have open. Each takes a descriptor, and its stream's backend another.
func (s *Server) warnDescriptors(limit int64) {
	var asked int64
	for _, l := range s.now.Load().listeners {
		if d := l.gate.Load(); d.cfg.MaxConnections > 0 { // auto follows from the limit
			asked += 2 * d.limit
		}
	}
	if need := asked + spareDescriptors; asked > 0 && need > limit {
		s.log.Warn("the descriptor limit is below what max_connections asks for; raise the hard limit (LimitNOFILE, ulimit -Hn) or lower max_connections",
			"limit", limit, "needed", need)
	}
}

// spareDescriptors are for all that is no stream: unused backend connections,
// the admin API, files.
const spareDescriptors = 1000

// acceptLoop takes in connections until the listener closes. A shortage, of
// descriptors above all, is waited out: whoever is connected goes on.
func (s *Server) acceptLoop(l *listener) {
	if s.opt.Begin != nil {
		select {
		case <-s.opt.Begin:
		case <-s.ctx.Done():
			return
		}
	}
	for pause := time.Duration(0); ; {
		nc, err := l.socket.Accept()
		switch {
		case err == nil:
			pause = 0
			s.take(l, nc)
			continue
		case errors.Is(err, net.ErrClosed), s.isPause(err):
			return
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.metrics.acceptErrors.Inc()
		s.log.Warn("accept failed; trying again", "listener", l.named, "pause", pause, "err", err)
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// take serves a connection, or refuses it where there are too many.
func (s *Server) take(l *listener, nc net.Conn) {
	c := newClient(s, l, nc)
	if !s.seat(c, nc.RemoteAddr()) {
		c.conn.Close()
		s.metrics.shed("", backend.TooManyConnections)
		return
	}
	if s.stopping.Load() {
		c.conn.Interrupt() // accepted as the listener closed
	}
	s.hand(c)
}

// maxFree bounds the goroutines that wait for another connection to serve. Such
// a one has its stack already, and a new one has to find out how large.
const maxFree = 64

// hand has a goroutine serve a connection: one that is free, or a new one.
func (s *Server) hand(c *client) {
	select {
	case s.hands <- c:
	default:
		s.tasks.Go(func() { s.serveLoop(c) })
	}
}

// serveLoop serves one connection after the other.
func (s *Server) serveLoop(c *client) {
	for c != nil {
		c.greet()
		if s.free.Add(1) > maxFree {
			s.free.Add(-1)
			return
		}
		select {
		case c = <-s.hands:
		case <-s.ctx.Done():
			c = nil
		}
		s.free.Add(-1)
	}
}

// dismiss ends half of the goroutines that are free.
func (s *Server) dismiss() {
	for range (s.free.Load() + 1) / 2 {
		select {
		case s.hands <- nil:
		default:
		}
	}
}

// dress puts TLS over a connection that is to have it; nothing is read yet.
func (s *Server) dress(d *gate, nc net.Conn) net.Conn {
	if d.keys == nil {
		return nc
	}
	if d.cfg.ProxyProtocol {
		nc = wire.NewFront(nc, &s.stock)
	}
	return tls.Server(nc, d.keys.config.Load())
}

// greet serves a connection after it has taken what comes before the first
// request, in the time that a head may take: a PROXY protocol header, the TLS
// handshake. Where that fails, the connection is closed.
func (c *client) greet() {
	if !c.gate.cfg.ProxyProtocol && c.gate.keys == nil {
		c.serve()
		return
	}
	var by time.Time
	if limit := c.gate.timeouts.RequestHeader; limit > 0 {
		by = time.Now().Add(limit)
	}
	err := c.relayed(by)
	if err == nil && c.gate.keys != nil {
		err = c.shake(by)
	}
	if err == nil {
		c.serve()
		return
	}
	if errors.Is(err, wire.ErrIdle) {
		c.server.metrics.timeout("request_header")
	}
	c.server.log.Debug("connection ended before its first request", "listener", c.listener.named, "client", c.addr, "err", err)
	c.end()
}

var errUntrusted = errors.New("the peer is not among trusted_proxies")

// relayed takes the PROXY protocol header, where there is to be one: from here
// on the client is whom it names, and is trusted by that address alone.
func (c *client) relayed(by time.Time) error {
	l := c.listener
	if !c.gate.cfg.ProxyProtocol {
		return nil
	}
	if !c.trusted {
		c.server.doors.proxied.WithLabelValues(l.address(), "untrusted").Inc()
		return errUntrusted
	}
	h, err := c.conn.ReadProxy(by)
	if err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, wire.ErrInterrupted) {
			c.server.doors.proxied.WithLabelValues(l.address(), "broken").Inc()
		}
		return err
	}
	c.secure = c.secure || h.TLS
	if h.Source.IsValid() {
		c.stream.mu.Lock() // others read the address
		c.addr = h.Source.Addr().String()
		c.stream.mu.Unlock()
		c.trusted = c.gate.trusts(h.Source.Addr())
		c.server.relocate(c, h.Source.Addr().Unmap())
	}
	return nil
}

// shake brings TLS up. A client that only connected, as probes do, is not an
// error.
func (c *client) shake(by time.Time) error {
	err := c.conn.Handshake(by)
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, wire.ErrInterrupted) {
		return err
	}
	c.server.doors.handshakes.WithLabelValues(c.listener.address()).Inc()
	var record tls.RecordHeaderError
	if errors.As(err, &record) && record.Conn != nil && isMethod(string(record.RecordHeader[:])) {
		c.explain(record.Conn)
	}
	return err
}

// isMethod tells whether what should be the head of a TLS record is the start
// of an HTTP request.
func isMethod(start string) bool {
	word, _, _ := strings.Cut(start, " ")
	return word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// explain answers a client that speaks HTTP without TLS on the bare connection.
func (c *client) explain(nc net.Conn) {
	c.close = true
	c.identify()
	text := fmt.Sprintf(`{"error":{"code":%q,"message":"this listener speaks TLS; ask by https","request_id":%q}}`+"\n", backend.BadRequest, c.id)
	answer := c.answer("400 Bad Request", "application/json", "X-Starling-Error: "+string(backend.BadRequest)+"\r\n", text)
	bare := wire.NewConn(nc, &c.server.stock, nil, c)
	if bare.Write(answer, time.Second) == nil {
		bare.Linger(time.Second, 64<<10)
	}
}
