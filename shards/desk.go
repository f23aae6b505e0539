package shards

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// desk is the leading side of a node: the owners of its shards, and the feeds that
// other nodes have opened here.
type desk struct {
	node  string
	now   func() time.Duration
	rules Rules
	fates Fates
	o     *Options

	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	evicted atomic.Int64

	tally sync.Mutex // guards moves
	moves map[string]Moves

	mu     sync.Mutex // guards what follows; taken after Owner.mu
	ended  bool
	owners map[uint32]*Owner
	feeds  map[Holder]*outlet
}

func newDesk(o Options) *desk {
	d := &desk{node: o.Node, now: o.Now, rules: o.Rules, fates: o.Fates, o: &o, owners: make(map[uint32]*Owner), feeds: make(map[Holder]*outlet), moves: make(map[string]Moves)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// work runs a task that Stop waits for; none begins after it.
func (d *desk) work(task func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended {
		d.tasks.Go(task)
	}
}

func (d *desk) stop() {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.cancel()
	d.tasks.Wait()
}

func (d *desk) own(shard uint32, o *Owner) {
	if o != nil {
		o.shard, o.desk = shard, d
	}
	d.mu.Lock()
	old := d.owners[shard]
	if o == nil {
		delete(d.owners, shard)
	} else {
		o.machine.Tap(o.tap) // not before: of two who come at once one answers, and that one must hear
		d.owners[shard] = o
	}
	d.mu.Unlock()
	if old != nil {
		old.abdicate()
	}
}

func (d *desk) owner(shard uint32) *Owner {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.owners[shard]
}

func (d *desk) all() []*Owner {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*Owner, 0, len(d.owners))
	for _, o := range d.owners {
		all = append(all, o)
	}
	return all
}

// answer is this node's own word: it asks nobody else.
func (d *desk) answer(ctx context.Context, from string, q question) answer {
	o := d.owner(q.shard)
	if o == nil {
		return answer{verdict: elsewhere}
	}
	return o.answer(ctx, from, q)
}

// tickEvery is how often a leader looks what is due.
const tickEvery = 100 * time.Millisecond

func (d *desk) tickLoop() {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			sets := d.rules.Sets()
			for _, o := range d.all() {
				o.tick(sets)
			}
		case <-d.ctx.Done():
			return
		}
	}
}

// rule is that of a backend's pool.
func (d *desk) rule(backend string) Rule { return d.rules.Pool(d.rules.Of(backend)) }

func (d *desk) dead(node string) bool      { return d.fates.Dead(node) }
func (d *desk) leaving() []Leaver          { return d.fates.Leaving() }
func (d *desk) usable(backend string) bool { return d.fates.Usable(backend) }

// leaves says whether a backend's sessions are to leave it.
func (d *desk) leaves(backend string) bool {
	return slices.ContainsFunc(d.leaving(), func(l Leaver) bool { return l.Backend == backend })
}

// Moves is what became of a pool's moves.
type Moves struct {
	Done, Cancelled int64
	Rebound         int64 // sessions bound elsewhere at once, since their backend was gone
}

func (d *desk) rebound(pool string, n int) {
	d.tally.Lock()
	defer d.tally.Unlock()
	m := d.moves[pool]
	m.Rebound += int64(n)
	d.moves[pool] = m
}

func (d *desk) counted(pool string, done bool) {
	d.tally.Lock()
	defer d.tally.Unlock()
	m := d.moves[pool]
	if done {
		m.Done++
	} else {
		m.Cancelled++
	}
	d.moves[pool] = m
}

// outlet is the sending end of one life of a feed.
type outlet struct {
	mu   sync.Mutex
	send func(message []byte) error // never waits
	err  error                      // the reader does not keep up: the feed is cut, and opened afresh
	cut  func()
}

// put sends items, in order.
func (f *outlet) put(items ...item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range encodeItems(items) {
		if f.err != nil {
			return
		}
		if f.err = f.send(m); f.err != nil {
			f.cut()
		}
	}
}

func (f *outlet) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// feed is a holder's, if it is open.
func (d *desk) feed(h Holder) *outlet {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.feeds[h]
}

// serve is one life of a feed, from its opening message until ctx ends or its
// reader does not keep up. Its backlog is bounded by whoever sends.
func (d *desk) serve(ctx context.Context, from string, opening []byte, send func([]byte) error) error {
	r := reader{rest: opening}
	version := r.byte()
	h := Holder{Node: from, Boot: r.uint64()}
	if err := r.done("feed's opening", version); err != nil {
		return err
	}
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	f := &outlet{send: send, cut: cut}
	d.mu.Lock()
	if old := d.feeds[h]; old != nil {
		old.cut() // the reader has left it, whether that is known here or not
	}
	d.feeds[h] = f
	d.mu.Unlock()
	f.put() // it is open
	select {
	case <-ctx.Done():
	case <-d.ctx.Done():
	}
	d.mu.Lock()
	if d.feeds[h] == f {
		delete(d.feeds, h)
	}
	d.mu.Unlock()
	return f.failed()
}
