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
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/proxy"
)

// ErrDraining says that the node takes no new streams.
var ErrDraining = errors.New("node is draining")

// Options are a node's seams to the world; what is nil is the real thing.
type Options struct {
	Logger *slog.Logger
	Dial   proxy.Dialer   // to backends
	Listen proxy.Listener // for clients and the admin API
}

// Node is one running starling. Several may live in one process.
type Node struct {
	cfg      Config
	log      *slog.Logger
	registry *prometheus.Registry
	proxy    *proxy.Server
	admin    *admin.Server
	dir      *dataDir
	started  time.Time

	mu     sync.Mutex
	ready  bool
	drain  time.Time // when a drain ends at the latest; zero: none
	report proxy.Report
}

// New checks what can be checked without the network and builds the node.
func New(cfg Config, opt Options) (*Node, error) {
	n := &Node{cfg: cfg, log: opt.Logger, registry: prometheus.NewRegistry()}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	if opt.Dial == nil {
		opt.Dial = (&net.Dialer{}).DialContext
	}
	if opt.Listen == nil {
		opt.Listen = (&net.ListenConfig{}).Listen
	}
	if err := n.describe(); err != nil {
		return nil, err
	}
	var err error
	n.proxy, err = proxy.New(proxy.Config{
		Listeners: cfg.Listeners, Timeouts: cfg.Timeouts, Pools: cfg.Pools, AccessLog: cfg.AccessLog, Tracing: cfg.Tracing,
	}, proxy.Options{
		Node: cfg.Node.Name, Logger: n.log.With("component", "proxy"), Registry: n.registry, Dial: opt.Dial, Listen: opt.Listen, Ready: n.Ready,
	})
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	n.admin, err = admin.New(cfg.Admin, admin.Options{
		Node: n, Gatherer: n.registry, Logger: n.log.With("component", "admin"), Listen: opt.Listen,
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
	config := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "starling", Name: "config_hash_info", Help: "1; the label is the hash of the configuration in force.",
		ConstLabels: prometheus.Labels{"hash": n.cfg.Hash()},
	})
	build.Set(1)
	config.Set(1)
	for _, c := range []prometheus.Collector{
		build, config, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := n.registry.Register(c); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	return nil
}

// Start brings the node up and returns when it serves, or with all undone.
func (n *Node) Start(ctx context.Context) error {
	var err error
	if n.dir, err = openDataDir(n.cfg.Node.DataDir); err != nil {
		return err
	}
	n.started = time.Now()
	if err := n.proxy.Start(ctx); err != nil {
		return errors.Join(err, n.dir.close())
	}
	if err := n.admin.Start(ctx); err != nil {
		now, cancel := context.WithCancel(ctx)
		cancel()
		n.proxy.Stop(now)
		return errors.Join(err, n.dir.close())
	}
	n.mu.Lock()
	n.ready = true
	n.mu.Unlock()
	n.log.Info("serving", "node", n.cfg.Node.Name, "id", n.dir.id, "proxy", n.ProxyAddrs(), "admin", n.AdminAddr())
	return nil
}

// Stop drains until ctx ends: readiness fails first, new streams are refused,
// running ones go on to their end. What still runs then is cut; Drained counts
// it.
func (n *Node) Stop(ctx context.Context) error {
	n.mu.Lock()
	if !n.ready {
		n.mu.Unlock()
		return nil
	}
	n.ready = false
	n.drain, _ = ctx.Deadline()
	if n.drain.IsZero() {
		n.drain = time.Now()
	}
	n.mu.Unlock()
	n.log.Info("draining", "streams", n.proxy.InFlight(), "deadline", n.drain)
	report := n.proxy.Stop(ctx)
	n.mu.Lock()
	n.report = report
	n.mu.Unlock()
	n.log.Info("drained", "finished", report.Finished, "cut", report.Cut)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return errors.Join(n.admin.Stop(last), n.dir.close())
}

// Drained counts what a Stop finished and cut.
func (n *Node) Drained() proxy.Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.report
}

// ProxyAddrs are the listeners' addresses, ports resolved.
func (n *Node) ProxyAddrs() []string { return n.proxy.Addrs() }

// AdminAddr is the admin API's address, its port resolved.
func (n *Node) AdminAddr() string { return n.admin.Addr().String() }

// Ready tells whether the node may get traffic: nil, or why not.
func (n *Node) Ready() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !n.drain.IsZero():
		return ErrDraining
	case !n.ready:
		return errors.New("node is starting")
	}
	return nil
}
