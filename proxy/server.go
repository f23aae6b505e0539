package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// Dialer opens a connection to a backend.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Listener opens a listening socket.
type Listener func(ctx context.Context, network, addr string) (net.Listener, error)

// Config is what the data plane is built from; it is valid.
type Config struct {
	Listeners []ListenerConfig
	Timeouts  ClientTimeouts
	Pools     map[string]PoolConfig
	AccessLog AccessLogConfig
	Tracing   TracingConfig
}

// Options are the server's seams to the rest.
type Options struct {
	Logger   *slog.Logger
	Node     string // this node's name, in spans
	Registry prometheus.Registerer
	Dial     Dialer
	Listen   Listener
	Resolve  Resolver     // of backends' names; nil: the system's
	Ready    func() error // for ready_path: nil when the node may get traffic
	Sessions Sessions     // nil: streams go anywhere
	Tight    func()       // as backend.Pool.Tight; nil: nobody is told

	// Begin, if set, is closed when connections are to be taken in; until then who
	// connects waits in the sockets.
	Begin <-chan struct{}

	// Told hears of every change of a backend's or a pool's state, with the pool's
	// lock held: it must not wait. nil: nobody does.
	Told func(backend.Event)
}

// Server is the data plane of one node.
type Server struct {
	cfg     Config // that it began with: of what no reload changes
	opt     Options
	log     *slog.Logger
	metrics *metrics
	doors   *doorMetrics
	records records
	stock   wire.Buffers
	desks   sync.Pool    // of *desk
	hands   chan *client // to goroutines that are free; nil ends one
	free    atomic.Int64 // goroutines that are free
	watcher *wire.Watcher

	now      atomic.Pointer[layout]
	changing sync.Mutex // held while now is replaced
	closed   bool       // the listeners are; changing guards it

	paused    atomic.Bool    // no connection is taken in; changing is held while it changes
	accepting sync.WaitGroup // accept loops
	bequest   bequest

	leaving  atomic.Bool // answers say that their connections close
	draining atomic.Bool
	stopping atomic.Bool  // the drain is over
	drainAt  atomic.Int64 // when the drain began, in ns since 1970
	nextID   atomic.Uint64
	running  atomic.Int64 // streams begun and not settled
	finished atomic.Int64 // streams settled since the drain began
	cutCount atomic.Int64 // of them, cut by its deadline
	ends     ends
	replay   atomic.Int64 // bytes of requests' bodies that are kept for another try

	keysEvery, resolveEvery time.Duration // what the loops of these names wait
	newcomerTime, partTime  time.Duration

	mu      sync.Mutex
	clients map[*client]struct{}

	ctx    context.Context // ends with the server
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// New checks the configuration against itself and builds the server.
func New(cfg Config, opt Options) (*Server, error) {
	s := &Server{
		cfg: cfg, opt: opt, log: opt.Logger, clients: map[*client]struct{}{}, hands: make(chan *client),
		keysEvery: keysEvery, resolveEvery: resolveEvery, newcomerTime: newcomerTime, partTime: partTime,
	}
	s.ends.begin()
	if s.opt.Resolve == nil {
		s.opt.Resolve = systemResolver
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.metrics, s.doors = newMetrics(s), newDoorMetrics(s.keyrings)
	first, gates, err := s.draw(cfg, &layout{})
	if err != nil {
		return nil, err
	}
	first.hang(gates)
	s.now.Store(first)
	if err := errors.Join(s.metrics.register(opt.Registry), opt.Registry.Register(s.doors)); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return s, nil
}

// Start opens every listener and returns when they accept, or with all undone.
func (s *Server) Start(ctx context.Context) error {
	err := s.openRecords()
	if err != nil {
		return err
	}
	if s.watcher, err = wire.NewWatcher(); err != nil {
		s.closeRecords()
		return err
	}
	if err := s.listen(ctx, s.now.Load().listeners, s.now.Load().gates()); err != nil {
		s.watcher.Stop()
		s.closeRecords()
		return err
	}
	s.now.Load().bound()
	s.warnDescriptors(wire.DescriptorLimit())
	s.accept(s.now.Load().listeners)
	s.tasks.Go(s.keysLoop)
	s.tasks.Go(s.resolveLoop)
	s.tasks.Go(s.sweepLoop)
	s.tasks.Go(s.sampleLoop)
	return nil
}

// Addrs are the listeners' addresses, ports resolved.
func (s *Server) Addrs() []string {
	var addrs []string
	for _, l := range s.now.Load().listeners {
		addrs = append(addrs, l.socket.Addr().String())
	}
	return addrs
}

// Update makes a pool's backends what list says, while streams run; see
// backend.Pool.Update.
func (s *Server) Update(name string, list []backend.Config) error {
	p, ok := s.now.Load().pools[name]
	if !ok {
		return fmt.Errorf("there is no pool %q", name)
	}
	return p.Update(list, p.cfg.rules(), time.Now())
}

// Report is how a Stop went, or goes.
type Report struct {
	Finished int64 // streams that ran to their end after Stop was called
	Cut      int64 // streams that were cut when its time was over
}

// leaves tells whether the answer says that the connection closes.
func (c *client) leaves() bool { return c.server.leaving.Load() || c.listener.shut.Load() }

// Announce comes before a drain: requests are served as before, but the answers
// say that their connections close, so that the clients' next go elsewhere.
func (s *Server) Announce() { s.leaving.Store(true) }

// Drain refuses new streams and closes connections as they fall idle. Stop
// waits for the rest.
func (s *Server) Drain() {
	if s.draining.Swap(true) {
		return
	}
	s.Announce()
	s.drainAt.Store(time.Now().UnixNano())
	s.finished.Store(0)
	s.each(func(c *client) { c.hangUp() })
}

// Undrain takes Announce and Drain back.
func (s *Server) Undrain() {
	s.draining.Store(false)
	s.leaving.Store(false)
}

// Draining tells whether Drain was called.
func (s *Server) Draining() bool { return s.draining.Load() }

// Stop drains until ctx ends, then cuts what still runs. Afterwards nothing of
// the server is left.
func (s *Server) Stop(ctx context.Context) Report {
	s.Drain()
	s.awaitIdle(ctx)
	s.closeListeners()
	s.awaitNewcomers(ctx)
	s.cut()
	s.watcher.Stop()
	s.closeRecords()
	for _, p := range s.now.Load().all() {
		p.close()
	}
	return s.Report()
}

// awaitIdle returns when no stream runs and every connection that was there
// before the drain is gone, or when ctx ends.
func (s *Server) awaitIdle(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.running.Load() > 0 || s.older() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.each(func(c *client) { c.hangUp() })
		}
	}
}

