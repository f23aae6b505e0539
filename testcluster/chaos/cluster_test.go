package chaos_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/testcluster"
)

const patience = 60 * time.Second // no wait here is longer

// eventually looks until nothing is wrong.
func eventually(t *testing.T, wrong func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		why := wrong()
		if why == "" {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("after %v still: %s", patience, why)
		}
	}
}

// TestPartition: the two sides of a cut see each other no more, each sees its own,
// and all see all once it is healed.
func TestPartition(t *testing.T) {
	t.Parallel()
	c := testcluster.ForTest(t, testcluster.Options{Nodes: 3, Backends: 1, Config: func(cfg *node.Config) { testcluster.DemoConfig(cfg); cfg.Shards.Count = 2 }})
	sees := func(want ...int) func() string {
		return func() string {
			for i, n := range want {
				var s api.Status
				if admin, err := client.New(c.Node(i).AdminURL(), ""); err != nil {
					return err.Error()
				} else if err := admin.Get(t.Context(), &s, "status"); err != nil {
					return err.Error()
				}
				if s.Cluster.Alive != n {
					return fmt.Sprintf("n%d sees %d alive, want %d", i+1, s.Cluster.Alive, n)
				}
			}
			return ""
		}
	}
	eventually(t, sees(3, 3, 3))
	c.Partition([]int{2})
	eventually(t, sees(2, 2, 1))
	c.Heal()
	eventually(t, sees(3, 3, 3))
	c.Partition([]int{0}, []int{1}) // n3 hears both
	c.Heal()
	eventually(t, sees(3, 3, 3))
}
