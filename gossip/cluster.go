package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy/backend"
)

// Options are what a Cluster works with; what is nil is the real thing.
type Options struct {
	ID      string // of this node, unique for ever: a UUID from its data directory
	Dir     string // where to keep what must survive a restart; empty: nothing is kept
	Self    Meta   // what to tell of ourselves; Boot is filled in
	Logger  *slog.Logger
	Metrics prometheus.Registerer // the node's own; nil: nothing is counted for anybody
	Changed func(Change)          // hears of every member's changes, one at a time; may take its time

	Reports func() []backend.Report   // what this node says of its backends; asked twenty times a second
	Paces   func() map[string]float64 // how many requests a second begin at this node, by pool; asked as often. nil: nothing is said of pools
	Hear    func(News)                // what the others say of them, when it changes and once a second; from one goroutine
	Learned func()                    // hears that some record came from another node

	Listen       func(ctx context.Context, network, address string) (net.Listener, error)
	ListenPacket func(ctx context.Context, network, address string) (net.PacketConn, error)
	Dial         func(ctx context.Context, network, address string) (net.Conn, error)
	Resolve      func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Cluster is one node's part in its cluster: who else there is, and what they
// say.
type Cluster struct {
	cfg     Config
	opt     Options
	pace    pace
	log     *slog.Logger
	boot    uint64
	count   counters
	keys    *keyring
	members *members
	journal journal
	net     *transport
	list    *memberlist.Memberlist
	started chan struct{} // closed once list is there
	steady  *steadiness
	joining joining
	orders  orders
	reports *reports
	speaker speaker
	asked   asked
	sums    atomic.Pointer[sums]
	heard   chan struct{} // holds one when a report brought news
	nudged  chan struct{} // holds one when something should be told soon
	records records
	learned chan struct{} // holds one when a record came from another node

	ctx    context.Context // ends when Stop begins
	cancel context.CancelFunc
	tasks  sync.WaitGroup // Stop waits on them
	stop   sync.Once

	mu      sync.Mutex // guards what follows
	self    Meta
	parted  []string      // members of other clusters that do not know yet that we are none of theirs
	renewed chan struct{} // holds one when self was changed
	arrived chan struct{} // holds one when somebody joined
}

// pace is how fast things go. The defaults are measured: on a LAN they see a
// crash in 1.3 to 2.9 s at some 250 B/s per node. Slower gossip or fewer
// retransmissions lose messages that only the next exchange, half a minute
// later, brings.
type pace struct {
	probe, probeTimeout, gossip, exchange time.Duration
	firstRetry, lastRetry                 time.Duration // of joining: doubled from the one to the other
	rejoin                                time.Duration // between looks at who is missing
	save                                  time.Duration // between writes of whom we know
}

func lanPace() pace {
	return pace{
		probe: 300 * time.Millisecond, probeTimeout: 150 * time.Millisecond, gossip: 100 * time.Millisecond, exchange: 30 * time.Second,
		firstRetry: 100 * time.Millisecond, lastRetry: 5 * time.Second, rejoin: 5 * time.Second, save: 2 * time.Second,
	}
}

// New checks what can be checked without the network.
func New(cfg Config, opt Options) (*Cluster, error) {
	var faults []error
	cfg.Validate(func(key, format string, args ...any) {
		faults = append(faults, fmt.Errorf("cluster.%s: %s", key, fmt.Sprintf(format, args...)))
	})
	if opt.ID == "" || !isID([]byte(opt.ID)) {
		faults = append(faults, fmt.Errorf("node id %q: want 1 to %d printable ASCII characters", opt.ID, maxName))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	opt.fill()
	c := &Cluster{cfg: cfg, opt: opt, pace: lanPace(), log: opt.Logger, self: opt.Self, renewed: make(chan struct{}, 1), arrived: make(chan struct{}, 1)}
	c.started, c.nudged = make(chan struct{}), make(chan struct{}, 1)
	c.heard, c.learned = make(chan struct{}, 1), make(chan struct{}, 1)
	c.records.known = map[recordName]marked{}
	c.records.queue = memberlist.TransmitLimitedQueue{RetransmitMult: 4, NumNodes: func() int { return 1 + len(c.members.peers.Load().list) }}
	c.sums.Store(&sums{})
	c.reports = newReports()
	c.speaker.interval.Store(int64(speakEvery))
	c.speaker.ids.Store(&map[uint64]string{})
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.journal = journal{log: c.log, count: &c.count}
	c.steady = newSteadiness(time.Now())
	c.members = newMembers(opt.ID, time.Now, c.journal.refused)
	c.members.cluster = opt.Self.Cluster
	if opt.Metrics != nil {
		if err := opt.Metrics.Register(newMetrics(c)); err != nil {
			return nil, fmt.Errorf("gossip's metrics: %w", err)
		}
	}
	return c, nil
}

func (o *Options) fill() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func(Change) {}
	}
	if o.Reports == nil {
		o.Reports = func() []backend.Report { return nil }
	}
	if o.Hear == nil {
		o.Hear = func(News) {}
	}
	if o.Learned == nil {
		o.Learned = func() {}
	}
	if o.Listen == nil {
		o.Listen = (&net.ListenConfig{}).Listen
	}
	if o.ListenPacket == nil {
		o.ListenPacket = (&net.ListenConfig{}).ListenPacket
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Resolve == nil {
		o.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
}

// Start takes the port and begins to look for the others; it does not wait
// until it finds any, since they may start later.
func (c *Cluster) Start(ctx context.Context) error {
	if err := c.open(); err != nil {
		return err
	}
	c.net = c.transport()
	if err := c.net.start(ctx, c.cfg.Bind); err != nil {
		return err
	}
	list, err := memberlist.Create(c.listConfig())
	if err != nil {
		return errors.Join(fmt.Errorf("gossip: %w", err), c.net.Shutdown())
	}
	c.list = list
	close(c.started)
	c.start(c.tellLoop)
	c.start(c.renewLoop)
	c.start(c.joinLoop)
	c.start(c.settleLoop)
	c.start(c.saveLoop)
	c.start(c.speakLoop)
	c.start(c.hearLoop)
	c.log.Info("gossiping", "address", c.net.self, "boot", c.boot, "encrypted", c.keys.enabled(), "seeds", c.cfg.Seeds)
	return nil
}

func (c *Cluster) start(loop func(context.Context)) { c.tasks.Go(func() { loop(c.ctx) }) }

// open reads and writes what is kept in the data directory.
func (c *Cluster) open() error {
	configured, err := c.cfg.keys()
	if err != nil {
		return fmt.Errorf("cluster.gossip_keys: %w", err)
	}
	keys, err := loadKeys(c.opt.Dir, configured)
	if err != nil {
		return err
	}
	save := func(r *ring) error { return saveKeys(c.opt.Dir, configured, r) }
	if c.keys, err = newKeyring(keys, save); err != nil {
		return err
	}
	if c.boot, err = nextBoot(c.opt.Dir, time.Now()); err != nil {
		return err
	}
	c.self.Boot = c.boot
	known, err := loadKnown(c.opt.Dir)
	if err != nil {
		c.log.Warn("whom this node knew is lost; only the seeds are asked", "err", err)
	}
	c.joining.known = known
	return nil
}

func (c *Cluster) transport() *transport {
	t := &transport{
		net:       network{c.opt.Listen, c.opt.ListenPacket, c.opt.Dial},
		codec:     codec{c.keys, c.cfg.Label},
		guard:     guard{seen: c.members.seen},
		log:       c.log,
		count:     &c.count,
		advertise: c.advertise,
		onReport:  c.onReport,
		onAsk:     c.onAsk,
		onKeys:    c.onKeys,
		onPing: func(address, _ string) {
			if id := c.members.answeredTCP(address); id != "" {
				c.count.udpLost.Add(1)
			}
		},
		onRefused: func(peer string, _ bool, err error) { c.journal.refused(peer, err) },
	}
	t.outgoing = guard{seen: c.members.seen, pinged: t.pings.note}
	return t
}

// listConfig is memberlist's preset for a LAN at our pace, without what our
// transport does itself.
func (c *Cluster) listConfig() *memberlist.Config {
	m := memberlist.DefaultLANConfig()
	m.Name = c.opt.ID
	m.Transport = c.net
	m.ProbeInterval, m.ProbeTimeout, m.GossipInterval = c.pace.probe, c.pace.probeTimeout, c.pace.gossip
	m.PushPullInterval = c.pace.exchange
	m.SuspicionMult = 3
	m.GossipNodes, m.RetransmitMult = 4, 5 // of 32 nodes one missed one event in a hundred with 3 and 4
	m.SuspicionMaxTimeoutMult = 2          // a suspicion that nobody confirms, as in small clusters, is not held six times as long
	m.TCPTimeout = 5 * time.Second
	m.DeadNodeReclaimTime = reclaim
	m.UDPBufferSize = maxPacket - c.net.codec.overhead() - checksumSize
	m.EnableCompression = false
	m.Delegate, m.Events, m.Alive, m.Merge, m.Conflict, m.Ping = c, c.members, c.members, c.members, c.members, c.members
	m.Logger = newBridge(c.log)
	return m
}

// advertise is the address that others reach us at, once the port is known.
func (c *Cluster) advertise(port uint16) (netip.AddrPort, error) {
	bind, _, _ := net.SplitHostPort(c.cfg.Bind) // Validate has seen it
	host := cmp.Or(c.cfg.Advertise, bind)
	if addr, err := netip.ParseAddr(host); host == "" || err == nil && addr.IsUnspecified() {
		private, err := onlyPrivate()
		return netip.AddrPortFrom(private, port), err
	}
	ctx, cancel := context.WithTimeout(c.ctx, 5*time.Second)
	defer cancel()
	addrs, err := c.resolve(ctx, host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("cluster.advertise: %w; write the address that other nodes reach this one at", err)
	}
	return netip.AddrPortFrom(addrs[0], port), nil
}

// onlyPrivate is the one private address of this machine.
func onlyPrivate() (netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("cluster.advertise: %w; write the address that other nodes reach this one at", err)
	}
	var found []netip.Addr
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Addr().IsPrivate() {
			found = append(found, p.Addr().Unmap())
		}
	}
	if len(found) != 1 {
		return netip.Addr{}, fmt.Errorf("cluster.advertise: this machine has %d private addresses %v; write the one that other nodes reach it at", len(found), found)
	}
	return found[0], nil
}

