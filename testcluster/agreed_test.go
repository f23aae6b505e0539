package testcluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
)

// unlikeFiles has n1 know a backend less, and n2 weigh one otherwise.
func unlikeFiles(cfg *node.Config) {
	sessionsOn(cfg)
	pool := cfg.Pools[testcluster.PoolName]
	switch cfg.Node.Name {
	case "n1":
		pool.Backends = slices.Clone(pool.Backends[:2])
	case "n2":
		pool.Backends = slices.Clone(pool.Backends)
		pool.Backends[0].Weight = 7
	}
	cfg.Pools[testcluster.PoolName] = pool
}

// picks waits until every node has these backends, "b1*2 b2": with weights.
func picks(t *testing.T, c *testcluster.Cluster, want string, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		eventually(t, settleTime, func() string {
			var l api.Backends
			if err := admin(t, c.Node(i)).Get(t.Context(), &l, "backends"); err != nil {
				return err.Error()
			}
			var got []string
			for _, b := range l.Backends {
				if b.State != backend.Removed {
					got = append(got, fmt.Sprintf("%s*%d", b.ID, b.Weight))
				}
			}
			slices.Sort(got)
			if text := strings.ReplaceAll(strings.Join(got, " "), "*1", ""); text != want {
				return fmt.Sprintf("node %d has %q, want %q", i, text, want)
			}
			return ""
		})
	}
}

// TestNodesAgreeOnBackends: nodes with unlike files pick from the same backends;
// what an operator decides at one of them is decided at all, also over a restart
// of all, until it is taken back.
func TestNodesAgreeOnBackends(t *testing.T) {
	c, err := testcluster.Start(t.Context(), testcluster.Options{Nodes: 3, Backends: 3, Config: unlikeFiles})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	settled(t, c, 3, 0, 1, 2)
	picks(t, c, "b1 b2 b3", 0, 1, 2)
	order := func(i int, body any, path ...string) {
		t.Helper()
		insist(t, func() error { return admin(t, c.Node(i)).Post(t.Context(), body, path...) })
	}
	insist(t, func() error {
		return admin(t, c.Node(0)).Delete(t.Context(), "pools", testcluster.PoolName, "backends", "b2")
	})
	order(1, map[string]int{"weight": 4}, "backends", "b3", "weight")
	order(2, api.NewBackend{ID: "b9", URL: "http://127.0.0.1:1", Weight: 1}, "pools", testcluster.PoolName, "backends")
	picks(t, c, "b1 b3*4 b9", 0, 1, 2)
	for i := range 3 {
		c.Kill(i)
	}
	for _, i := range []int{1, 2, 0} {
		if err := c.Restart(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	picks(t, c, "b1 b3*4 b9", 0, 1, 2)
	settled(t, c, 3, 0, 1, 2)
	order(2, nil, "backends", "b2", "reset")
	order(0, nil, "backends", "b3", "drain")
	picks(t, c, "b1 b2 b3*4 b9", 0, 1, 2)
	eventually(t, settleTime, func() string {
		var l api.Backends
		if err := admin(t, c.Node(1)).Get(t.Context(), &l, "backends"); err != nil {
			return err.Error()
		}
		for _, b := range l.Backends {
			if b.ID == "b3" && b.State != backend.Draining {
				return "b3 is " + string(b.State) + " at another node"
			}
		}
		return ""
	})
}
