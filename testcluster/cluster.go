// Package testcluster runs starling for real on one machine, in one process:
// nodes, demo backends and the traffic between them. `starling dev` is made of
// it, and so are the tests that look at whole nodes from outside; anybody's
// tests may start one:
//
//	c := testcluster.ForTest(t, testcluster.Options{Nodes: 3, Backends: 3})
//	http.Get(c.Node(0).URL() + "/v1/models")
//	c.Backend(1).Kill()
//	c.Node(2).Kill()
//	c.Partition([]int{0}, []int{1})
//	c.Heal()
//
// Start is the same for who is no test.
//
// Several clusters may run side by side. What a cluster opens and writes is gone
// after its Stop. The package must not know what its nodes are made of: it uses
// what a user can use.
package testcluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster/fault"
	"github.com/starling-lb/starling/testcluster/llm"
)

// PoolName is the pool that every route of a cluster's nodes leads to.
const PoolName = "llm"

// MaxNodes is how many nodes Start can start in one process.
const MaxNodes = 64

// ErrNodes is what Start returns for a number of nodes that it cannot start.
var ErrNodes = errors.New("too many nodes")

// Options say what a cluster is made of.
type Options struct {
	Nodes    int         // 1 if left zero; more than 1 are one cluster
	Backends int         // demo backends, b1 and so on
	Backend  llm.Options // of each of them; ID and addresses are the cluster's

	// UsualPorts takes the ports that people expect, 8080, 9901 and 7946 on for the
	// nodes, 9001 and 9101 on for the backends, each where it is free. Otherwise, and
	// instead of one that is taken, it is any free port.
	UsualPorts bool

	Config func(*node.Config) // has the last word on a node's configuration
	Dial   proxy.Dialer       // to backends; nil: TCP
	Logger *slog.Logger       // of nodes and backends; nil: discards
}

// Cluster is what runs.
type Cluster struct {
	options  Options
	nodes    []*Node
	backends []*Backend
	dir      string       // all that the nodes write
	links    *fault.Links // between the nodes
}

// Node is one starling of the cluster.
type Node struct {
	*node.Node
	Name  string
	plug  *plug
	disk  *Disk
	clock *Clock
}

// URL is the base of what clients ask, without a slash at its end.
func (n *Node) URL() string { return "http://" + n.ProxyAddrs()[0] }

// AdminURL is the base of its admin API.
func (n *Node) AdminURL() string { return "http://" + n.AdminAddr() }

// Backend is one demo backend of the cluster.
type Backend struct {
	*llm.Server
	ID string
}

// Kill refuses connections and breaks those that run, as a process that died.
func (b *Backend) Kill() error { return b.SetFaults(llm.Faults{Refuse: true, CloseConns: true}) }

// Revive takes all faults away.
func (b *Backend) Revive() error { return b.SetFaults(llm.Faults{}) }

// Node is node number i, from 0.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Backend is demo backend number i, from 0.
func (c *Cluster) Backend(i int) *Backend { return c.backends[i] }

// Backends are all demo backends.
func (c *Cluster) Backends() []*Backend { return c.backends }

// Start brings up backends and nodes and returns when they serve, or with all
// undone. ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Nodes > MaxNodes {
		return nil, fmt.Errorf("%d nodes: %w; ask for up to %d", o.Nodes, ErrNodes, MaxNodes)
	}
	c := &Cluster{options: o, links: fault.NewLinks()}
	err := c.startAll(ctx, o)
	if err == nil {
		return c, nil
	}
	now, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel()
	return nil, errors.Join(err, c.Stop(now))
}

