package testcluster_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
)

// TestKeysOfACluster rotates the keys of gossip as an operator does, from one
// node's admin API, while a node joins that has only the old one, another dies and
// comes back, and one more comes with only the new one.
func TestKeysOfACluster(t *testing.T) {
	gossipKey := func(n byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 32)) }
	old, next := gossipKey(1), gossipKey(2)
	configured := old
	c, err := testcluster.Start(t.Context(), testcluster.Options{Nodes: 3, Config: func(cfg *node.Config) {
		cfg.Cluster.GossipKeys = []string{configured}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	post := func(i int, order, key string) error {
		return admin(t, c.Node(i)).Post(t.Context(), api.KeyOrder{Key: key}, "keys", order)
	}
	// have says who of n nodes, as node i sees them, has other keys than so many,
	// the first of which is not first.
	have := func(i, n, keys int, first string) func() string {
		return func() string {
			var l api.Keys
			if err := admin(t, c.Node(i)).Get(t.Context(), &l, "keys"); err != nil {
				return err.Error()
			}
			if len(l.Nodes) != n {
				return fmt.Sprintf("%d nodes answer, want %d", len(l.Nodes), n)
			}
			for _, one := range l.Nodes {
				if one.Error != "" || len(one.Keys) != keys || first != "" && one.Keys[0] != first {
					return fmt.Sprintf("%s has %v, %s; want %d, %s first", one.Name, one.Keys, one.Error, keys, first)
				}
			}
			return ""
		}
	}
	first := func() (key string) {
		eventually(t, patience, func() string {
			var l api.Keys
			if err := admin(t, c.Node(0)).Get(t.Context(), &l, "keys"); err != nil {
				return err.Error()
			}
			if len(l.Nodes) == 0 || len(l.Nodes[0].Keys) == 0 {
				return fmt.Sprintf("nobody has keys: %+v", l.Nodes)
			}
			key = l.Nodes[0].Keys[0]
			return ""
		})
		return key
	}
	// done repeats what may be done again, as where a node did not answer in time.
	done := func(i int, order, key string) {
		t.Helper()
		eventually(t, patience, func() string {
			if err := post(i, order, key); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	members := func(n int) func() string {
		return func() string {
			for i := range n {
				var l api.Members
				if err := admin(t, c.Node(i)).Get(t.Context(), &l, "members"); err != nil {
					return err.Error()
				}
				if alive := slices.DeleteFunc(l.Members, func(m api.Member) bool { return m.State != backend.MemberAlive }); len(alive) != n {
					return fmt.Sprintf("node %d sees %d, want %d", i, len(alive), n)
				}
			}
			return ""
		}
	}
	eventually(t, patience, members(3))
	eventually(t, patience, have(1, 3, 1, first()))
	if err := post(0, "install", "AAAA"); err == nil || !strings.Contains(err.Error(), "not 16, 24 or 32") {
		t.Errorf("a key that is none: %v", err)
	}
	if err := post(0, "use", next); err == nil || !strings.Contains(err.Error(), "install it on every node first") {
		t.Errorf("a key that nobody has was used: %v", err)
	}
	done(0, "install", next)
	if err := c.Add(t.Context()); err != nil { // with the old one alone
		t.Fatal(err)
	}
	eventually(t, patience, members(4))
	if err := post(2, "use", next); err == nil || !strings.Contains(err.Error(), "n4") {
		t.Errorf("a key that n4 lacks was used: %v", err)
	}
	done(3, "install", next) // again, and from the newcomer
	done(2, "use", next)
	used := first()
	eventually(t, patience, have(3, 4, 2, used))
	if err := post(1, "remove", next); err == nil || !strings.Contains(err.Error(), "encrypts") {
		t.Errorf("the key in use was removed: %v", err)
	}
	c.Kill(1)
	eventually(t, patience, have(0, 3, 2, used))
	if err := c.Restart(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, members(4))
	if err := post(0, "remove", old); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, have(1, 4, 1, used))
	configured = next
	if err := c.Add(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, members(5))
	eventually(t, patience, have(4, 5, 1, used))
}
