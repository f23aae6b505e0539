package testcluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/testcluster"
)

// settleTime is how long a cluster may take to be founded and to lead all its
// shards, on a machine that does much else.
const settleTime = 2 * time.Minute

// agreeing starts a cluster whose pool has sessions, and waits until every shard
// has a leader and all its replicas.
func agreeing(t *testing.T, nodes int, edit func(*node.Config)) *testcluster.Cluster {
	t.Helper()
	c, err := testcluster.Start(t.Context(), testcluster.Options{Nodes: nodes, Backends: 3, Config: func(cfg *node.Config) {
		sessionsOn(cfg)
		if edit != nil {
			edit(cfg)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	voters := 3
	if nodes < 3 {
		voters = 1
	}
	settled(t, c, voters, allOf(nodes)...)
	return c
}

// sessionsOn gives the pool sessions, in few shards.
func sessionsOn(cfg *node.Config) {
	pool := cfg.Pools[testcluster.PoolName]
	sticky := proxy.DefaultSession()
	pool.Sticky = &sticky
	cfg.Pools[testcluster.PoolName] = pool
	cfg.Shards.Count = 4
}

func allOf(nodes int) (all []int) {
	for i := range nodes {
		all = append(all, i)
	}
	return all
}

// settled waits until each of the nodes says that every shard has a leader and so
// many replicas that keep up.
func settled(t *testing.T, c *testcluster.Cluster, replicas int, nodes ...int) {
	t.Helper()
	everyShard(t, c, func(s api.Shard) string { return unsettled(s, replicas) }, nodes...)
}

// ledWithout waits until each of the nodes says that every shard is led by
// another than the one named.
func ledWithout(t *testing.T, c *testcluster.Cluster, dead string, nodes ...int) {
	t.Helper()
	everyShard(t, c, func(s api.Shard) string {
		if s.Leader == "" || s.Leader == dead {
			return fmt.Sprintf("it is led by %q", s.Leader)
		}
		return ""
	}, nodes...)
}

// everyShard waits until each of the nodes finds nothing wrong with any shard.
func everyShard(t *testing.T, c *testcluster.Cluster, wrong func(api.Shard) string, nodes ...int) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond) // asking all the time would be the load
	defer tick.Stop()
	for _, i := range nodes {
		eventually(t, settleTime, func() string {
			<-tick.C
			var l api.ShardList
			if err := admin(t, c.Node(i)).Get(t.Context(), &l, "shards"); err != nil {
				return err.Error()
			}
			if len(l.Shards) < 2 {
				return fmt.Sprintf("node %d knows %d shards", i, len(l.Shards))
			}
			for _, s := range l.Shards {
				if why := wrong(s); why != "" {
					return fmt.Sprintf("node %d, shard %d: %s", i, s.ID, why)
				}
			}
			return ""
		})
	}
}

func unsettled(s api.Shard, replicas int) string {
	voters := 0
	for _, r := range s.Replicas {
		if r.Role == api.LeaderRole || r.Role == api.VoterRole && r.Match > 0 && r.Lag == 0 {
			voters++
		}
	}
	switch {
	case s.Leader == "":
		return "it has no leader"
	case voters != replicas:
		return fmt.Sprintf("%d of %d replicas vote and keep up: %+v", voters, replicas, s.Replicas)
	}
	return ""
}

// TestFounding: three nodes found one cluster, whichever starts first, and give
// every shard three replicas.
func TestFounding(t *testing.T) {
	c := agreeing(t, 3, nil)
	ids := map[string]bool{}
	led := 0
	for i := range 3 {
		var s api.Status
		if err := admin(t, c.Node(i)).Get(t.Context(), &s, "status"); err != nil {
			t.Fatal(err)
		}
		ids[s.Cluster.ID] = true
		led += s.Shards.Led
		if s.Shards.Count != 4 || s.Shards.WithoutLeader != 0 || !s.Cluster.MetaQuorum {
			t.Errorf("node %d: %+v %+v", i, s.Cluster, s.Shards)
		}
	}
	if len(ids) != 1 || ids[""] {
		t.Errorf("the nodes are of clusters %v", ids)
	}
	if led != 4 {
		t.Errorf("4 shards are led by %d nodes", led)
	}
}

// TestGrowth: a cluster that began with one node gets two more: each joins,
// though it would found a cluster of one by itself, and every shard gets three
// voters. The sessions stay where they are all the time.
func TestGrowth(t *testing.T) {
	var seed string
	c := agreeing(t, 1, func(cfg *node.Config) {
		exposed(cfg)
		cfg.Cluster.Bind, cfg.Cluster.RPC, cfg.Cluster.BootstrapExpect = "127.0.0.1:0", "127.0.0.1:0", 1
		if seed != "" {
			cfg.Cluster.Seeds = []string{seed}
		}
	})
	seed = c.Node(0).GossipAddr()
	k := newTalk(t, c, 30)
	k.take(t, 2, 0)
	for i := 1; i < 3; i++ {
		if err := c.Add(t.Context()); err != nil {
			t.Fatal(err)
		}
		settled(t, c, 2*i-1, allOf(i+1)...) // one voter where there are two nodes, three of three
		k.take(t, 2, allOf(i+1)...)
	}
}

// TestPureProxy: a node that hosts no replicas sends every session where it is,
// knows the shards, and says when nobody can decide any more.
func TestPureProxy(t *testing.T) {
	c := agreeing(t, 2, func(cfg *node.Config) {
		exposed(cfg)
		cfg.Shards.Host = cfg.Node.Name != "n2" // the first one keeps all there is
	})
	k := newTalk(t, c, 30)
	k.take(t, 4, 0, 1)
	proxyStatus := func() (s api.Status) {
		t.Helper()
		if err := admin(t, c.Node(1)).Get(t.Context(), &s, "status"); err != nil {
			t.Fatal(err)
		}
		return s
	}
	eventually(t, patience, func() string { // it asks the others now and then
		if s := proxyStatus(); s.Shards.Led != 0 || s.Shards.Count != 4 || s.Shards.WithoutLeader != 0 || !s.Cluster.MetaQuorum {
			return fmt.Sprintf("the proxy says %+v, %+v", s.Shards, s.Cluster)
		}
		return ""
	})
	c.Kill(0)
	eventually(t, patience, func() string {
		if s := proxyStatus(); s.Shards.WithoutLeader != 4 || s.Cluster.MetaQuorum {
			return fmt.Sprintf("without the others it says %+v, %+v", s.Shards, s.Cluster)
		}
		return ""
	})
}
