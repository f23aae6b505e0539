package testcluster_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
)

// TestTwoClusters: a node of one cluster that is started again with a seed of
// another is refused there, by both sides' word, and stays what it was.
func TestTwoClusters(t *testing.T) {
	var seed string
	start := func() *testcluster.Cluster {
		c, err := testcluster.Start(t.Context(), testcluster.Options{Nodes: 2, Config: func(cfg *node.Config) {
			if seed != "" {
				cfg.Cluster.Seeds = append(cfg.Cluster.Seeds, seed)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stop(t, c) })
		return c
	}
	one, two := start(), start()
	id := func(n *testcluster.Node) string {
		var s api.Status
		if err := admin(t, n).Get(t.Context(), &s, "status"); err != nil {
			t.Fatal(err)
		}
		return s.Cluster.ID
	}
	// whole says what is wrong with a cluster of two.
	whole := func(c *testcluster.Cluster) string {
		for i := range 2 {
			var l api.Members
			if err := admin(t, c.Node(i)).Get(t.Context(), &l, "members"); err != nil {
				return err.Error()
			}
			alive := 0
			for _, m := range l.Members {
				if m.State == backend.MemberAlive {
					alive++
				}
			}
			if alive != 2 || len(l.Members) != 2 || id(c.Node(i)) == "" || id(c.Node(i)) != id(c.Node(0)) {
				return fmt.Sprintf("node %d: %d alive of %d, cluster %q", i, alive, len(l.Members), id(c.Node(i)))
			}
		}
		return ""
	}
	eventually(t, patience, func() string { return whole(one) + whole(two) })
	first, second := id(one.Node(0)), id(two.Node(0))
	if first == second {
		t.Fatalf("both clusters are %s", first)
	}
	seed = one.Node(0).GossipAddr()
	two.Kill(1)
	if err := two.Restart(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*testcluster.Node{one.Node(0), two.Node(1)} {
		eventually(t, patience, func() string {
			if refusals(t, n) == 0 {
				return "nobody is refused for its cluster"
			}
			return ""
		})
	}
	eventually(t, patience, func() string { return whole(two) })
	for until := time.Now().Add(6 * time.Second); time.Now().Before(until); { // it goes on asking every 5 s
		<-time.After(200 * time.Millisecond)
		for i := range 2 {
			var l api.Members
			if err := admin(t, one.Node(i)).Get(t.Context(), &l, "members"); err != nil {
				t.Fatal(err)
			}
			if now := id(one.Node(i)); len(l.Members) != 2 || now != first {
				t.Fatalf("node %d: %d members of cluster %q, which was %s", i, len(l.Members), now, first)
			}
		}
		eventually(t, patience, func() string { return whole(one) }) // one may be suspected for a moment
	}
	if why := whole(two); why != "" || id(one.Node(0)) != first || id(two.Node(0)) != second {
		t.Errorf("%s; clusters %s and %s, were %s and %s", why, id(one.Node(0)), id(two.Node(0)), first, second)
	}
}

// refusals is how often a node refused another for its cluster.
func refusals(t *testing.T, n *testcluster.Node) (count int) {
	t.Helper()
	resp, err := http.Get(n.AdminURL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), `starling_gossip_refused_total{cause="cluster"} `)
	_, _ = fmt.Sscan(rest, &count) // 0 where it is not there
	return count
}
