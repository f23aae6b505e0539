// Package membership holds tests of real clusters whose nodes come and go. It is a
// package of its own so that they run beside testcluster's own.
package membership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/testcluster"
)

const (
	patience   = 60 * time.Second
	settleTime = 60 * time.Second // for all groups to reach the map once nothing happens any more
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// begin starts a cluster whose sessions live in so many shards. Only what nodes do may
// move them: backends are not judged, and nothing is evened out.
func begin(t *testing.T, nodes, shards int, edit func(*node.Config)) *testcluster.Cluster {
	t.Helper()
	var c *testcluster.Cluster
	c, err := testcluster.Start(t.Context(), testcluster.Options{Nodes: nodes, Backends: 3, Config: func(cfg *node.Config) {
		pool := cfg.Pools[testcluster.PoolName]
		sticky := proxy.DefaultSession()
		pool.Sticky, pool.Headers.ExposeBackend = &sticky, true
		pool.Health.Enabled, pool.Outlier.ConsecutiveFailures, pool.Backend.Engine, pool.Rebalance.Enabled = false, 0, "none", false
		cfg.Pools[testcluster.PoolName] = pool
		cfg.Shards.Count = shards
		if cfg.Cluster.Bind == "" {
			cfg.Cluster.Bind, cfg.Cluster.RPC, cfg.Cluster.BootstrapExpect = "127.0.0.1:0", "127.0.0.1:0", 1
		}
		if c != nil && len(cfg.Cluster.Seeds) == 0 {
			cfg.Cluster.Seeds = []string{c.Node(0).GossipAddr()}
		}
		if edit != nil {
			edit(cfg)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return c
}

func admin(t testing.TB, n *testcluster.Node) *client.Client {
	t.Helper()
	c, err := client.New(n.AdminURL(), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually waits until look finds nothing wrong.
func eventually(t testing.TB, within time.Duration, look func() string) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond) // asking all the time would be the load
	defer tick.Stop()
	for by := time.Now().Add(within); ; <-tick.C {
		wrong := look()
		if wrong == "" {
			return
		}
		if time.Now().After(by) {
			t.Fatalf("after %v still: %s", within, wrong)
		}
	}
}

// settled says what keeps a node from seeing every shard as the map wants it: led,
// nothing done to it, and so many replicas, all of which vote and keep up.
func settled(t testing.TB, n *testcluster.Node, replicas int) string {
	t.Helper()
	return settledBut(t, n, replicas, 0)
}

// settledBut is settled where replicas may lack so many entries: under load there is
// always one on its way.
func settledBut(t testing.TB, n *testcluster.Node, replicas int, lag uint64) string {
	t.Helper()
	var l api.ShardList
	if err := admin(t, n).Get(t.Context(), &l, "shards"); err != nil {
		return err.Error()
	}
	if len(l.Shards) < 2 {
		return fmt.Sprintf("%d shards are known", len(l.Shards))
	}
	for _, s := range l.Shards {
		up := 0
		for _, r := range s.Replicas {
			if r.Role == api.LeaderRole || r.Role == api.VoterRole && r.Match > 0 && r.Lag <= lag {
				up++
			}
		}
		if s.Leader == "" || s.Step != nil || up != replicas || len(s.Replicas) != replicas {
			return fmt.Sprintf("shard %d: led by %q, step %+v, replicas %+v", s.ID, s.Leader, s.Step, s.Replicas)
		}
	}
	return ""
}

// errAway is an answer that says nothing of a session: the node could not ask.
var errAway = errors.New("no answer")

// turn takes one turn of a session, and tells which backend had it.
func turn(c *http.Client, n *testcluster.Node, session string) (string, error) {
	req, err := http.NewRequest(http.MethodGet, n.URL()+"/v1/models", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Session-ID", session)
	resp, err := c.Do(req)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errAway, err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return "", fmt.Errorf("%w: %w", errAway, err)
	}
	b := resp.Header.Get("X-Starling-Backend")
	if resp.StatusCode != http.StatusOK || b == "" {
		return "", fmt.Errorf("%w: status %d, %s", errAway, resp.StatusCode, resp.Header.Get("X-Starling-Error"))
	}
	return b, nil
}
