// Package health asks backends, apart from all streams, whether they are well,
// and tells their pools what it found; what follows from that is the pools'
// affair. It promises to hold up no stream: it has connections of its own, and a
// bounded number of them. It must not know what streams carry, nor who else asks.
package health

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy/backend"
)

const (
	atOnce    = 256                    // checks under way, of all pools
	followed  = 200 * time.Millisecond // after which a backend that joined or left is noticed, at most
	firstWait = time.Second            // before a backend's first check, at most: many that join are not asked at once
	idleWait  = time.Second            // between two looks at whether a backend is to be checked at all
)

// Options are the prober's seams to the rest.
type Options struct {
	Logger   *slog.Logger
	Registry prometheus.Registerer
	Connect  func(ctx context.Context, pool string, b *backend.Backend) (net.Conn, error) // as streams do
	Assigned func(b *backend.Backend) bool                                                // whether this node checks it; nil: it checks all
}

// Prober checks the backends of some pools, as their rules ask.
type Prober struct {
	opt    Options
	there  func() []*backend.Pool
	pools  []*patients
	checks *prometheus.CounterVec
	slots  chan struct{} // holds a token for each check that runs

	ctx    context.Context // ends with the prober
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// patients are a pool's backends under watch. followLoop has them.
type patients struct {
	pool    *backend.Pool
	pace    pace
	watched map[*backend.Backend]context.CancelFunc
}

// New makes a prober for the pools, which may become others.
func New(pools func() []*backend.Pool, opt Options) (*Prober, error) {
	p := &Prober{opt: opt, there: pools, slots: make(chan struct{}, atOnce)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.checks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "starling", Name: "health_checks_total", Help: "Health checks of backends, by what they found.",
	}, []string{"pool", "backend", "result"})
	return p, opt.Registry.Register(p.checks)
}

// Start begins to check.
func (p *Prober) Start(context.Context) error {
	p.followAll()
	p.tasks.Go(p.followLoop)
	return nil
}

// Stop ends all checks.
func (p *Prober) Stop() {
	p.cancel()
	p.tasks.Wait()
}

// followLoop sees to it that just the backends of the pools are watched.
func (p *Prober) followLoop() {
	tick := time.NewTicker(followed)
	defer tick.Stop()
	for {
		p.followAll()
		for _, pool := range p.pools {
			pool.pace.settle(time.Now())
		}
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// followAll follows the pools that there are, and drops those that are gone.
func (p *Prober) followAll() {
	there := p.there()
	p.pools = slices.DeleteFunc(p.pools, func(t *patients) bool {
		if slices.Contains(there, t.pool) {
			return false
		}
		p.follow(t, nil)
		return true
	})
	for _, pool := range there {
		i := slices.IndexFunc(p.pools, func(t *patients) bool { return t.pool == pool })
		if i < 0 {
			i = len(p.pools)
			p.pools = append(p.pools, &patients{pool: pool, watched: map[*backend.Backend]context.CancelFunc{}})
		}
		p.follow(p.pools[i], pool.Backends())
	}
}

// follow has just these backends of a pool watched.
func (p *Prober) follow(pool *patients, list []*backend.Backend) {
	there := map[*backend.Backend]bool{}
	for _, b := range list {
		there[b] = true
		if pool.watched[b] == nil {
			ctx, cancel := context.WithCancel(p.ctx)
			pool.watched[b] = cancel
			pool.pace.begin(b)
			for _, f := range backend.Findings() {
				p.checks.WithLabelValues(pool.pool.Name, b.ID, string(f))
			}
			p.tasks.Go(func() { p.watchLoop(ctx, newTarget(p, pool, b)) })
		}
	}
	for b, cancel := range pool.watched {
		if !there[b] {
			cancel()
			delete(pool.watched, b)
			pool.pace.drop(b)
		}
	}
}

// watchLoop checks one backend for as long as it is in its pool.
func (p *Prober) watchLoop(ctx context.Context, t *target) {
	wait := time.NewTimer(rand.N(min(firstWait, t.pool.pool.Health().Interval)))
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			p.forget(t)
			return
		case <-wait.C:
		}
		wait.Reset(p.turn(ctx, t))
	}
}

// forget takes away what was counted of a backend that left, unless there is
// another of its id: that one goes on counting.
func (p *Prober) forget(t *target) {
	pool := t.pool.pool
	if !slices.Contains(p.there(), pool) || !slices.ContainsFunc(pool.Backends(), func(b *backend.Backend) bool { return b.ID == t.backend.ID }) {
		p.checks.DeletePartialMatch(prometheus.Labels{"pool": pool.Name, "backend": t.backend.ID})
	}
}

// turn makes a check, if one is wanted, and tells how long to wait for the next.
func (p *Prober) turn(ctx context.Context, t *target) time.Duration {
	cfg := t.pool.pool.Health()
	if !cfg.Enabled || p.opt.Assigned != nil && !p.opt.Assigned(t.backend) {
		return idleWait
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	look := t.look(ctx, cfg)
	<-p.slots
	if ctx.Err() != nil {
		return 0
	}
	t.pool.pool.Looked(t.backend, look)
	p.checks.WithLabelValues(t.pool.pool.Name, t.backend.ID, string(look.Finding)).Inc()
	return spread(pause(cfg, look, t.pool.pool.Verdict(t.backend)), cfg.Jitter)
}

// pause is the time from a check to the next: shorter while the verdict may be
// about to change, longer while the backend is down.
func pause(cfg backend.HealthConfig, l backend.Look, v backend.Verdict) time.Duration {
	switch {
	case (l.Finding == backend.LookFail) != v.Down, l.Finding != backend.LookFail && (l.Finding == backend.LookNotReady) != v.NotReady:
		return cfg.Interval / 2
	case v.Down:
		return cfg.DownInterval
	}
	return cfg.Interval
}

// spread is d, longer or shorter by a random part of share.
func spread(d time.Duration, share float64) time.Duration {
	return time.Duration(float64(d) * (1 + share*(2*rand.Float64()-1)))
}
