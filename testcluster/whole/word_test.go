package whole

import (
	"fmt"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
)

// outLong has ejections last longer than the test, and nothing but operators decide.
func outLong(cfg *node.Config) {
	pool := cfg.Pools[testcluster.PoolName]
	pool.Outlier.BaseEjection, pool.Outlier.MaxEjection, pool.Health.Enabled = 10*time.Minute, time.Hour, false
	cfg.Pools[testcluster.PoolName] = pool
	fewShards(cfg)
}

// fewShards has the replicas be where they are to be soon.
func fewShards(cfg *node.Config) { cfg.Shards.Count = 1 }

// stand waits until b1 is as wanted at each of three nodes, by what node i says.
func stand(t *testing.T, c *testcluster.Cluster, i int, want ...backend.State) {
	t.Helper()
	eventually(t, func() string {
		var l api.Backends
		if err := admin(t, c, i).With("scope", "cluster").Get(t.Context(), &l, "backends"); err != nil {
			return err.Error()
		}
		var is []backend.State
		for _, b := range l.Backends {
			if b.ID == "b1" {
				is = append(is, b.State)
			}
		}
		if fmt.Sprint(is) != fmt.Sprint(want) {
			return fmt.Sprintf("b1 is %v, want %v; %+v", is, want, l.Nodes)
		}
		return ""
	})
}

func order(t *testing.T, c *testcluster.Cluster, i int, verb, scope string) error {
	t.Helper()
	one := admin(t, c, i)
	if scope != "" {
		one = one.With("scope", scope)
	}
	return one.Post(t.Context(), nil, "backends", "b1", verb)
}

// told gives an order until it is taken: at first, and on a machine that does much else,
// the cluster may not agree in time.
func told(t *testing.T, c *testcluster.Cluster, i int, verb, scope string) {
	t.Helper()
	eventually(t, func() string {
		if err := order(t, c, i, verb, scope); err != nil {
			return err.Error()
		}
		return ""
	})
}

// An ejection by an operator, and its end, are everybody's whichever node was told,
// also of a node that starts meanwhile; with scope=node they are that node's.
func TestEjectionsAreTheClusters(t *testing.T) {
	t.Parallel()
	const in, out = backend.Active, backend.Ejected
	c := begin(t, outLong)
	told(t, c, 1, "eject", "node")
	stand(t, c, 0, in, out, in)
	told(t, c, 1, "admit", "node")
	stand(t, c, 0, in, in, in)

	told(t, c, 0, "eject", "")
	stand(t, c, 2, out, out, out)
	c.Kill(1)
	if err := c.Restart(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	stand(t, c, 2, out, out, out)
	told(t, c, 1, "admit", "")
	stand(t, c, 2, in, in, in)

	told(t, c, 2, "eject", "cluster")
	stand(t, c, 0, out, out, out)
	told(t, c, 0, "reset", "")
	stand(t, c, 1, in, in, in)
}
