package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/consensus"
	"github.com/starling-lb/starling/consensus/store"
	"github.com/starling-lb/starling/consensus/transport"
	"github.com/starling-lb/starling/shards"
	"github.com/starling-lb/starling/shards/meta"
)

// Around is the other nodes, as far as one can know them without asking.
type Around interface {
	Peers() []Peer // this node among them
	Tell(Notice)   // lets the others know it of this node
}

// Peer is a node that is there, or was.
type Peer struct {
	ID, Name, Zone string
	RPC            string // host:port of its node calls; "": not known yet
	Cluster        string // "": it has none yet
	Boot           uint64 // counts its starts
	Level          uint32
	Hosts          bool // it keeps replicas, if asked to
	Alive          bool
	Ends           bool // it is about to stop, for good or to start again
	Failed         bool // its disk has failed: it keeps nothing
	Expect, Sees   int
	Generation     uint32 // of shard 0 in its map; 0: it has none
}

// Notice is what a node lets the others know of itself.
type Notice struct {
	RPC     net.Addr // where it listens; nil: nowhere
	Cluster string
	Sees    int

	Generation uint32 // of shard 0: who has an earlier one decides nothing more
}

// Options is what a Quorum gets from whoever builds it.
type Options struct {
	Self   Peer   // ID, Name, Zone; a node alone has no more
	Dir    string // the node's data directory, whose lock the node has
	Config Config
	RPC    transport.Config
	Expect int           // nodes that a new cluster begins with
	Wait   time.Duration // for others, before a cluster of one is founded
	// Unheard, if set, are the seeds that do not answer. Who has some founds no cluster
	// alone: theirs may only be down.
	Unheard func() []string
	Around  Around       // nil: a node alone. It founds its own cluster at once, and listens nowhere
	Pools   shards.Pools // nil: no session is moved to even out load
	Rules   shards.Rules // of sessions
	Fates   shards.Fates
	Names   func() map[string]meta.Named // what this node knows of backends; nil: they are not agreed on
	Elders  func() []uint64              // boots of this node's older processes that live; nil: none do
	// Changed, if set, hears of newer maps, and may take its time.
	Changed func(*meta.Map)
	Aside   bool   // operators have set this node aside
	Failed  func() // if set, hears that the store has failed
	Look    Hear   // answers what other nodes ask about this one; nil: nothing does
	Order   Hear   // does what other nodes tell this one; nil: nothing does
	Log     *slog.Logger

	Metrics prometheus.Registerer
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Listen  func(ctx context.Context, network, address string) (net.Listener, error)
	LongLog int                  // entries after which a log is cut, within seconds; 0: many, within minutes
	Disk    func() error         // asked before each write to the store; nil: nobody is
	Now     func() time.Duration // that leases are counted by; nil: consensus.Now
}

const snapshotSoon = 500 * time.Millisecond // between two looks whether logs are long, where they are soon

// storeFile is where the logs of all replicas are, in the data directory.
const storeFile = "raft.db"

// Level is the highest feature level that this program can work at.
const Level = meta.WordLevel

// Quorum is what a node agrees on with others, and how.
type Quorum struct {
	o       Options
	log     *slog.Logger
	store   *store.Store
	port    *transport.Transport
	groups  *consensus.Groups
	keeper  *meta.Keeper
	meta    *meta.Machine
	metrics *metrics

	known  atomic.Pointer[meta.Map]      // the keeper's, for whom it may call; nil before there is a cluster
	router atomic.Pointer[shards.Router] // nil as long
	routed chan struct{}                 // closed when there is one
	boot   uint64                        // of this process
	began  time.Time                     // by Start
	opened atomic.Bool                   // the store is open, or was
	aside  atomic.Bool                   // operators have set this node aside
	beyond atomic.Pointer[Beyond]        // how the turns reach others since Release; nil: by the port

	ctx    context.Context // ends when Stop begins
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	news     chan struct{} // holds one when there is a newer map
	met      string        // the cluster that this process was to join, if ever; settleLoop alone uses it
	left     chan struct{} // closed when this node has left its cluster
	leftOnce sync.Once

	mu       sync.Mutex // guards what follows
	machines map[uint32]*shards.Machine
	lasts    map[uint32]*shards.Machine // by shard: what an earlier run knew, until its owner has it
	told     Notice
	sees     int
	waits    string // what the founding waits for
}

