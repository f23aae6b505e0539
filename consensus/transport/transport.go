package transport

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
)

// Transport is a node's port for its peers.
type Transport struct {
	Options
	config Config
	log    *slog.Logger
	keys   *keyring

	services map[string]*service // complete before Start

	ctx      context.Context // ends when Stop turns hard
	cancel   context.CancelFunc
	stopping chan struct{} // closed when Stop begins
	stopOnce sync.Once
	tasks    sync.WaitGroup
	serving  sync.WaitGroup // calls at work
	listener net.Listener

	greetings greetings
	accepted  crowd
	dialed    crowd
	dials     dials
	gone      gone
	refusals  refusals

	mu     sync.Mutex // guards what follows
	ended  bool
	groups map[uint32]*Group
	opened chan struct{} // closed and made anew when there is one more
	lines  map[lineKey]*line
}

// New checks and allocates.
func New(c Config, o Options) (*Transport, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	keys, err := newKeyring(c.TLS)
	if err != nil {
		return nil, fmt.Errorf("certificates for peers: %w", err)
	}
	t := &Transport{
		Options: o, config: c, log: o.Log, keys: keys,
		services: make(map[string]*service),
		stopping: make(chan struct{}),
		accepted: crowd{limit: maxConns},
		groups:   make(map[uint32]*Group),
		opened:   make(chan struct{}),
		lines:    make(map[lineKey]*line),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.gone.t = t
	return t, nil
}

// start runs a task that Stop waits for; it fails once Stop waits.
func (t *Transport) start(task func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.tasks.Go(task)
	}
	return !t.ended
}

// Start returns when peers can connect. What is served must be known by then.
func (t *Transport) Start(ctx context.Context) error {
	l, err := t.Listen(ctx, "tcp", t.config.Address)
	if err != nil {
		return fmt.Errorf("listen for peers on %s: %w", t.config.Address, err)
	}
	t.listener = l
	t.start(t.acceptLoop)
	t.start(t.movedLoop)
	if t.keys != nil {
		if err := t.keys.fault(); err != nil {
			t.keys.told = err.Error()
			t.log.Warn(badOwn, "err", err)
		}
		t.start(t.keysLoop)
	}
	return nil
}

// Addr is where peers reach this node, once it is started.
func (t *Transport) Addr() net.Addr { return t.listener.Addr() }

// Retire has nobody reach this node by the port any more: no call begins, and what
// peers or Raft groups have opened is cut, once calls at work have finished or ctx has
// ended. This side may call and follow peers as before, until Stop.
func (t *Transport) Retire(ctx context.Context) {
	t.shut(ctx)
	t.mu.Lock()
	groups := slices.Collect(maps.Values(t.groups))
	t.mu.Unlock()
	for _, g := range groups {
		_ = g.Close()
	}
	t.accepted.end()
}

// Stop lets calls at work finish until ctx ends, then cuts everything.
func (t *Transport) Stop(ctx context.Context) error {
	done := t.shut(ctx)
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.cancel()
	t.accepted.end()
	t.dialed.end()
	t.tasks.Wait()
	<-done
	return nil
}

// shut has no call begin any more, and waits for those at work, or for ctx; done is
// closed when they have finished.
func (t *Transport) shut(ctx context.Context) (done chan struct{}) {
	t.stopOnce.Do(func() {
		t.mu.Lock()
		close(t.stopping) // no call begins from here on, so serving only falls
		t.mu.Unlock()
		if t.listener != nil {
			_ = t.listener.Close() // nothing more comes; its error would change nothing
		}
	})
	done = make(chan struct{})
	go func() { t.serving.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return done
}

func (t *Transport) isStopping() bool {
	select {
	case <-t.stopping:
		return true
	default:
		return false
	}
}
