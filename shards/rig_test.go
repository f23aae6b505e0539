package shards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// world is the nodes of one shard in a bubble of virtual time: routers and owners
// as they are, over a network and a log that are made up and can be disturbed.
type world struct {
	t     testing.TB
	began time.Time
	rand  *lockedRand

	mu      sync.Mutex    // guards what follows
	delay   time.Duration // the longest of a message, each way
	loss    float64
	nodes   map[string]*peer
	names   []string
	cut     map[[2]string]bool // one way
	paused  map[string]chan struct{}
	leader  string // "": an election
	term    uint64
	log     []entry        // committed
	moved   chan struct{}  // closed, and made anew, when anything of the above changes
	pending []*simProposal // on their way
	filter  func(from, to string, q question) bool
	before  func(from, to string, q question) <-chan struct{} // a question that waits for it, however long
	after   func(from, to string, q question) <-chan struct{} // an answer that does
	slow    map[[2]string]time.Duration                       // how late a feed's messages come
	stalled bool                                              // nothing is committed
	rate    map[string]float64                                // of a node's clock; 0: right
	ahead   map[string]time.Duration                          // by how much it was set forward
	rules   map[string]Rule
	sets    []Set
	dead    map[string]bool
	leaving []Leaver
	bad     map[string]bool // backends that may not be chosen
	looks   int             // whether one may be
	unknown map[string]bool // backends of which nobody knows the pool
	pools   Pools

	elders   func() []uint64   // of nodes that boot from now on
	believed map[string]uint64 // nodes that take themselves for the leader of a term that is over
	without  cure
	noQuorum bool // a leader answers by its own belief
	noProof  bool // and without what was committed before
}

type entry struct {
	term    uint64
	command []byte
}

// peer is one life of a node.
type peer struct {
	w       *world
	name    string
	router  *Router
	machine *Machine // nil: no replica

	feed    sync.Mutex // guards what follows: one entry is applied after another
	results []any      // by entry
}

type simProposal struct {
	by      string
	term    uint64
	command []byte
	lost    chan struct{} // closed when the leader's term ends before it is committed
}

type lockedRand struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (r *lockedRand) n(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.IntN(n)
}

func (r *lockedRand) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(r.n(int(d)))
}

func (r *lockedRand) yes(p float64) bool { return float64(r.n(1<<30))/(1<<30) < p }

// newWorld has replicas on the first three nodes, of which the first leads. The
// pool "llm" is strict, "chat" is not; both have the backends b1 to b4.
func newWorld(t testing.TB, seed uint64, names []string, with ...func(*world)) *world {
	w := &world{
		t: t, began: time.Now(), delay: 2 * time.Millisecond, rand: &lockedRand{r: rand.New(rand.NewPCG(seed, 1))},
		nodes: make(map[string]*peer), names: names, cut: make(map[[2]string]bool), paused: make(map[string]chan struct{}),
		leader: names[0], term: 1, moved: make(chan struct{}),
		rules: map[string]Rule{
			"llm":  {TTL: time.Hour, Drain: time.Minute, Wait: 250 * time.Millisecond, Strict: true},
			"chat": {TTL: time.Hour, Drain: time.Minute, Wait: 250 * time.Millisecond},
		},
		dead: make(map[string]bool), bad: make(map[string]bool), unknown: make(map[string]bool), believed: make(map[string]uint64),
		slow: make(map[[2]string]time.Duration), rate: make(map[string]float64), ahead: make(map[string]time.Duration),
	}
	for _, f := range with {
		f(w)
	}
	for _, pool := range []string{"llm", "chat"} {
		s := Set{Pool: pool, Revision: 1}
		for i := range 4 {
			s.Backends = append(s.Backends, Backend{ID: fmt.Sprintf("%s-b%d", pool, i+1), Weight: 1})
		}
		w.sets = append(w.sets, s)
	}
	for i, name := range names {
		w.boot(name, uint64(1), i < 3)
	}
	t.Cleanup(w.end)
	return w
}

