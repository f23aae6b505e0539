package shards

import (
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// Pools tells what this node sees of a pool, for planning: its settings and a View
// without Now, Pending and Sessions. It must not wait. false: the node has no such
// pool.
type Pools interface {
	Plan(pool string) (backend.RebalanceConfig, View, bool)
	Names() []string // of those with sessions
}

// rebalancer asks a planner for each pool in each shard that this node leads, and
// has the owner do what it says. Planners know what was moved: they go when the
// shard is led by another, and begin anew.
type rebalancer struct {
	desk   *desk
	pools  Pools
	shards int
	log    *slog.Logger

	plans map[job]*plan // the loop's own

	mu   sync.Mutex // guards told
	told map[string]*Rebalanced
}

// job is a pool in a shard.
type job struct {
	shard uint32
	pool  string
}

type plan struct {
	planner *Planner
	due     time.Duration
	seen    bool // in this round
}

// Rebalanced is what became of a pool's intervals in the shards that a node leads.
type Rebalanced struct {
	Last   Decision // no Reason: there was none yet
	Shard  uint32   // of the last
	At     time.Duration
	Counts map[Reason]int64 // of every Reason
}

func newRebalancer(d *desk, o Options) *rebalancer {
	return &rebalancer{desk: d, pools: o.Pools, shards: o.Hash.count, log: o.Log, plans: make(map[job]*plan), told: make(map[string]*Rebalanced)}
}

func (b *rebalancer) loop() {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.round(b.desk.now())
		case <-b.desk.ctx.Done():
			return
		}
	}
}

// round asks whichever planner is due.
func (b *rebalancer) round(now time.Duration) {
	for _, o := range b.desk.all() {
		if !o.leads() {
			b.keep(o)
			continue
		}
		for _, pool := range o.pools() {
			if c, v, ok := b.pools.Plan(pool); ok {
				v.Now, v.Pending, v.Sessions = now, o.pending(), o.sessions
				v.Report = reportsFor(b.desk.rules.Pool(pool).TTL)
				b.interval(o, job{o.shard, pool}, c, v)
			}
		}
	}
	for j, p := range b.plans {
		if !p.seen {
			delete(b.plans, j)
		}
		p.seen = false
	}
}

// keep keeps the plans of a leader that is in doubt for a moment: what it moved counts
// as long as its term.
func (b *rebalancer) keep(o *Owner) {
	if !o.reigns() {
		return
	}
	for j, p := range b.plans {
		p.seen = p.seen || j.shard == o.shard
	}
}

// interval plans, if it is time. The shards take turns within an interval, so that
// each sees what those before it did.
func (b *rebalancer) interval(o *Owner, j job, c backend.RebalanceConfig, v View) {
	p := b.plans[j]
	if p == nil {
		first := time.Duration(float64(c.Interval) * (float64(j.shard) - 0.5) / float64(b.shards))
		p = &plan{planner: NewPlanner(c, int(j.shard), b.shards), due: v.Now + first}
		b.plans[j] = p
	}
	if p.seen = true; v.Now < p.due {
		return
	}
	p.due = v.Now + c.Interval
	p.planner.Configure(c)
	moves, d := p.planner.Plan(v)
	level := slog.LevelDebug
	if len(moves) > 0 {
		level = slog.LevelInfo
		o.propose(moves)
	}
	b.log.Log(b.desk.ctx, level, "rebalancing looked", "pool", j.pool, "shard", j.shard, "reason", d.Reason, "moves", d.Moves, "step_time_cv", d.CV, "excess", d.Excess, "requests_per_second", d.Pace, "spike_above", d.Limit)
	b.tell(j, d, v.Now)
}

func (b *rebalancer) tell(j job, d Decision, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.of(j.pool)
	r.Last, r.Shard, r.At = d, j.shard, now
	r.Counts[d.Reason]++
}

// of is called with mu held.
func (b *rebalancer) of(pool string) *Rebalanced {
	r := b.told[pool]
	if r == nil {
		r = &Rebalanced{Counts: make(map[Reason]int64)}
		for _, reason := range Reasons() {
			r.Counts[reason] = 0
		}
		b.told[pool] = r
	}
	return r
}

// Rebalanced says what this node's planners did lately, by pool with sessions. At
// is by the Router's clock.
func (r *Router) Rebalanced() map[string]Rebalanced {
	b := r.rebalancer
	names := b.pools.Names()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, pool := range names {
		b.of(pool)
	}
	all := make(map[string]Rebalanced, len(b.told))
	for pool, told := range b.told {
		one := *told
		one.Counts = maps.Clone(one.Counts)
		all[pool] = one
	}
	return all
}

// pools are those with sessions in the shard.
func (o *Owner) pools() (all []string) {
	o.machine.View(func(t *Table, _ Position) {
		for pool := range t.sets {
			if t.crowd(pool) > 0 {
				all = append(all, pool)
			}
		}
	})
	return all
}

// pending is how many changes of sessions wait to be made.
func (o *Owner) pending() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reign == nil {
		return 0
	}
	return len(o.reign.wants)
}