// New checks, allocates, and reads what an earlier run has left.
func New(o Options) (*Quorum, error) {
	if o.Now == nil {
		o.Now = consensus.Now
	}
	if o.Around == nil {
		alone := newLoop()
		o.Listen, o.Dial = alone.listen, alone.dial
	}
	q := &Quorum{o: o, log: o.Log, meta: meta.NewMachine(), machines: make(map[uint32]*shards.Machine), lasts: make(map[uint32]*shards.Machine), left: make(chan struct{}), routed: make(chan struct{}), news: make(chan struct{}, 1)}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	q.aside.Store(o.Aside)
	q.metrics = newMetrics(q)
	if err := o.check(); err != nil {
		return nil, err
	}
	var err error
	if q.boot, err = nextBoot(o.Dir, time.Now()); err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	if err := q.wire(); err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	if o.Metrics != nil {
		if err := o.Metrics.Register(q.metrics); err != nil {
			return nil, fmt.Errorf("quorum's metrics: %w", err)
		}
	}
	return q, nil
}

// check refuses what a node must not run with, wherever its configuration is from.
func (o Options) check() error {
	var faults []error
	fault := func(key, format string, args ...any) { faults = append(faults, fmt.Errorf(key+": "+format, args...)) }
	if o.Around != nil {
		o.RPC.Validate(func(key, format string, args ...any) { fault("cluster."+key, format, args...) })
	}
	o.Config.Validate(func(key, format string, args ...any) { fault("shards."+key, format, args...) })
	return errors.Join(faults...)
}

// failed hears that the store keeps nothing any more.
func (q *Quorum) failed(err error) {
	q.groups.Failed(err)
	if q.o.Failed != nil {
		q.o.Failed()
	}
}

// wire puts store, port, groups and keeper together.
func (q *Quorum) wire() (err error) {
	disk := store.Options{
		Path: filepath.Join(q.o.Dir, storeFile), Log: q.log, Failed: q.failed,
	}
	if q.o.Disk != nil {
		disk.Wrap = store.Gated(q.o.Disk)
	}
	q.store, err = store.New(disk)
	if err != nil {
		return err
	}
	q.port, err = transport.New(q.o.RPC, transport.Options{
		Node: q.o.Self.ID, Cluster: q.Cluster, Resolver: q, Dial: q.o.Dial, Listen: q.o.Listen, Log: q.log,
		Gone: func(node string) { q.groups.Gone(node) },
	})
	if err != nil {
		return err
	}
	timing := consensus.DefaultTiming()
	if q.o.LongLog > 0 {
		timing.Snapshot = snapshotSoon
	}
	q.groups, err = consensus.New(consensus.Options{
		Node: q.o.Self.ID, Dir: filepath.Join(q.o.Dir, "snapshots"), Transport: q.port, Store: consensus.OnDisk(q.store),
		Log: q.log, Committed: q.metrics.committed, Timing: timing, LongLog: q.o.LongLog,
	})
	if err != nil {
		return err
	}
	q.keeper, err = meta.NewKeeper(meta.Options{
		Self: q.o.Self.ID, Run: q.boot, Dir: q.o.Dir, Machine: q.meta, Host: host{q}, Groups: groups{q}, Neighbours: neighbours{q},
		Log: q.log, Names: q.o.Names, Changed: q.changed, Now: q.o.Now,
	})
	if err != nil {
		return err
	}
	q.known.Store(q.keeper.Map())
	q.port.Serve(meta.Service, transport.Service{Open: true, MaxQuestion: meta.MaxQuestion, Concurrent: 64, Answer: q.keeper.Answer})
	q.port.Serve(viewService, transport.Service{MaxQuestion: 64, Concurrent: 8, Answer: q.answerView})
	// Of two processes with one identity the later would count as what the earlier has become.
	q.port.Serve(shards.AskService, transport.Service{Placed: true, MaxQuestion: shards.MaxQuestion, Concurrent: 4096, Answer: q.answerAsk})
	q.port.Serve(shards.FeedService, transport.Service{Placed: true, MaxQuestion: 64, Concurrent: 1024, Feed: q.serveFeed})
	q.serveNodes()
	return nil
}

// Open opens the file and the port: what may be taken, or broken, shows before
// anybody hears of this node.
func (q *Quorum) Open(ctx context.Context) error {
	if err := q.store.Start(ctx); err != nil {
		return err
	}
	if err := q.port.Start(ctx); err != nil {
		return errors.Join(fmt.Errorf("cluster.rpc: %w; each node of a machine needs one of its own", err), q.store.Stop(ctx))
	}
	q.opened.Store(true)
	return nil
}