// Stop leaves the cluster, which the others see at once, and ends. When ctx
// ends first they have to find out.
func (c *Cluster) Stop(ctx context.Context) error {
	if c.list == nil {
		c.cancel()
		return nil
	}
	var err error
	c.stop.Do(func() {
		c.cancel()
		c.net.hangUp() // whoever asks a silent seed would wait for seconds
		c.tasks.Wait()
		if wait := leaveFor(ctx); wait > 0 {
			if e := c.list.Leave(wait); e != nil && len(c.members.peers.Load().list) > 0 {
				c.log.Warn("left without a word; the others will take this node for dead", "err", e)
			}
		}
		c.net.answerPings()
		err = c.list.Shutdown()
	})
	return err
}

const maxLeave = 2 * time.Second

func leaveFor(ctx context.Context) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	if end, ok := ctx.Deadline(); ok {
		return min(maxLeave, time.Until(end))
	}
	return maxLeave
}

// Addr is where others reach this node's gossip, its port resolved.
func (c *Cluster) Addr() netip.AddrPort { return c.net.self }

// Boot numbers this node's starts: a later one has a higher number.
func (c *Cluster) Boot() uint64 { return c.boot }

// Members is everyone that is known, the dead and this node among them.
func (c *Cluster) Members() []Member { return c.members.list() }

