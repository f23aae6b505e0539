package testcluster_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/testcluster"
)

// newcomers is a stream of new sessions, 50 a second, at one node after the other.
type newcomers struct {
	client *http.Client
	nodes  atomic.Pointer[[]*testcluster.Node]
	all    sync.WaitGroup

	mu     sync.Mutex // guards what follows
	homes  map[string]string
	failed []error
	took   []time.Duration
}

func (n *newcomers) loop(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		nodes := *n.nodes.Load()
		n.all.Go(func() { n.one(nodes[i%len(nodes)], fmt.Sprint("newcomer ", i)) })
	}
}

func (n *newcomers) one(at *testcluster.Node, session string) {
	begin := time.Now()
	home, err := sessionTurn(n.client, at, session)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.took = append(n.took, time.Since(begin))
	if err != nil {
		n.failed = append(n.failed, fmt.Errorf("%s: %w", session, err))
		return
	}
	n.homes[session] = home
}

// TestGrowthUnderLoad: a cluster of one becomes three and then five nodes, and two of them
// leave, while 50 new sessions a second come. None fails, each stays where it was,
// and replicas and leaders are spread.
func TestGrowthUnderLoad(t *testing.T) {
	var c *testcluster.Cluster
	o := testcluster.Options{Nodes: 1, Backends: 3, Config: func(cfg *node.Config) {
		sessionsOn(cfg)
		exposed(cfg)
		cfg.Cluster.Bind, cfg.Cluster.RPC, cfg.Cluster.BootstrapExpect = "127.0.0.1:0", "127.0.0.1:0", 1
		if c != nil {
			cfg.Cluster.Seeds = []string{c.Node(0).GossipAddr()}
		}
	}}
	c, err := testcluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	settled(t, c, 1, 0)

	n := &newcomers{client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}, homes: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); n.loop(ctx) }()
	t.Cleanup(func() { cancel(); <-over; n.all.Wait(); n.client.CloseIdleConnections() })
	use := func(nodes ...int) {
		var use []*testcluster.Node
		for _, i := range nodes {
			use = append(use, c.Node(i))
		}
		n.nodes.Store(&use)
	}
	use(0)

	have := 1
	grow := func(to int) {
		begin := time.Now()
		for range to - have {
			if err := c.Add(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		have = to
		use(allOf(to)...)
		spreadOver(t, c, to, 0)
		t.Logf("%d nodes after %v", to, time.Since(begin).Round(time.Second))
	}
	grow(3)
	grow(5)
	begin := time.Now()
	use(1, 2, 4)
	for _, i := range []int{0, 3} {
		if err := admin(t, c.Node(i)).Post(t.Context(), nil, "node", "leave"); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{0, 3} {
		select {
		case <-c.Node(i).Left():
		case <-time.After(3 * settleTime):
			t.Fatalf("node %d has not left", i)
		}
		if err := c.Node(i).Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	spreadOver(t, c, 3, 1)
	t.Logf("3 nodes again after %v", time.Since(begin).Round(time.Second))

	cancel()
	<-over
	n.all.Wait()
	slices.Sort(n.took)
	t.Logf("%d new sessions: first turn p50 %v, p99 %v, at most %v", len(n.took), n.took[len(n.took)/2], n.took[len(n.took)*99/100], n.took[len(n.took)-1])
	if len(n.failed) > 0 {
		t.Errorf("%d of them failed, the first: %v", len(n.failed), n.failed[0])
	}
	moved := 0
	for session, home := range n.homes {
		if at, err := sessionTurn(n.client, c.Node(1), session); err != nil || at != home {
			moved++
			t.Logf("%s: at %s (%v), and was at %s", session, at, err, home)
		}
	}
	if moved > 0 {
		t.Errorf("%d sessions are not where they were", moved)
	}
}

// spreadOver waits until a node says that all shards are settled on so many nodes:
// replicas within one of even, leaders within two.
func spreadOver(t *testing.T, c *testcluster.Cluster, nodes, ask int) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	eventually(t, 3*settleTime, func() string {
		<-tick.C
		var l api.ShardList
		if err := admin(t, c.Node(ask)).Get(t.Context(), &l, "shards"); err != nil {
			return err.Error()
		}
		replicas, leaders := map[string]int{}, map[string]int{}
		for _, s := range l.Shards {
			if why := unsettled(s, 3); why != "" || s.Step != nil || len(s.Replicas) != 3 {
				return fmt.Sprintf("shard %d: %s, step %+v, replicas %+v", s.ID, why, s.Step, s.Replicas)
			}
			leaders[s.Leader]++
			for _, r := range s.Replicas {
				if s.ID > 0 {
					replicas[r.Node]++
				}
			}
		}
		return uneven("replicas", replicas, nodes, 1) + uneven("leaders", leaders, nodes, 2)
	})
}

func uneven(what string, counts map[string]int, nodes int, by float64) string {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	even := float64(sum) / float64(nodes)
	if len(counts) > nodes || len(counts) < nodes && even > by {
		return fmt.Sprintf("%s are on %v, want %d nodes", what, counts, nodes)
	}
	for _, n := range counts {
		if float64(n) < even-by || float64(n) > even+by {
			return fmt.Sprintf("%s are on %v, even would be %.1f", what, counts, even)
		}
	}
	return ""
}
