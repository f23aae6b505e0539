package membership

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/testcluster"
)

// TestSituationCopiedDirectory: a node is started on a copy of another's data directory,
// which runs. It has no voice: it leads nothing, the others go on with the one they
// know, whose replicas stay as they are, and every session is where it was.
func TestSituationCopiedDirectory(t *testing.T) {
	t.Parallel()
	twin, dirs := t.TempDir(), map[string]string{}
	c := begin(t, 3, 2, func(cfg *node.Config) {
		cfg.Pools[testcluster.PoolName].Sticky.Consistency = "strict" // an answer is an agreed binding, or none
		if cfg.Node.Name == "n4" {
			cfg.Node.DataDir = twin
		}
		dirs[cfg.Node.Name] = cfg.Node.DataDir
	})
	all := func() {
		t.Helper()
		for i := range 3 {
			eventually(t, settleTime, func() string { return settled(t, c.Node(i), 3) })
		}
	}
	all()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	homes := map[string]string{}
	take := func() {
		t.Helper()
		for s := range 20 {
			session := fmt.Sprint("s", s)
			eventually(t, settleTime, func() string {
				home, err := turn(client, c.Node(s%3), session)
				if err != nil {
					return err.Error()
				}
				if was := homes[session]; was != "" && was != home {
					t.Errorf("session %s is at %s, and was at %s", session, home, was)
				}
				homes[session] = home
				return ""
			})
		}
	}
	take()
	id := get[api.Status](t, c.Node(2), "status").Node.ID
	c.Kill(2)
	if err := testcluster.CopyDir(twin, dirs["n3"]); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	all()
	if err := c.Add(t.Context()); err != nil {
		t.Fatal(err) // it cannot know yet
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for range 24 { // for some time
		<-tick.C
		if s := get[api.Status](t, c.Node(3), "status"); s.Node.ID == id && s.Shards.Led > 0 {
			t.Fatalf("the copy leads: %+v", s)
		}
		for _, s := range get[api.ShardList](t, c.Node(0), "shards").Shards {
			if s.Step != nil && strings.Contains(s.Step.Reason, "older copy") {
				t.Fatalf("the node is taken for the copy: shard %d, %+v", s.ID, s.Step)
			}
		}
		for i := range 2 {
			if m := member(t, c.Node(i), id); m.Address != c.Node(2).GossipAddr() {
				t.Fatalf("node %d takes the copy for the node: %+v", i, m)
			}
		}
	}
	eventually(t, patience, func() string { return unready(client, c.Node(3), "the other nodes know this one at") })
	eventually(t, patience, func() string { return unready(client, c.Node(2), "") })
	all()
	take()
}

// unready tells what is wrong unless a node is not ready for that reason; "": it is to
// be ready.
func unready(client *http.Client, n *testcluster.Node, why string) string {
	resp, err := client.Get(n.AdminURL() + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil || (why == "") != (resp.StatusCode == http.StatusOK) || !strings.Contains(string(said), why) {
		return fmt.Sprintf("node %s: %s, %s, %v", n.Name, resp.Status, said, err)
	}
	return ""
}
