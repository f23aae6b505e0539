// Package node builds one starling process: it reads the configuration, puts
// the rooms together and starts and stops them in order. It does not look into
// what the data path carries.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/starling-lb/starling/gossip"
	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/handover"
	"github.com/starling-lb/starling/node/journal"
	"github.com/starling-lb/starling/node/quorum"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/health"
	"github.com/starling-lb/starling/shards/meta"
)

// ErrDraining says that the node takes no new streams.
var ErrDraining = errors.New("node is draining")

// Options are a node's seams to the world; what is nil is the real thing.
type Options struct {
	Logger *slog.Logger
	Dial   proxy.Dialer   // to backends
	Listen proxy.Listener // for clients and the admin API

	ListenPacket func(ctx context.Context, network, address string) (net.PacketConn, error) // for other nodes
	ListenPeers  proxy.Listener                                                             // likewise; nil: Listen
	DialPeers    proxy.Dialer                                                               // to other nodes

	Disk func() error         // asked before each write of what nodes agree on; nil: nobody is
	Now  func() time.Duration // that sessions' leases are counted by; nil: the machine's, which goes on while it is suspended

	LongLog int // entries after which a log of what nodes agree on is cut, within seconds; 0: many, within minutes

	Before  *handover.Elder   // the process that was this node and hands it over; nil: none
	Sockets *handover.Sockets // that whoever started this process opened for it; nil: none
	Program handover.Program  // that an upgrade starts; zero: there are none
	Notify  string            // where a supervisor hears how this process is, as in sd_notify(3); empty: there is none

	File string // that the configuration was read from, and a reload reads again; empty: there is none
}

// Node is one running starling. Several may live in one process.
type Node struct {
	conf      atomic.Pointer[Config] // in force
	opt       Options
	log       *slog.Logger
	registry  *prometheus.Registry
	proxy     *proxy.Server
	prober    *health.Prober
	supply    *supply
	beside    atomic.Pointer[attendants]
	reloads   reloads
	journal   *journal.Journal
	looking   func() // ends the looks for changes; nil: they have not begun
	admin     *admin.Server
	cluster   atomic.Pointer[gossip.Cluster] // nil: a node alone, or not started
	quorum    atomic.Pointer[quorum.Quorum]  // nil: there is nothing to agree on, or not started
	homes     sync.Map                       // id of a backend of a pool with sessions, also of one that has left: its pool
	rests     sync.Map                       // by pool: whether operators switched its rebalancing on or off; "": they did not
	revisions sync.Map                       // by pool: *atomic.Uint64, how often what is wanted of it was applied here
	looked    map[string]bool                // backends whose checks by others are to be judged; hear alone uses it
	dir       *dataDir
	started   time.Time
	up        chan struct{} // closed when Start has ended, well or not

	upgrade   upgrade
	succeeded chan struct{}                    // closed when another process is the node
	carried   chan struct{}                    // closed when the last stream has ended, in Stop
	begin     chan struct{}                    // closed when connections are to be taken in; nil: at once
	seeking   atomic.Int64                     // turns that ask where their session lives
	held      atomic.Pointer[chan struct{}]    // closed when turns may begin; nil: they may
	spare     atomic.Pointer[handover.Sockets] // that were handed in, and nobody has taken
	peers     peerSockets
	roll      roll
	links     atomic.Pointer[handover.Links] // older processes of this node; nil before Start
	heritage  heritage
	handed    handed
	heeded    map[string]meta.Word // of operators on ejections, by backend; the supply's lock guards it
	agreeing  sync.Mutex           // held while the cluster is told whether this node is set aside
	telling   sync.Mutex           // held while this node has the others do something
	asking    chan struct{}        // one place per question about all nodes that is under way

	mu       sync.Mutex
	ready    bool
	taken    atomic.Bool        // the process before has let go of the node
	aside    bool               // operators drain it, and it goes on
	comeBack context.CancelFunc // of a drain by operators that is taken back
	polls    polls
	drain    time.Time       // when a drain ends at the latest; zero: none
	cutting  <-chan struct{} // closed when a drain cuts what runs
	report   proxy.Report
}