// Start opens the replicas that an earlier run has left, and file and port, unless
// they are open. A cluster is founded or joined later, since the others may come later; a
// node alone is whole when it returns.
func (q *Quorum) Start(ctx context.Context) error {
	q.began = time.Now()
	if !q.opened.Load() {
		if err := q.Open(ctx); err != nil {
			return err
		}
	}
	if m := q.keeper.Map(); m != nil {
		q.changed(m)
		q.lookBack(ctx, m)
	}
	if err := q.keeper.Start(ctx); err != nil {
		return errors.Join(err, q.Stop(ctx))
	}
	q.tell()
	q.start(q.settleLoop)
	if q.o.Changed != nil {
		q.start(q.newsLoop)
	}
	if q.o.Around != nil {
		q.start(q.asideLoop)
	} else {
		q.awaitLeaders(ctx)
	}
	return nil
}

func (q *Quorum) start(loop func(context.Context)) { q.tasks.Go(func() { loop(q.ctx) }) }

const (
	leadersTime = 10 * time.Second // for a node alone to lead all its shards
	leadersLook = 10 * time.Millisecond
)

// awaitLeaders returns when this node leads every shard, or after a time: streams
// are carried all the same.
func (q *Quorum) awaitLeaders(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leadersTime)
	defer cancel()
	tick := time.NewTicker(leadersLook)
	defer tick.Stop()
	for {
		if count, led, _, _ := q.Led(); count > 0 && led == count {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			q.log.Warn("not every shard has a leader yet; new sessions are placed for the time being only", "after", time.Since(q.began))
			return
		}
	}
}

// Stop ends all replicas and closes port and file; what they keep stays. After
// ctx it does not wait for a disk that hangs.
func (q *Quorum) Stop(ctx context.Context) error {
	if q.beyond.Load() != nil {
		return errors.Join(q.unroute(ctx), q.port.Stop(ctx)) // all else is another's
	}
	q.cancel()
	err := errors.Join(q.unroute(ctx), q.keeper.Stop(ctx), q.ended(ctx))
	return errors.Join(err, q.groups.Stop(ctx), q.port.Stop(ctx), q.store.Stop(ctx))
}

// ended waits for the loops, as long as ctx allows: a disk or another node may hang.
func (q *Quorum) ended(ctx context.Context) error {
	done := make(chan struct{})
	go func() { q.tasks.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the quorum's loops: %w", context.Cause(ctx))
	}
}

// changed hears of every new map. It must not ask the keeper.
func (q *Quorum) changed(m *meta.Map) {
	q.known.Store(m)
	if q.router.Load() == nil {
		if c := q.o.Config; c.Count != m.Count() || c.Replicas != m.Replicas {
			q.log.Warn("shards.count and shards.replicas are as the cluster was founded; those of this node's configuration mean nothing",
				"count", m.Count(), "replicas", m.Replicas)
		}
		if err := q.route(m); err != nil {
			q.log.Error("the cluster's map cannot be used; sessions are placed for the time being only", "err", err)
		}
	}
	q.tell()
	q.look(m)
	q.spread()
}

// Addr is where it listens; not for a node alone.
func (q *Quorum) Addr() net.Addr { return q.port.Addr() }

// Router asks about sessions; nil before there is a cluster.
func (q *Quorum) Router() *shards.Router { return q.router.Load() }

// Routed is closed once there is a Router.
func (q *Quorum) Routed() <-chan struct{} { return q.routed }

// tell lets the others know what is new about this node.
func (q *Quorum) tell() {
	if q.o.Around == nil {
		return
	}
	q.mu.Lock()
	n := Notice{RPC: q.port.Addr(), Cluster: q.Cluster(), Sees: q.sees}
	if m := q.Map(); m != nil {
		n.Generation = m.Generation()
	}
	same := n == q.told
	q.told = n
	q.mu.Unlock()
	if !same {
		q.o.Around.Tell(n)
	}
}

// peers are all nodes that are or were there, this one among them.
func (q *Quorum) peers() []Peer {
	if q.o.Around != nil {
		return q.o.Around.Peers()
	}
	self := q.o.Self
	self.Alive, self.Hosts, self.Level, self.Cluster, self.Expect, self.Sees = true, true, Level, q.Cluster(), 1, 1
	return []Peer{self}
}

// Resolve says where a node's calls are answered.
func (q *Quorum) Resolve(node string) (string, error) {
	for _, p := range q.peers() {
		if p.ID == node && p.RPC != "" {
			return p.RPC, nil
		}
	}
	return "", fmt.Errorf("gossip does not know node %s, or not where it answers", node)
}