// newcomerTime is how long a drain that is over waits for connections that it took
// in just before, to be told so instead of being closed without a word.
const newcomerTime = 500 * time.Millisecond

func (s *Server) awaitNewcomers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.newcomerTime)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.open() > 0 && ctx.Err() == nil {
		<-tick.C
	}
}

// open counts the connections of clients.
func (s *Server) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients)
}

// older counts the connections that are older than the drain.
func (s *Server) older() (n int) {
	began := s.drainAt.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		if c.born <= began {
			n++
		}
	}
	return n
}

// each calls f for every client connection, without the lock.
func (s *Server) each(f func(*client)) {
	s.mu.Lock()
	clients := make([]*client, 0, len(s.clients))
	for c := range s.clients {
		clients = append(clients, c)
	}
	s.mu.Unlock()
	for _, c := range clients {
		f(c)
	}
}

func (s *Server) closeListeners() {
	s.changing.Lock() // no reload opens another one from here on
	defer s.changing.Unlock()
	s.closed = true
	closeSockets(s.now.Load().listeners)
}

// sweepLoop closes backend connections that were unused for too long.
func (s *Server) sweepLoop() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			s.dismiss()
			for _, p := range s.now.Load().all() {
				p.sweep()
				s.metrics.forget(p, time.Now())
				s.giveUpDrains(p, time.Now())
			}
			s.retire(time.Now())
			s.each(func(c *client) {
				if c.listener.shut.Load() {
					c.hangUp()
				}
			})
		}
	}
}