// New checks what can be checked without the network and builds the node.
func New(cfg Config, opt Options) (*Node, error) {
	n := &Node{log: opt.Logger, registry: prometheus.NewRegistry(), journal: journal.New(), up: make(chan struct{}), succeeded: make(chan struct{}), carried: make(chan struct{}), asking: make(chan struct{}, wholeMost), heeded: map[string]meta.Word{}}
	n.roll.Registerer, n.handed = n.registry, newHanded()
	n.conf.Store(&cfg)
	n.reloads.begin(cfg.Hash())
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	if opt.Dial == nil {
		opt.Dial = (&net.Dialer{}).DialContext
	}
	if opt.Listen == nil {
		var plain net.ListenConfig
		plain.SetMultipathTCP(false) // connections do not inherit what bounds hostile clients
		opt.Listen = plain.Listen
	}
	if opt.ListenPeers == nil {
		opt.ListenPeers = opt.Listen
	}
	if opt.ListenPacket == nil {
		opt.ListenPacket = (&net.ListenConfig{}).ListenPacket
	}
	if opt.DialPeers == nil {
		opt.DialPeers = (&net.Dialer{}).DialContext
	}
	n.spare.Store(opt.Sockets)
	if opt.Before != nil {
		n.spare.Store(opt.Before.Sockets)
		n.begin = make(chan struct{})
	}
	opt.Listen, opt.ListenPeers, opt.ListenPacket = n.inherited(opt.Listen), n.listenPeers(opt.ListenPeers), n.listenPacket(opt.ListenPacket)
	n.opt = opt
	if err := n.describe(); err != nil {
		return nil, err
	}
	var err error
	n.proxy, err = proxy.New(proxy.Config{
		Listeners: cfg.Listeners, Timeouts: cfg.Timeouts, Pools: cfg.Pools, AccessLog: cfg.AccessLog, Tracing: cfg.Tracing,
	}, proxy.Options{
		Node: cfg.Node.Name, Logger: n.log.With("component", "proxy"), Registry: n.registry, Dial: opt.Dial, Listen: opt.Listen, Ready: n.Ready,
		Sessions: sessions{n}, Tight: n.nudge, Told: n.told, Begin: n.begin,
	})
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	n.prober, err = health.New(n.proxy.Pools, health.Options{
		Logger: n.log.With("component", "health"), Registry: n.registry, Connect: n.proxy.Connect, Assigned: n.assigned,
	})
	if err != nil {
		return nil, fmt.Errorf("health: %w", err)
	}
	n.supply = newSupply(n.log.With("component", "supply"), n.apply)
	beside := n.attend(cfg.Pools, nil)
	n.beside.Store(&beside)
	if err := n.registerEngines(); err != nil {
		return nil, fmt.Errorf("engines: %w", err)
	}
	n.admin, err = admin.New(cfg.Admin, admin.Options{
		Node: n, Gatherer: n.registry, Logger: n.log.With("component", "admin"), Listen: opt.Listen, Begin: n.begin,
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// describe registers what the process and this build say of themselves.
func (n *Node) describe() error {
	v := Version()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "starling", Name: "build_info", Help: "1; the labels say which starling this is.",
		ConstLabels: prometheus.Labels{"version": v.Version, "commit": v.Commit, "go": v.Go},
	})
	build.Set(1)
	for _, c := range []prometheus.Collector{
		build, &n.reloads, n.journal, n.handed, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := n.registry.Register(c); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	return nil
}

// part is something that runs within the node.
type part struct {
	start func(context.Context) error
	stop  func(context.Context) error
}

// parts are what runs, in the order in which it starts. Stop has an order of
// its own: the streams end first.
func (n *Node) parts() []part {
	return []part{
		{n.open, func(context.Context) error { return n.dir.close() }},
		{n.restAgain, func(context.Context) error { return nil }},
		{n.supplied, func(context.Context) error { return nil }},
		{n.find, func(context.Context) error { n.stopFinding(); return nil }},
		{n.take, func(context.Context) error { n.links.Load().Stop(); return nil }},
		{n.proxy.Start, func(ctx context.Context) error { n.proxy.Stop(ctx); return nil }},
		{n.prober.Start, func(context.Context) error { n.prober.Stop(); return nil }},
		{n.askEngines, func(context.Context) error { n.stopAsking(); return nil }},
		{n.admin.Start, n.admin.Stop},
		{n.remember, n.disagree},
		{n.joinCluster, n.leaveCluster},
		{n.agree, n.disagree},
		{n.watchChanges, func(context.Context) error { n.looking(); return nil }},
		{n.succeed, func(context.Context) error { return nil }},
	}
}

// Start brings the node up and returns when it serves, or with all undone.
func (n *Node) Start(ctx context.Context) error {
	n.started = time.Now()
	parts := n.parts()
	for i, p := range parts {
		if err := p.start(ctx); err != nil {
			close(n.up) // who waits for it would hold up the undoing
			now, cancel := context.WithCancel(ctx)
			cancel()
			for _, before := range slices.Backward(parts[:i]) {
				err = errors.Join(err, before.stop(now))
			}
			return err
		}
	}
	close(n.up)
	n.beginReloads()
	n.mu.Lock()
	n.ready = true
	n.mu.Unlock()
	n.serveOn()
	n.sayTakenOver()
	n.log.Info("serving", "node", n.cfg().Node.Name, "id", n.dir.id, "proxy", n.ProxyAddrs(), "admin", n.AdminAddr())
	return nil
}

func (n *Node) open(context.Context) (err error) {
	if n.opt.Before != nil {
		n.dir, err = sharedDir(n.cfg().Node.DataDir, n.opt.Before.Lock)
		return err
	}
	n.dir, err = openDataDir(n.cfg().Node.DataDir)
	if err == nil && n.dir.entered() {
		n.log.Warn("other users can enter the data directory; it holds what only the node should have: chmod 700", "path", n.dir.path)
	}
	return err
}

// supplied gives the pools the backends of the file, as operators would have
// them.
func (n *Node) supplied(context.Context) error {
	if n.cfg().Cluster.On() {
		m, err := meta.Load(n.dir.path)
		if err != nil {
			return err
		}
		if n.supply.together = n.together; m != nil {
			n.supply.agreed = m.Pools // who comes back knows what was decided
		}
	}
	for _, p := range n.proxy.Pools() {
		p.Expect() // of older processes, if there are any: hostElders knows
	}
	return n.supply.start(filepath.Join(n.dir.path, "operator.json"), listed(n.cfg().Pools))
}

func listed(pools map[string]proxy.PoolConfig) map[string][]backend.Config {
	all := map[string][]backend.Config{}
	for name, pool := range pools {
		all[name] = pool.Backends
	}
	return all
}

// DrainTimeout is how long a drain that begins now may take; 0: as long as it needs.
func (n *Node) DrainTimeout() time.Duration { return n.cfg().Node.DrainTimeout }

// cfg is the configuration in force; a reload replaces it whole.
func (n *Node) cfg() *Config { return n.conf.Load() }

// Stop drains until ctx ends: readiness fails first, which who looks at it gets a
// moment to notice; then new streams are refused, and running ones go on to their
// end. What still runs then is cut; Drained counts
// it.
func (n *Node) Stop(ctx context.Context) error {
	handed := n.HandedOver()
	n.endUpgrades()
	if n.HandedOver() {
		if !handed { // just now: who said so meant the node
			n.upgrade.heir.End()
		}
		return n.depart(ctx)
	}
	began := time.Now()
	notice, ok := n.beginDrain(ctx, began)
	if !ok {
		return nil
	}
	n.endReloads()
	n.notify("STOPPING=1")
	n.log.Info("draining", "streams", n.proxy.InFlight(), "deadline", n.drain, "notice", notice)
	n.sayDraining()
	yielded := n.yield(ctx)
	ended := make(chan struct{})
	var words sync.WaitGroup
	words.Go(func() { n.sayHowFar(n.drain.Sub(began), ended) })
	n.giveNotice(ctx, notice)
	n.stopFinding()
	report := n.proxy.Stop(ctx)
	n.awaitElders(ctx)
	close(ended)
	words.Wait()
	n.prober.Stop()
	n.stopAsking()
	n.mu.Lock()
	n.report = report
	n.mu.Unlock()
	<-yielded
	n.looking()
	close(n.carried)
	n.upgrade.done.Wait()
	err := n.disagree(ctx)
	n.links.Load().Stop()
	n.links.Load().Remove()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err = errors.Join(err, n.leaveCluster(last), n.admin.Stop(last), n.dir.close())
	n.sayDrained(ctx, time.Since(began))
	return err
}

// beginDrain has the node be not ready, and tells how long its notice is; false: it
// was not running.
func (n *Node) beginDrain(ctx context.Context, now time.Time) (notice time.Duration, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.ready {
		return 0, false
	}
	n.proxy.Announce() // before anybody hears that the node is not ready
	n.ready = false
	n.drain, _ = ctx.Deadline()
	n.cutting = ctx.Done()
	if !n.aside { // or who looks at it knows long since
		notice = n.polls.notice(now, n.drain)
	}
	if n.drain.IsZero() {
		n.drain = now
	}
	return notice, true
}

// Drained counts what a Stop finished and cut.
func (n *Node) Drained() proxy.Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.report
}

// ReopenAccessLog opens the access log's file anew, for whoever has moved it away;
// what was written so far is complete in the old one a moment later.
func (n *Node) ReopenAccessLog() error { return n.proxy.ReopenAccessLog() }

// ProxyAddrs are the listeners' addresses, ports resolved.
func (n *Node) ProxyAddrs() []string { return n.proxy.Addrs() }

// AdminAddr is the admin API's address, its port resolved.
func (n *Node) AdminAddr() string { return n.admin.Addr().String() }

// Ready tells whether the node may get traffic: nil, or why not.
func (n *Node) Ready() error {
	err := n.unready()
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.polls.note(time.Now())
	}
	return err
}

// unready is why the node shall get no traffic; nil: it may.
func (n *Node) unready() error {
	if n.HandedOver() {
		return nil // who still asks here hears for the last time; the node is another process, and serves
	}
	n.mu.Lock()
	ready, leaves := n.ready, !n.drain.IsZero() || n.aside
	n.mu.Unlock()
	switch {
	case leaves:
		return ErrDraining
	case !ready:
		return errors.New("node is starting")
	}
	return errors.Join(n.sessionsReady(), n.diskReady())
}