func (c *Cluster) startAll(ctx context.Context, o Options) error {
	var err error
	if c.dir, err = os.MkdirTemp("", "starling-"); err != nil {
		return fmt.Errorf("directory of the cluster: %w", err)
	}
	for i := range o.Backends {
		if err := c.startBackend(ctx, o, i); err != nil {
			return err
		}
	}
	for i := range max(1, o.Nodes) {
		n, err := c.startNode(ctx, o, i)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	return nil
}

func (c *Cluster) startBackend(ctx context.Context, o Options, i int) error {
	b := o.Backend
	b.ID = fmt.Sprintf("b%d", i+1)
	b.Address, b.Control = o.port(ctx, 9001+i), o.port(ctx, 9101+i)
	if b.Logger == nil && o.Logger != nil {
		b.Logger = o.Logger.With("component", b.ID)
	}
	s, err := llm.New(b)
	if err != nil {
		return err
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	c.backends = append(c.backends, &Backend{Server: s, ID: b.ID})
	return nil
}

func (c *Cluster) startNode(ctx context.Context, o Options, i int) (*Node, error) {
	cfg := c.config(ctx, o, i)
	n, err := StartNode(ctx, cfg, Seams{Links: c.links, Dial: o.Dial, Logger: o.log(cfg.Node.Name)})
	if errors.Is(err, syscall.EADDRINUSE) && o.UsualPorts { // taken since it was asked for
		o.UsualPorts = false
		return c.startNode(ctx, o, i)
	}
	return n, err
}

// Add starts one more node, which knows all others as seeds.
func (c *Cluster) Add(ctx context.Context) error {
	n, err := c.startNode(ctx, c.options, len(c.nodes))
	if err == nil {
		c.nodes = append(c.nodes, n)
	}
	return err
}

// Kill is Node(i).Kill.
func (c *Cluster) Kill(i int) { c.nodes[i].Kill() }

// Restart starts node number i anew, on what it has written, at the addresses
// that it had. It was killed or stopped.
func (c *Cluster) Restart(ctx context.Context, i int) error {
	o, old := c.options, c.nodes[i]
	o.Config = func(cfg *node.Config) {
		if c.options.Config != nil {
			c.options.Config(cfg)
		}
		cfg.Admin.Address, cfg.Listeners[0].Address = old.AdminAddr(), old.ProxyAddrs()[0]
		if cfg.Cluster.On() {
			cfg.Cluster.Bind, cfg.Cluster.RPC = old.GossipAddr(), old.RPCAddr()
		}
	}
	n, err := c.startNode(ctx, o, i)
	if err == nil {
		c.nodes[i] = n
	}
	return err
}

// log is a node's logger. Where there are several nodes each line says whose it
// is.
func (o *Options) log(name string) *slog.Logger {
	if o.Logger == nil || o.Nodes < 2 {
		return o.Logger
	}
	return o.Logger.With("node", name)
}

// config is what a file for node number i of this cluster would hold.
func (c *Cluster) config(ctx context.Context, o Options, i int) node.Config {
	cfg := node.DefaultConfig()
	cfg.Node.Name = fmt.Sprintf("n%d", i+1)
	cfg.Node.DataDir = filepath.Join(c.dir, cfg.Node.Name)
	cfg.Admin.Address = o.port(ctx, 9901+i)
	if o.Nodes > 1 {
		cfg.Cluster.Bind, cfg.Cluster.RPC = o.port(ctx, 7946+10*i), o.port(ctx, 7947+10*i)
		cfg.Cluster.BootstrapExpect = o.Nodes
		for _, n := range c.nodes {
			cfg.Cluster.Seeds = append(cfg.Cluster.Seeds, n.GossipAddr())
		}
	}
	pool := proxy.DefaultPool()
	for _, b := range c.backends {
		entry := backend.DefaultConfig()
		entry.ID, entry.URL = b.ID, b.URL()
		pool.Backends = append(pool.Backends, entry)
	}
	cfg.Pools = map[string]proxy.PoolConfig{PoolName: pool}
	route := proxy.DefaultRoute()
	route.Pool = PoolName
	l := proxy.DefaultListener()
	l.Address, l.Routes = o.port(ctx, 8080+i), []proxy.RouteConfig{route}
	cfg.Listeners = []proxy.ListenerConfig{l}
	if o.Config != nil {
		o.Config(&cfg)
	}
	return cfg
}

// Stop drains the nodes until ctx ends, then ends what still runs, and leaves
// nothing behind. It may be called again.
func (c *Cluster) Stop(ctx context.Context) error {
	errs := make([]error, len(c.nodes))
	var stops sync.WaitGroup
	for i, n := range c.nodes {
		n.disk.Mend() // or its last write could wait for ever
		stops.Go(func() { errs[i] = n.Stop(ctx) })
	}
	stops.Wait()
	now, cancel := context.WithCancel(ctx)
	cancel() // nobody is left to ask a backend anything
	c.links.Stop()
	for _, b := range c.backends {
		_ = b.Server.Stop(now) // says only that answers were cut, which is what a Stop that is not graceful does
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}