func (w *world) boot(name string, boot uint64, replica bool) *peer {
	h, err := NewHasher(bytes.Repeat([]byte{7}, 32), 1)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &peer{w: w, name: name}
	p.router = NewRouter(Options{Node: name, Boot: boot, Hash: h, Peers: simPeers{w, name}, Feeds: simFeeds{w, name}, Place: w, Rules: w, Fates: w, Pools: w.pools, Now: func() time.Duration { return w.clock(name) }, without: w.without, Elders: w.elders})
	if replica {
		p.machine = NewMachine()
		p.router.Own(1, NewOwner(simLog{w, p}, p.machine, 1))
		go p.applyLoop(w.t.Context())
	}
	w.set(func() { w.nodes[name] = p })
	if err := p.router.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) end() {
	w.set(func() {
		w.loss, w.filter = 0, nil
		clear(w.cut)
		for _, gate := range w.paused {
			close(gate)
		}
		clear(w.paused)
	})
	for _, p := range w.nodes {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		if err := p.router.Stop(ctx); err != nil {
			w.t.Error(err)
		}
		cancel()
	}
}

func (w *world) now() time.Duration { return time.Since(w.began) + time.Hour } // as of a machine that is up for a while

// clock is a node's, which may run fast or slow.
func (w *world) clock(name string) (now time.Duration) {
	w.get(func() {
		if now = w.now(); w.rate[name] != 0 {
			now = time.Duration(float64(now) * w.rate[name])
		}
		now += w.ahead[name]
	})
	return now
}

// set changes the world and wakes who waits for it.
func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.moved)
	w.moved = make(chan struct{})
}

func (w *world) get(f func()) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	return w.moved
}

func (w *world) node(name string) (p *peer) {
	w.get(func() { p = w.nodes[name] })
	return p
}

func (w *world) Replicas(uint32) (all []string) {
	w.get(func() {
		for _, name := range w.names {
			if w.nodes[name] != nil && w.nodes[name].machine != nil {
				all = append(all, name)
			}
		}
	})
	return all
}

func (w *world) Pool(pool string) (r Rule) {
	w.get(func() { r = w.rules[pool] })
	return r
}

func (w *world) Of(backend string) string {
	var unknown bool
	if w.get(func() { unknown = w.unknown[backend] }); unknown {
		return ""
	}
	pool, _, _ := bytes.Cut([]byte(backend), []byte("-"))
	return string(pool)
}

func (w *world) Sets() (all []Set) {
	w.get(func() { all = slices.Clone(w.sets) })
	return all
}

func (w *world) Dead(node string) (yes bool) {
	w.get(func() { yes = w.dead[node] })
	return yes
}

func (w *world) Leaving() (all []Leaver) {
	w.get(func() { all = slices.Clone(w.leaving) })
	return all
}

func (w *world) Usable(backend string) (ok bool) {
	w.get(func() { ok, w.looks = !w.bad[backend], w.looks+1 })
	return ok
}

// lead makes a node the leader of the next term. What was on its way is lost, or
// is in the new leader's log, as an entry of the old term, by chance.
func (w *world) lead(name string) {
	w.set(func() {
		for _, p := range w.pending {
			if w.rand.yes(0.5) {
				w.log = append(w.log, entry{p.term, p.command})
			}
			close(p.lost)
		}
		w.pending = nil
		if old := w.leader; old != "" && old != name && (w.paused[old] != nil || w.severed(old)) {
			w.believed[old] = w.term // nobody could tell it
		}
		w.leader = name
		delete(w.believed, name)
		if name != "" {
			w.term++
		}
	})
	if p := w.node(name); name != "" && p != nil && !w.noProof {
		p.catchUp()
	}
}

// severed says whether a node hears no other replica; mu is held.
func (w *world) severed(name string) bool {
	for _, other := range w.names[:3] {
		if other != name && !w.cut[[2]string{other, name}] {
			return false
		}
	}
	return true
}

// pause stops a node as SIGSTOP does: what it sends and gets waits.
func (w *world) pause(name string) { w.set(func() { w.paused[name] = make(chan struct{}) }) }

func (w *world) resume(name string) {
	w.set(func() {
		if gate := w.paused[name]; gate != nil {
			close(gate)
			delete(w.paused, name)
		}
	})
}

