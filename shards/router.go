package shards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// The services under which nodes answer each other for shards.
const (
	AskService  = "shards.ask"
	FeedService = "shards.feed"
)

const (
	askRest   = 10 * time.Millisecond // after a round in which nobody led; doubles
	askRestTo = 200 * time.Millisecond
	askTime   = time.Second // for one node: one that hangs shall not take all the time there is
)

// Router is a node's part in sessions. It knows whom to ask about one, this node
// or another one hop away, and keeps what this node's turns need: what it was told
// of bindings, the leases under which that may be used, and which turns run.
type Router struct {
	Options
	desk       *desk
	rebalancer *rebalancer
	cache      *Cache
	sections   []*section // shard 1 is the first
	counts     counts
	pools      sync.Map // name of a pool with sessions here: struct{}

	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	wake   chan struct{} // one place: a renewal is due at once
	offers chan struct{} // a place for each provisional choice that is offered just now
	lives  atomic.Uint64 // of feeds
	away   atomic.Bool   // another process is the node now: it is asked like any other

	noticed, jumped atomic.Int64 // when its clock was looked at last, and when it had jumped
	born            time.Time    // by the runtime's clock
	ahead           atomic.Int64 // the leases' clock, of the time since then

	mu      sync.Mutex // guards what follows
	stopped bool
	hints   map[uint32]string // who answered last for a shard that is led elsewhere
	follows map[string]*follower
}

type counts struct {
	held, heldOut, stale, detours atomic.Int64
	rebound, outlived             atomic.Int64
	provisional                   atomic.Int64 // a gauge
}

// Counts is what a Router has counted; Provisional is how many choices nobody has
// agreed to yet. Stale, Detours, Rebound and Outlived are turns beside which another
// may have run elsewhere.
type Counts struct {
	Held, HeldOut, Stale, Detours, Rebound, Outlived int64
	Evicted                                          int64
	Provisional                                      int64
}

// Counts returns them.
func (r *Router) Counts() Counts {
	return Counts{
		Held: r.counts.held.Load(), HeldOut: r.counts.heldOut.Load(), Stale: r.counts.stale.Load(), Detours: r.counts.detours.Load(),
		Rebound: r.counts.rebound.Load(), Outlived: r.counts.outlived.Load(),
		Evicted: r.desk.evicted.Load(), Provisional: r.counts.provisional.Load(),
	}
}

// Moves returns what became of the moves of each pool, in the shards that this node
// has led.
func (r *Router) Moves() map[string]Moves {
	r.desk.tally.Lock()
	defer r.desk.tally.Unlock()
	all := make(map[string]Moves)
	for _, s := range r.Rules.Sets() {
		all[s.Pool] = Moves{}
	}
	maps.Copy(all, r.desk.moves)
	return all
}

// Sessions returns how many sessions each pool has in the shards that this node
// leads.
func (r *Router) Sessions() map[string]int {
	all := make(map[string]int)
	for _, s := range r.Rules.Sets() {
		all[s.Pool] = 0
	}
	for _, o := range r.desk.all() {
		if o.log.Leader() != r.Node {
			continue
		}
		o.machine.View(func(t *Table, _ Position) {
			for _, id := range t.backends.text {
				if id != "" {
					all[o.poolIn(t, id)] += t.Count(id)
				}
			}
		})
	}
	return all
}

