package proxy

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// AccessLogConfig says where one line per stream goes, and how it is written.
type AccessLogConfig struct {
	Path   string `yaml:"path"` // "-": standard output; empty: off
	Format string `yaml:"format" enum:"json"`
}

// DefaultAccessLog is no log.
func DefaultAccessLog() AccessLogConfig { return AccessLogConfig{Format: "json"} }

// records are what is kept of streams that have ended; nil is off.
type records struct {
	log   *accessLog
	spans *tracer
}

// openRecords opens what is configured, or nothing.
func (s *Server) openRecords() error {
	if path := s.cfg.AccessLog.Path; path != "" {
		w, err := openAccessLog(path)
		if err != nil {
			return err
		}
		s.records.log = newAccessLog(w, s.metrics.logDrops)
		s.records.log.start()
	}
	if s.cfg.Tracing.OTLPEndpoint != "" {
		s.records.spans = newTracer(s.cfg.Tracing, s.opt.Node, s.metrics.spanDrops, s.log)
		s.records.spans.queue.start()
	}
	return nil
}

// ReopenAccessLog opens the file of the access log anew, where there is one, and
// has the lines from now on go there. It fails where it cannot be opened; then
// nothing changes.
func (s *Server) ReopenAccessLog() error {
	l := s.records.log
	if l == nil {
		return nil
	}
	w, err := openAccessLog(s.cfg.AccessLog.Path)
	if err == nil {
		l.reopen(w)
	}
	return err
}

// lastRecords is how long what is left may take to be written when the server
// has stopped.
const lastRecords = time.Second

// closeRecords writes what is left; no stream runs any more.
func (s *Server) closeRecords() {
	ctx, cancel := context.WithTimeout(context.Background(), lastRecords)
	defer cancel()
	var both sync.WaitGroup
	defer both.Wait()
	if t := s.records.spans; t != nil {
		both.Go(func() { t.stop(ctx) })
	}
	if l := s.records.log; l != nil {
		both.Go(func() {
			if err := l.stop(ctx); err != nil {
				s.log.Warn("access log is incomplete", "err", err)
			}
		})
	}
}

// recording tells whether something is kept of streams that have ended.
func (s *Server) recording() bool { return s.records.log != nil || s.records.spans != nil }

// follow finds the request's place in a trace. Without tracing of ours, what
// the client says passes as it came, and is only logged.
func (c *client) follow() {
	c.trace, c.parent, c.hop = traceContext{}, [8]byte{}, c.hop[:0]
	r := &c.server.records
	if !c.server.recording() {
		return
	}
	c.events = wire.Events{}
	var came traceContext
	value, ok := c.req.Traceparent()
	if ok {
		came, ok = parseTraceparent(value)
	}
	switch {
	case r.spans == nil:
		c.trace = came
		return
	case ok:
		c.parent, c.trace = came.span, came.next()
	default:
		c.trace = newTrace(rand.Float64() < r.spans.sample)
	}
	c.hop = appendTraceparent(c.hop, c.trace)
}

// record hands on what there is to say of a stream that was settled.
func (c *client) record(f *failure) {
	r := &c.server.records
	traced := r.spans != nil && c.trace.sampled() && len(c.req.Method) > 0
	if r.log == nil && !traced {
		return
	}
	e := c.entry(f)
	if r.log != nil {
		r.log.record(&e)
	}
	if traced {
		r.spans.queue.record(&e)
	}
}

// entry is valid until the client's next request.
func (c *client) entry(f *failure) accessEntry {
	s := &c.stream
	e := accessEntry{
		started: s.started, requestID: c.id, client: c.addr, method: c.req.Method, host: c.req.Host, target: c.req.Target,
		code: c.told, pool: s.poolName, backend: s.target, epoch: s.epoch(), lookup: s.lookup(), attempts: s.attempts, queued: s.queued, connected: s.connecting,
		in: s.in.Load(), out: s.out.Load(), events: c.events.Count(), took: time.Since(s.started), reason: backend.Done,
		secure: c.secure, trace: c.trace.trace, span: c.trace.span, parent: c.parent, stale: s.renewed, sessionStale: s.visit != nil && s.visit.stale,
	}
	switch {
	case c.told != "":
		e.status = c.told.Status()
	case e.out > 0:
		e.status = c.resp.Status
	}
	if e.backend == "" {
		e.attempts = 0
	}
	if f != nil {
		e.reason = f.reason
	}
	if s.headIn > 0 {
		e.firstByte = s.headIn
	}
	return e
}

// counted has the relay of the answer count events, where the log wants them
// and they can be read.
func (c *client) counted() *wire.Events {
	if c.server.records.log == nil {
		return nil
	}
	kind, _ := c.resp.Field("content-type")
	kind, _, _ = bytes.Cut(kind, []byte{';'})
	if _, coded := c.resp.Field("content-encoding"); coded || !bytes.EqualFold(bytes.TrimRight(kind, " \t"), []byte("text/event-stream")) {
		return nil
	}
	return &c.events
}
