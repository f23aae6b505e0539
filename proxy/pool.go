package proxy

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// maxIdleLinks bounds the unused connections to one backend.
const maxIdleLinks = 512

// pool is a backend.Pool with what carrying streams to it needs.
type pool struct {
	*backend.Pool
	cfg       PoolConfig
	upstreams []upstream // by Backend.Slot
	shedding  *poolMetrics
	keys      *keyring     // for backends that are spoken to by TLS; nil where none is
	retrying  atomic.Int64 // retries that count against the budget
	between   atomic.Int64 // streams between two attempts, at no backend
}

// upstream is one backend's connections and counters.
type upstream struct {
	idle    *wire.Idle
	used    atomic.Int64 // connections that carry a stream
	metrics *backendMetrics
	where
}

func (s *Server) newPool(name string, cfg PoolConfig) (*pool, error) {
	p := &pool{cfg: cfg}
	bp, err := backend.NewPool(name, cfg.Backends, cfg.rules(), func(b *backend.Backend, st backend.Standing) {
		if st.State == backend.Ejected {
			p.upstreams[b.Slot].metrics.ejections.Inc()
		}
		s.log.Info("backend changed state", "pool", name, "backend", b.ID, "state", st.State, "reason", st.Reason)
	})
	if err != nil {
		return nil, err
	}
	p.Pool = bp
	if slices.ContainsFunc(bp.Backends, func(b *backend.Backend) bool { return b.Addr.TLS }) {
		if p.keys, err = backendKeys(name, cfg.Backend.TLS); err != nil {
			return nil, err
		}
		s.doors.hold(p.keys)
	}
	p.shedding = s.metrics.pool(name)
	p.upstreams = make([]upstream, len(bp.Backends))
	for i, b := range bp.Backends {
		p.upstreams[i].idle = wire.NewIdle(maxIdleLinks)
		p.upstreams[i].metrics = s.metrics.backend(name, b.ID)
	}
	return p, nil
}

// of is what belongs to a backend of this pool.
func (p *pool) of(b *backend.Backend) *upstream { return &p.upstreams[b.Slot] }

// kept takes an unused connection to the backend; nil where there is none.
func (p *pool) kept(b *backend.Backend) *wire.Link {
	l := p.of(b).idle.Get()
	if l != nil {
		p.of(b).used.Add(1)
	}
	return l
}

// keep puts a link whose exchange ended cleanly away for the next.
func (p *pool) keep(b *backend.Backend, l *wire.Link) {
	u := p.of(b)
	u.used.Add(-1)
	u.idle.Put(l, time.Now())
}

// drop closes a link that cannot be used again.
func (p *pool) drop(b *backend.Backend, l *wire.Link) {
	p.of(b).used.Add(-1)
	l.Close()
}

func (p *pool) sweep() {
	for i := range p.upstreams {
		p.upstreams[i].idle.Sweep(p.cfg.Timeouts.BackendKeepalive)
	}
}

func (p *pool) close() {
	for i := range p.upstreams {
		p.upstreams[i].idle.Close()
	}
}
