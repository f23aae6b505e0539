package proxy

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// maxIdleLinks bounds the unused connections to one backend.
const maxIdleLinks = 512

// pool is a backend.Pool with what carrying streams to it needs. It never changes:
// a reload makes another one for the same backends, and a stream keeps the one
// that it began with.
type pool struct {
	*backend.Pool
	*tally
	cfg         PoolConfig
	shedding    *poolMetrics
	hashKey     []keySource // what consistent_hash goes by
	scan        int         // bytes of a body to find a key in
	places      []keySource // of a session's key; nil: the pool has no sessions
	cookies     *cookies    // for clients that bring no key; nil: they get none
	epochHeader string      // that tells a backend the session's epoch; empty: none
	ours        [2]string   // names of fields that no client can write; empty: none
	keys        *keyring    // for backends that are spoken to by TLS
	moves       bool        // sessions may move to make backends alike in load
}

// tally is what a pool counts besides; all that are made of it share it.
type tally struct {
	left     leavers
	rests    atomic.Int64 // until when no heavy turn asks for a move, in ns since 1970
	retrying atomic.Int64 // retries that count against the budget
	between  atomic.Int64 // streams between two attempts, at no backend
	gone     time.Time    // when the configuration lost the pool; Server.changing guards it
}

// upstream is one backend's connections and counters.
type upstream struct {
	idle    *wire.Idle
	used    atomic.Int64 // connections that carry a stream
	metrics *backendMetrics
	where
}

// newPool makes a pool, of the backends that was has if there is one.
func (s *Server) newPool(name string, cfg PoolConfig, was *pool) (p *pool, err error) {
	p = &pool{cfg: cfg}
	if was != nil {
		p.Pool, p.tally = was.Pool, was.tally
		for _, b := range cfg.Backends {
			if _, err := backend.ParseURL(b.URL); err != nil {
				return nil, fmt.Errorf("backend %q of pool %q: %w", b.ID, name, err)
			}
		}
	} else if err = s.people(p, name); err != nil {
		return nil, err
	}
	if p.hashKey, err = parseKeySources([]string{cfg.Placement.HashKey}); err != nil {
		return nil, fmt.Errorf("hash_key of pool %q: %w", name, err)
	}
	if err := s.furnish(p); err != nil {
		return nil, fmt.Errorf("sticky.key of pool %q: %w", name, err)
	}
	p.ours = [2]string{p.epochHeader, cfg.Headers.RequestID}
	if was != nil && was.cfg.Backend.TLS == cfg.Backend.TLS {
		p.keys = was.keys
	} else if p.keys, err = backendKeys(name, cfg.Backend.TLS); err != nil {
		return nil, err
	}
	p.shedding = s.metrics.pool(name, cfg.Sticky != nil)
	s.metrics.compared.begin(name, cfg.placement())
	return p, nil
}

// people gives a new pool its backends.
func (s *Server) people(p *pool, name string) (err error) {
	t := &tally{}
	p.tally = t
	p.Pool, err = backend.NewPool(name, p.cfg.Backends, p.cfg.rules(), backend.Hooks{
		Joined: func(b *backend.Backend) any {
			return &upstream{idle: wire.NewIdle(maxIdleLinks), metrics: s.metrics.backend(name, b.ID)}
		},
		Changed: func(b *backend.Backend, st backend.Standing) {
			if st.State == backend.Ejected {
				upstreamOf(b).metrics.ejections.Inc()
			}
		},
		Told:    s.told,
		Drained: s.metrics.drained,
		Left: func(b *backend.Backend) {
			upstreamOf(b).idle.Close()
			t.left.add(b.ID, time.Now())
		},
	}, time.Now())
	if err == nil {
		p.Tight = s.opt.Tight
	}
	return err
}

// furnish gives a pool what its sessions need, where it and the node have any.
func (s *Server) furnish(p *pool) (err error) {
	p.scan = maxRouteBody
	c := p.cfg.Sticky
	if c == nil {
		return nil
	}
	p.scan, p.epochHeader, p.moves = int(c.MaxBodyScan), c.EpochHeader, p.cfg.Rebalance.Enabled
	if s.opt.Sessions == nil {
		s.log.Warn("pool's sessions are kept nowhere: its streams go anywhere", "pool", p.Name)
		return nil
	}
	if c.hands() {
		p.cookies = newCookies(c.Cookie)
	}
	p.places, err = parseKeySources(c.Key)
	return err
}

func upstreamOf(b *backend.Backend) *upstream { return b.Beside.(*upstream) }

// of is what belongs to a backend of this pool.
func (p *pool) of(b *backend.Backend) *upstream { return upstreamOf(b) }

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
	for _, b := range p.Backends() {
		p.of(b).idle.Sweep(p.cfg.Timeouts.BackendKeepalive)
	}
}

func (p *pool) close() {
	for _, b := range p.Backends() {
		p.of(b).idle.Close()
	}
}
