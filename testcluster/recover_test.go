package testcluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/shards/meta"
	"github.com/starling-lb/starling/testcluster"
)

// TestMostNodesLostForEver: two of three nodes are lost with their disks. The
// third recovers shard 0, makes the others anew from what it has, and every
// session is where it was; two new nodes make it whole.
func TestMostNodesLostForEver(t *testing.T) {
	c, dirs := threeOnDisk(t)
	k := newTalk(t, c, 60)
	k.take(t, 3, 0, 1, 2)
	for i := range 3 {
		c.Kill(i)
	}
	cfg := node.DefaultConfig()
	cfg.Node.DataDir = dirs["n1"]
	r, err := node.Recover(cfg)
	if err != nil {
		t.Fatal(err)
	}
	before := r.Map()
	if err := r.Do(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	a := admin(t, c.Node(0))
	eventually(t, settleTime, func() string {
		var s api.Status
		if err := a.Get(t.Context(), &s, "status"); err != nil {
			return err.Error()
		}
		if !s.Cluster.MetaQuorum || s.Cluster.ID != before.Cluster {
			return fmt.Sprintf("cluster %+v", s.Cluster)
		}
		return ""
	})
	for shard := 1; shard <= before.Count(); shard++ {
		eventually(t, settleTime, func() string { // it may have to hear of its own standing first
			if err := a.Post(t.Context(), nil, "shards", fmt.Sprint(shard), "reset"); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	everyShard(t, c, func(s api.Shard) string {
		if s.Leader != "n1" || s.ID > 0 && s.Incarnation < 2 {
			return fmt.Sprintf("it is led by %q in incarnation %d", s.Leader, s.Incarnation)
		}
		return ""
	}, 0)
	k.take(t, 3, 0)
	for range 2 {
		if err := c.Add(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, c, 3, 0, 3, 4)
	k.take(t, 3, 0, 3, 4)
}

// threeOnDisk starts a cluster of three and tells where each node, by name, keeps
// what it keeps.
func threeOnDisk(t *testing.T) (c *testcluster.Cluster, dirs map[string]string) {
	t.Helper()
	dirs = map[string]string{}
	c = agreeing(t, 3, func(cfg *node.Config) {
		exposed(cfg)
		dirs[cfg.Node.Name] = cfg.Node.DataDir
	})
	return c, dirs
}

// TestRestoredDirectory: a stopped node's directory is its backup. Lost and put
// back, the node goes on as itself, with what was agreed meanwhile.
func TestRestoredDirectory(t *testing.T) {
	c, dirs := threeOnDisk(t)
	k := newTalk(t, c, 30)
	k.take(t, 2, 0, 1, 2)
	c.Kill(2)
	backup := filepath.Join(t.TempDir(), "n3")
	if err := testcluster.CopyDir(backup, dirs["n3"]); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dirs["n3"]); err != nil {
		t.Fatal(err)
	}
	ledWithout(t, c, "n3", 0, 1)
	more := newTalk(t, c, 60)
	copy(more.homes, k.homes)
	more.take(t, 2, 0, 1)
	if err := testcluster.CopyDir(dirs["n3"], backup); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	settled(t, c, 3, 0, 1, 2)
	more.take(t, 2, 2)
}

// TestLogsLostAlone: a node comes back without the file of its logs. It votes as
// nobody it was: it gets new replicas, and every session is where it was.
func TestLogsLostAlone(t *testing.T) {
	c, dirs := threeOnDisk(t)
	k := newTalk(t, c, 30)
	k.take(t, 2, 0, 1, 2)
	c.Kill(1)
	if err := os.Remove(filepath.Join(dirs["n2"], "raft.db")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dirs["n2"], "snapshots")); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	settled(t, c, 3, 0, 1, 2)
	k.take(t, 2, 1)
	if m, err := meta.Load(dirs["n2"]); err != nil || !renewed(m) {
		t.Errorf("its replicas are as old as the cluster: %v", err)
	}
}

// renewed tells whether a node has a replica in each shard that is newer than the
// others'.
func renewed(m *meta.Map) bool {
	for _, s := range m.Shards {
		lives := map[uint64]bool{}
		for _, r := range s.Replicas {
			lives[r.Life] = true
		}
		if len(lives) < 2 {
			return false
		}
	}
	return true
}
