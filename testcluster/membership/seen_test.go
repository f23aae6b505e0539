package membership

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
)

// get asks a node, again where it is too busy to answer.
func get[T any](t testing.TB, n *testcluster.Node, what string) (v T) {
	t.Helper()
	eventually(t, settleTime, func() string {
		v = *new(T)
		if err := admin(t, n).Get(t.Context(), &v, what); err != nil {
			return err.Error()
		}
		return ""
	})
	return v
}

// member is what a node says of another.
func member(t testing.TB, n *testcluster.Node, id string) api.Member {
	t.Helper()
	for _, m := range get[api.Members](t, n, "members").Members {
		if m.ID == id {
			return m
		}
	}
	return api.Member{}
}

// TestWhatIsSeen: a node says why there is no cluster yet; two nodes of one name are told apart; a node that
// is drained, and one that is gone, is seen as that by the others, wherever its replicas
// are named; a drained one is so over its restart.
func TestWhatIsSeen(t *testing.T) {
	t.Parallel()
	c := begin(t, 1, 4, func(cfg *node.Config) { cfg.Node.Name, cfg.Cluster.BootstrapExpect = "lb", 3 })
	eventually(t, settleTime, func() string {
		s := get[api.Status](t, c.Node(0), "status")
		if !strings.Contains(s.Cluster.Waits, "sees 1 of the 3 nodes") || !strings.Contains(s.NotReady, "no cluster yet") || s.Node.Agreed != "" || s.Cluster.Revision != 0 {
			return fmt.Sprintf("alone it says %+v", s)
		}
		return ""
	})
	for range 2 {
		if err := c.Add(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		eventually(t, settleTime, func() string {
			s := get[api.Status](t, c.Node(i), "status")
			if s.Cluster.Waits != "" || s.NotReady != "" || s.Node.Agreed != api.ActiveNode || s.Cluster.Revision == 0 || s.Cluster.Level == 0 || s.Shards.Steps != 0 || len(s.Faults) > 0 {
				return fmt.Sprintf("node %d says %+v", i, s)
			}
			return settled(t, c.Node(i), 3)
		})
	}
	takenBack(t, c.Node(2))
	drained := get[api.Status](t, c.Node(2), "status").Node.ID
	if err := admin(t, c.Node(2)).Post(t.Context(), nil, "node", "drain"); err != nil {
		t.Fatal(err)
	}
	eventually(t, settleTime, func() string { return rests(t, c.Node(0), drained) })
	c.Kill(2)
	eventually(t, settleTime, func() string { return replicasAre(t, c.Node(0), drained, backend.MemberDead) })
	if err := c.Restart(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if s := get[api.Status](t, c.Node(2), "status"); s.NotReady == "" || s.Node.State != backend.MemberDraining {
		t.Errorf("the drained node is back: %+v", s)
	}
	for i := range 3 {
		eventually(t, settleTime, func() string { return rests(t, c.Node(i), drained) })
	}
	if err := admin(t, c.Node(2)).Post(t.Context(), nil, "node", "undrain"); err != nil {
		t.Fatal(err)
	}
	eventually(t, settleTime, func() string {
		if m := member(t, c.Node(0), drained); m.State != backend.MemberAlive || m.Agreed != api.ActiveNode {
			return fmt.Sprintf("taken back it is %+v", m)
		}
		return replicasAre(t, c.Node(1), drained, backend.MemberAlive)
	})
	c.Kill(1)
	c.Kill(2)
	eventually(t, settleTime, func() string {
		s := get[api.Status](t, c.Node(0), "status")
		if s.Cluster.MetaQuorum || s.Cluster.Alive != 1 || s.Shards.WithoutLeader != 4 || !strings.Contains(s.Cluster.Paused, "look dead") {
			return fmt.Sprintf("alone again it says %+v, %+v", s.Cluster, s.Shards)
		}
		return ""
	})
}

// takenBack drains a node that gives notice, and takes that back meanwhile: whoever
// ordered the drain hears so, and nobody takes the node for drained afterwards.
func takenBack(t *testing.T, n *testcluster.Node) {
	t.Helper()
	for range 2 { // a balancer looks, and will look again
		if err := n.Ready(); err != nil {
			t.Fatal(err)
		}
	}
	drain := make(chan error, 1)
	go func() { drain <- admin(t, n).Post(t.Context(), nil, "node", "drain") }()
	eventually(t, settleTime, func() string {
		if s := get[api.Status](t, n, "status"); s.Node.State != backend.MemberDraining {
			return fmt.Sprintf("it is told to drain, and says %+v", s.Node)
		}
		return ""
	})
	if err := admin(t, n).Post(t.Context(), nil, "node", "undrain"); err != nil {
		t.Fatal(err)
	}
	if err := <-drain; err == nil || !strings.Contains(err.Error(), "taken back") {
		t.Errorf("the drain that was taken back: %v", err)
	}
	if s := get[api.Status](t, n, "status"); s.Node.Agreed != api.ActiveNode || s.Node.State != backend.MemberAlive || n.Ready() != nil {
		t.Errorf("taken back it says %+v, ready: %v", s.Node, n.Ready())
	}
}

// rests says what keeps a node from being seen as drained: it leads nothing and keeps
// its votes, for there is nobody else.
func rests(t *testing.T, at *testcluster.Node, id string) string {
	if m := member(t, at, id); m.State != backend.MemberDraining || m.Agreed != api.DrainingNode {
		return fmt.Sprintf("the drained node is %+v", m)
	}
	for _, s := range get[api.ShardList](t, at, "shards").Shards {
		if s.LeaderID == id || s.LeaderID == "" {
			return fmt.Sprintf("shard %d is led by %q", s.ID, s.LeaderID)
		}
	}
	if why := replicasAre(t, at, id, backend.MemberDraining); why != "" {
		return why
	}
	return settled(t, at, 3)
}

// replicasAre says what keeps each shard from naming a replica on a node in that state,
// under one name with the others.
func replicasAre(t *testing.T, at *testcluster.Node, id string, state backend.MemberState) string {
	for _, s := range get[api.ShardList](t, at, "shards").Shards {
		i := slices.IndexFunc(s.Replicas, func(r api.Replica) bool { return r.ID == id })
		if i < 0 || s.Replicas[i].State != state || s.Replicas[i].Node != "lb" || s.Phase != "ready" {
			return fmt.Sprintf("shard %d %s: %+v, want %s to be %s", s.ID, s.Phase, s.Replicas, id, state)
		}
	}
	return ""
}

// TestUnlikeFiles: one node's file has a backend more, another's a weight. All pick from
// the same, all say that the files are unlike, and nothing flaps.
func TestUnlikeFiles(t *testing.T) {
	t.Parallel()
	c := begin(t, 3, 2, func(cfg *node.Config) {
		pool := cfg.Pools[testcluster.PoolName]
		pool.Backends = slices.Clone(pool.Backends)
		switch cfg.Node.Name {
		case "n1":
			pool.Backends = pool.Backends[:2]
		case "n2":
			pool.Backends[0].Weight = 7
		}
		cfg.Pools[testcluster.PoolName] = pool
	})
	picks := func(i int) string {
		var all []string
		for _, b := range get[api.Backends](t, c.Node(i), "backends").Backends {
			all = append(all, fmt.Sprintf("%s*%d %s", b.ID, b.Weight, b.State))
		}
		slices.Sort(all)
		return strings.Join(all, ", ")
	}
	for i := range 3 {
		eventually(t, settleTime, func() string {
			if got := picks(i); got != "b1*1 active, b2*1 active, b3*1 active" {
				return fmt.Sprintf("node %d picks from %s", i, got)
			}
			if n := get[api.Status](t, c.Node(i), "status").Cluster.ConfigHashes; n != 3 {
				return fmt.Sprintf("node %d knows %d configurations", i, n)
			}
			return settled(t, c.Node(i), 3)
		})
	}
	var was, is [3]string
	look := func(into *[3]string) {
		for i := range 3 {
			into[i] = fmt.Sprint(picks(i), get[api.Pools](t, c.Node(i), "pools").Pools[0].Revision, get[api.Status](t, c.Node(i), "status").Cluster.Revision)
		}
	}
	look(&was)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for range 10 { // five rounds of the controller
		<-tick.C
		if look(&is); is != was {
			t.Fatalf("the nodes had %q, and have %q", was, is)
		}
	}
}

// TestTakenPort: a node whose port for other nodes is taken ends before anybody has
// heard of it.
func TestTakenPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c := begin(t, 1, 2, func(cfg *node.Config) {
		if cfg.Node.Name == "n2" {
			cfg.Cluster.RPC = taken.Addr().String()
		}
	})
	eventually(t, settleTime, func() string { return settled(t, c.Node(0), 1) })
	if err := c.Add(t.Context()); err == nil || !strings.Contains(err.Error(), "cluster.rpc: ") {
		t.Errorf("a node with a port that is taken: %v", err)
	}
	if l := get[api.Members](t, c.Node(0), "members").Members; len(l) != 1 {
		t.Errorf("it was heard of: %+v", l)
	}
}

// TestFailedDisk: a node whose disk has failed says so and carries streams; it is not
// ready while another is whose disk works, and is when there is none.
func TestFailedDisk(t *testing.T) {
	t.Parallel()
	c := begin(t, 3, 2, nil)
	for i := range 3 {
		eventually(t, settleTime, func() string { return settled(t, c.Node(i), 3) })
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	broken := func(i int) { breakDisk(t, client, c, i) }
	broken(2)
	eventually(t, settleTime, func() string { // it has to have heard of the others, and they have to agree on who leads
		if s := get[api.Status](t, c.Node(2), "status"); !strings.Contains(s.NotReady, "other nodes are better off") || c.Node(2).Ready() == nil {
			return fmt.Sprintf("its disk has failed: %+v, ready %v", s, c.Node(2).Ready())
		}
		if err := c.Node(0).Ready(); err != nil {
			return fmt.Sprintf("another node is not ready: %v", err)
		}
		return ""
	})
	broken(1)
	c.Kill(0)
	for _, i := range []int{1, 2} {
		eventually(t, settleTime, func() string {
			if err := c.Node(i).Ready(); err != nil {
				return fmt.Sprintf("no disk works, and node %d is not ready: %v", i, err)
			}
			return ""
		})
	}
}

// breakDisk has a node's disk fail, and waits until the node says so.
func breakDisk(t *testing.T, client *http.Client, c *testcluster.Cluster, i int) {
	t.Helper()
	c.Node(i).Disk().Fail()
	eventually(t, settleTime, func() string {
		for n := range 40 { // so that each shard has something to write
			if _, err := turn(client, c.Node(i), fmt.Sprintf("s%d of %d at %v", n, i, time.Now())); err != nil {
				return err.Error()
			}
		}
		if s := get[api.Status](t, c.Node(i), "status"); !strings.Contains(strings.Join(s.Faults, "; "), "on a disk that works") {
			return fmt.Sprintf("node %d says %+v", i, s)
		}
		return ""
	})
}

// TestFailedDiskIsReplaced: where there is another node, it gets the replicas of one
// whose disk has failed, though that one runs.
func TestFailedDiskIsReplaced(t *testing.T) {
	t.Parallel()
	c := begin(t, 3, 2, nil)
	for i := range 3 {
		eventually(t, settleTime, func() string { return settled(t, c.Node(i), 3) })
	}
	broken := get[api.Status](t, c.Node(2), "status").Node.ID
	breakDisk(t, &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}, c, 2)
	if err := c.Add(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, settleTime, func() string {
		for _, s := range get[api.ShardList](t, c.Node(0), "shards").Shards {
			for _, r := range s.Replicas {
				if r.ID == broken {
					return fmt.Sprintf("shard %d is still on the node whose disk has failed: %+v", s.ID, s.Step)
				}
			}
		}
		return settled(t, c.Node(0), 3)
	})
}

// TestDeadSeeds: a node that may found alone does not while a seed is silent, whose
// cluster may only be down, and says so. One whose only seed is itself does. Which
// seeds are silent is for gossip's TestUnheard.
func TestDeadSeeds(t *testing.T) {
	t.Parallel()
	const silent, own = "127.0.0.1:1", "127.79.46.1:7946" // nobody's, and no port that others are given
	c := begin(t, 1, 2, func(cfg *node.Config) { cfg.Cluster.Seeds = []string{silent} })
	alone := begin(t, 1, 2, func(cfg *node.Config) { cfg.Cluster.Bind, cfg.Cluster.Seeds = own, []string{own} })
	eventually(t, settleTime, func() string { return settled(t, alone.Node(0), 1) })
	eventually(t, settleTime, func() string {
		if s := get[api.Status](t, c.Node(0), "status"); !strings.Contains(s.Cluster.Waits, silent) || !strings.Contains(s.NotReady, "no cluster yet") {
			return fmt.Sprintf("with a silent seed it says %+v", s)
		}
		return ""
	})
}