// gate waits while a node is paused.
func (w *world) gate(ctx context.Context, name string) error {
	for {
		var gate chan struct{}
		w.get(func() { gate = w.paused[name] })
		if gate == nil {
			return nil
		}
		select {
		case <-gate:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *world) part(a, b string, cut bool) {
	w.set(func() { w.cut[[2]string{a, b}], w.cut[[2]string{b, a}] = cut, cut })
}

// isolate cuts a node off from all others, or brings it back.
func (w *world) isolate(name string, cut bool) {
	for _, other := range w.names {
		if other != name {
			w.part(name, other, cut)
		}
	}
}

var (
	errLost    = errors.New("the message was lost")
	errNotLead = errors.New("not the leader")
)

// carry takes a message from one node to another, or loses it.
func (w *world) carry(ctx context.Context, from, to string) error {
	if err := w.gate(ctx, from); err != nil {
		return err
	}
	var lost bool
	var late time.Duration
	w.get(func() { lost, late = w.rand.yes(w.loss), w.rand.upTo(w.delay) })
	if err := pass(ctx, late); err != nil {
		return err
	}
	if err := w.gate(ctx, to); err != nil {
		return err
	}
	w.get(func() { lost = lost || w.cut[[2]string{from, to}] || w.nodes[to] == nil })
	if lost {
		return errLost
	}
	return nil
}

// pass lets virtual time go by.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type simPeers struct {
	w    *world
	from string
}

func (p simPeers) Call(ctx context.Context, node, service string, b []byte) ([]byte, error) {
	q, err := decodeQuestion(b)
	if err != nil || service != AskService {
		return nil, fmt.Errorf("service %s: %w", service, err)
	}
	var filter func(from, to string, q question) bool
	p.w.get(func() { filter = p.w.filter })
	if filter != nil && !filter(p.from, node, q) {
		<-ctx.Done()
		return nil, errLost
	}
	var before, after func(from, to string, q question) <-chan struct{}
	p.w.get(func() { before, after = p.w.before, p.w.after })
	late := ctx
	if before != nil {
		if wait := before(p.from, node, q); wait != nil {
			<-wait
			late = context.WithoutCancel(ctx) // it arrives, whether anybody waits for it or not
		}
	}
	if err := p.w.carry(late, p.from, node); err != nil {
		<-ctx.Done() // nobody says that it was lost
		return nil, err
	}
	to := p.w.node(node)
	answer, err := to.router.Answer(late, p.from, b)
	if after != nil {
		if wait := after(p.from, node, q); wait != nil {
			<-wait
		}
	}
	if err == nil {
		err = p.w.carry(ctx, node, p.from)
	}
	if err != nil {
		<-ctx.Done()
		return nil, err
	}
	return answer, nil
}

type simFeeds struct {
	w    *world
	from string // who reads
}

func (f simFeeds) Follow(ctx context.Context, node, _ string, r Reader) {
	for ctx.Err() == nil {
		r.Lost(f.follow(ctx, node, r))
		_ = pass(ctx, 20*time.Millisecond+f.w.rand.upTo(50*time.Millisecond))
	}
}

func (f simFeeds) follow(ctx context.Context, node string, r Reader) error {
	if err := f.w.carry(ctx, f.from, node); err != nil {
		return err
	}
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	messages := make(chan sent, 1024)
	opening := r.Open()
	var served sync.WaitGroup
	defer served.Wait()
	defer cut()
	served.Go(func() {
		defer cut()
		_ = f.w.node(node).router.Serve(ctx, f.from, opening, func(m []byte) error {
			select {
			case messages <- sent{m, f.w.now()}:
				return nil
			default:
				return errBehind
			}
		})
	})
	for {
		select {
		case m := <-messages:
			var late time.Duration
			f.w.get(func() { late = f.w.slow[[2]string{node, f.from}] })
			if err := pass(ctx, late-(f.w.now()-m.at)); err != nil {
				return err
			}
			if err := f.w.carry(ctx, node, f.from); err != nil {
				return err // a stream breaks, it does not lose a part
			}
			if err := r.Take(m.bytes); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sent is a message on its way.
type sent struct {
	bytes []byte
	at    time.Duration
}

// simLog is one replica's view of the log.
type simLog struct {
	w *world
	p *peer
}

// majority says whether the replica reaches one, itself included.
func (l simLog) majority() bool {
	n, all := 0, 0
	for _, other := range l.w.names {
		if l.w.nodes[other] == nil || l.w.nodes[other].machine == nil {
			continue
		}
		all++
		if other == l.p.name || !l.w.cut[[2]string{l.p.name, other}] && !l.w.cut[[2]string{other, l.p.name}] && l.w.paused[other] == nil {
			n++
		}
	}
	return n > all/2
}

func (l simLog) Leader() (name string) {
	l.w.get(func() {
		if name = l.w.leader; l.believes() {
			name = l.p.name
		}
	})
	return name
}

// believes says whether the node takes itself for the leader although it is not:
// it has heard of no other yet. mu is held.
func (l simLog) believes() bool {
	if l.w.believed[l.p.name] == 0 {
		return false
	}
	if l.w.paused[l.p.name] == nil && !l.w.severed(l.p.name) {
		delete(l.w.believed, l.p.name)
		return false
	}
	return true
}

// leads says in which term, if it does and reaches a majority.
func (l simLog) leads() (term uint64, ok, lost bool, moved <-chan struct{}) {
	moved = l.w.get(func() {
		lost = l.w.leader != l.p.name || l.w.nodes[l.p.name] != l.p
		term, ok = l.w.term, !lost && l.majority() && l.w.paused[l.p.name] == nil
	})
	return term, ok, lost, moved
}

func (l simLog) Proven(ctx context.Context) (uint64, error) {
	for {
		var late time.Duration
		l.w.get(func() { late = time.Millisecond/10 + l.w.rand.upTo(l.w.delay) })
		if err := pass(ctx, late); err != nil {
			return 0, err
		}
		if term := l.claims(); term > 0 {
			return term, nil
		}
		term, ok, lost, moved := l.leads()
		switch {
		case lost:
			return 0, errNotLead
		case ok:
			if !l.w.noProof {
				l.p.catchUp()
			}
			return term, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// claims is the term that the node takes itself for the leader of, where no
// majority has to confirm it.
func (l simLog) claims() (term uint64) {
	l.w.get(func() {
		switch {
		case l.w.noQuorum && l.w.believed[l.p.name] > 0:
			term = l.w.believed[l.p.name]
		case l.w.noQuorum && l.w.leader == l.p.name:
			term = l.w.term
		}
	})
	return term
}

func (l simLog) Propose(ctx context.Context, command []byte) (any, error) {
	term, _, lost, _ := l.leads()
	if lost {
		return nil, errNotLead
	}
	p := &simProposal{by: l.p.name, term: term, command: command, lost: make(chan struct{})}
	l.w.set(func() {
		if l.w.term == term && l.w.leader == l.p.name {
			l.w.pending = append(l.w.pending, p)
		} else {
			close(p.lost)
		}
	})
	late := 2*time.Millisecond + l.w.rand.upTo(5*time.Millisecond) // the disks
	for {
		select {
		case <-time.After(late):
		case <-p.lost:
			return nil, errors.New("the term ended: outcome unknown")
		}
		index := 0
		l.w.set(func() {
			at := slices.Index(l.w.pending, p)
			if at < 0 || l.w.stalled || !l.majority() || l.w.paused[l.p.name] != nil {
				return
			}
			l.w.pending = slices.Delete(l.w.pending, at, at+1)
			l.w.log = append(l.w.log, entry{term, command})
			index = len(l.w.log)
		})
		if index > 0 {
			return l.p.result(index)
		}
	}
}

// catchUp applies what is committed.
func (p *peer) catchUp() { _, _ = p.result(0) }

// result applies what is committed, and returns what became of one entry.
func (p *peer) result(index int) (any, error) {
	p.feed.Lock()
	defer p.feed.Unlock()
	var todo []entry
	p.w.get(func() { todo = slices.Clone(p.w.log[len(p.results):]) })
	for _, e := range todo {
		r, err := p.machine.Apply(e.term, uint64(len(p.results)+1), [][]byte{e.command})
		if err != nil {
			return nil, err
		}
		p.results = append(p.results, r[0])
	}
	if index == 0 {
		return nil, nil
	}
	return p.results[index-1], nil
}

// applyLoop is how a follower hears of what is committed.
func (p *peer) applyLoop(ctx context.Context) {
	for pass(ctx, 30*time.Millisecond) == nil {
		deaf := true
		p.w.get(func() {
			deaf = p.w.paused[p.name] != nil || p.w.noProof && p.w.leader == p.name || p.w.leader == "" || p.w.cut[[2]string{p.w.leader, p.name}] || p.w.nodes[p.name] != p
		})
		if !deaf {
			p.catchUp()
		}
	}
}

// isHeld says whether a change of the session is on its way; mu is held.
func (p *stripe) isHeld(k Key) bool {
	l := p.live[k]
	return l != nil && l.held != 0
}