// NewRouter checks and allocates. Feeds, Rules, Fates, Log and Now may be left out
// by who only asks: then there are no turns.
func NewRouter(o Options) *Router {
	o = o.complete()
	r := &Router{
		Options: o, desk: newDesk(o), cache: NewCache(o.Most),
		wake: make(chan struct{}, 1), offers: make(chan struct{}, maxOffers),
		hints: make(map[uint32]string), follows: make(map[string]*follower), born: time.Now(),
	}
	r.setWatch(r.Now())
	r.rebalancer = newRebalancer(r.desk, o)
	for shard := range o.Hash.count {
		r.sections = append(r.sections, newSection(uint32(shard)+1))
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

func (o Options) complete() Options {
	if o.Rules == nil {
		o.Rules = nothing{}
	}
	if o.Fates == nil {
		o.Fates = nothing{}
	}
	if o.Elders == nil {
		o.Elders = func() []uint64 { return nil }
	}
	if o.Pools == nil {
		o.Pools = nothing{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		began := time.Now()
		o.Now = func() time.Duration { return time.Since(began) }
	}
	if o.Most == 0 {
		o.Most = 1 << 20
	}
	return o
}

// nothing is known, and no rule holds.
type nothing struct{}

func (nothing) Pool(string) Rule   { return Rule{} }
func (nothing) Of(string) string   { return "" }
func (nothing) Sets() []Set        { return nil }
func (nothing) Dead(string) bool   { return false }
func (nothing) Leaving() []Leaver  { return nil }
func (nothing) Usable(string) bool { return true }
func (nothing) Names() []string    { return nil }
func (nothing) Plan(string) (c backend.RebalanceConfig, v View, ok bool) {
	return c, v, false
}

// Start begins to renew leases and to do what leaders owe.
func (r *Router) Start(context.Context) error {
	r.desk.work(r.desk.tickLoop)
	r.desk.work(r.rebalancer.loop)
	r.begin(r.renewLoop)
	r.begin(r.reportLoop)
	return nil
}

// begin runs a task that Stop waits for; none begins after it.
func (r *Router) begin(task func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.tasks.Go(task)
	}
}

// Stop ends all that Start began. Whose turns have all ended leaves empty: it is no
// holder any more.
func (r *Router) Stop(ctx context.Context) error {
	r.mu.Lock()
	r.stopped = true // no renewal is sent from here on: the farewell is the last word
	r.mu.Unlock()
	r.farewell(ctx)
	r.cancel()
	r.tasks.Wait()
	r.desk.stop()
	return nil
}

// Outlive has the router go on for turns of its own when another process has become
// the node: that one answers and leads in its name, and is reached by Peers and Feeds
// as others are. This one stays a holder until Stop.
func (r *Router) Outlive() {
	r.away.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	for node, f := range r.follows { // they are opened anew by the other way
		f.end()
		delete(r.follows, node)
	}
}

// Leased tells whether every shard from which leases are wanted has granted one.
func (r *Router) Leased() bool {
	for _, s := range r.sections {
		if s.wanted.Load() != 0 && !s.leased(r.Now()) {
			return false
		}
	}
	return true
}

// Turns is how many turns run here.
func (r *Router) Turns() (n int) {
	for _, s := range r.sections {
		n += s.turns()
	}
	return n
}

// Own adds the owner of a shard that has a replica here, or takes it away (nil).
func (r *Router) Own(shard uint32, o *Owner) { r.desk.own(shard, o) }

// Bind returns the session's binding; if it has none, the proposal becomes it. It
// asks on until ctx ends; an error then says that the outcome is not known. It is
// for who needs no turn.
func (r *Router) Bind(ctx context.Context, pool, name, proposal string) (Binding, error) {
	if proposal == "" || len(proposal) > maxName {
		return Binding{}, fmt.Errorf("bind: backend id %q: want 1 to %d bytes", proposal, maxName)
	}
	session, shard := r.Hash.Key(pool, name)
	a, err := r.insist(ctx, question{ask: askBind, shard: shard, session: session, backend: proposal})
	if err == nil && a.verdict == full {
		err = errFull
	}
	return a.binding, err
}

var errFull = errors.New("bind: the shard is full")

// Read returns the session's binding, if it has one.
func (r *Router) Read(ctx context.Context, pool, name string) (Binding, bool, error) {
	session, shard := r.Hash.Key(pool, name)
	a, err := r.insist(ctx, question{ask: askRead, shard: shard, session: session})
	return a.binding, a.verdict == bound, err
}

// insist asks until no change of the session is on its way.
func (r *Router) insist(ctx context.Context, q question) (answer, error) {
	for {
		a, err := r.ask(ctx, q)
		if err != nil || a.verdict != held {
			return a, err
		}
		if !rest(ctx, heldRest) {
			return answer{}, context.Cause(ctx)
		}
	}
}

// Answer is the service for questions: this node answers for itself and asks
// nobody else.
func (r *Router) Answer(ctx context.Context, from string, b []byte) ([]byte, error) {
	q, err := decodeQuestion(b)
	if err != nil {
		return nil, err
	}
	return r.desk.answer(ctx, from, q).encode(), nil
}

// Serve is the service for feeds: it sends to a node that has opened one until ctx
// ends. send never waits; its error ends the feed.
func (r *Router) Serve(ctx context.Context, from string, opening []byte, send func(message []byte) error) error {
	return r.desk.serve(ctx, from, opening, send)
}

// ask goes from node to node until one answers as the leader.
func (r *Router) ask(ctx context.Context, q question) (answer, error) {
	last := error(nil)
	for rest := askRest; ; rest = min(2*rest, askRestTo) {
		a, err := r.round(ctx, q)
		if err == nil {
			return a, nil
		}
		last = err
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return answer{}, fmt.Errorf("shard %d: %w: %w: last: %w", q.shard, ErrNoLeader, context.Cause(ctx), last)
		}
	}
}

// round asks who is thought to lead, then whoever that one names, then each
// replica, nobody twice.
func (r *Router) round(ctx context.Context, q question) (answer, error) {
	next := r.candidates(q.shard)
	asked := make(map[string]bool)
	last := errors.New("no node is known to have a replica")
	for len(next) > 0 && ctx.Err() == nil {
		node := next[0]
		next = next[1:]
		if asked[node] {
			continue
		}
		asked[node] = true
		a, err := r.put(ctx, node, q)
		switch {
		case err != nil:
			last = err
		case a.verdict == elsewhere && a.leader != "":
			last = fmt.Errorf("node %s names node %s", node, a.leader)
			next = append([]string{a.leader}, next...)
		case a.verdict == elsewhere || a.verdict == unknown:
			last = fmt.Errorf("node %s cannot tell", node)
		default:
			r.hint(q.shard, node)
			return a, nil
		}
	}
	return answer{}, last
}

// put asks one node.
func (r *Router) put(ctx context.Context, node string, q question) (answer, error) {
	q.boot = r.Boot
	q.live(r.Elders())
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if node == r.Node && !r.away.Load() {
		return r.desk.answer(ctx, node, q), nil
	}
	b, err := r.Peers.Call(ctx, node, AskService, q.encode())
	if err != nil {
		return answer{}, err
	}
	return decodeAnswer(b)
}

// candidates is the order in which to ask.
func (r *Router) candidates(shard uint32) []string {
	o := r.desk.owner(shard)
	r.mu.Lock()
	hint := r.hints[shard]
	r.mu.Unlock()
	var first []string
	if o != nil {
		first = append(first, o.log.Leader())
	}
	first = append(first, hint)
	first = append(first, r.Place.Replicas(shard)...)
	if r.away.Load() {
		first = append(first, r.Node) // who may know by now
	}
	return slices.DeleteFunc(first, func(n string) bool { return n == "" })
}

func (r *Router) hint(shard uint32, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hints[shard] = node
}