// Update changes what this node tells of itself; it is told soon, and the last
// change counts.
func (c *Cluster) Update(change func(*Meta)) {
	c.mu.Lock()
	change(&c.self)
	c.self.Boot = c.boot
	c.parted = append(c.parted, c.members.adopt(c.self.Cluster)...)
	c.mu.Unlock()
	c.records.adopt(c.members.clusterID())
	wake(c.renewed)
}

// wake leaves a note in a channel that holds one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// renewLoop tells the others what Update changed. memberlist waits meanwhile
// until somebody was told.
func (c *Cluster) renewLoop(ctx context.Context) {
	for {
		select {
		case <-c.renewed:
			if err := c.list.UpdateNode(time.Second); err != nil {
				c.log.Debug("nobody was told yet of this node's change", "err", err) // the next exchange tells
			}
			c.mu.Lock()
			parted := c.parted
			c.parted = nil
			c.mu.Unlock()
			for _, addr := range parted {
				_ = c.exchange(addr) // it refuses us, which is what it is for
			}
		case <-ctx.Done():
			return
		}
	}
}

// tellLoop passes the members' changes on, away from memberlist's locks.
func (c *Cluster) tellLoop(ctx context.Context) {
	for {
		select {
		case <-c.members.moved:
		case <-c.learned:
			c.opt.Learned()
			continue
		case <-ctx.Done():
			return
		}
		for _, change := range c.members.drain() {
			if m := change.Member; m.State != change.Was && !m.Self {
				c.log.Info("member changed", "member", m.Meta.Name, "id", m.ID, "address", m.Address, "state", m.State, "was", change.Was)
			}
			wake(c.heard)
			if change.Was == "" && !change.Member.Self {
				wake(c.arrived)
			}
			c.opt.Changed(change)
		}
	}
}
