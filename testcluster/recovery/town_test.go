// Package recovery holds tests of real clusters that lost what they cannot lose, and
// of nodes that come back as what they were. It is a package of its own so that they
// run beside testcluster's own.
package recovery

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/testcluster"
)

const patience = 90 * time.Second // no wait is longer

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// town is a cluster, where its nodes keep what they keep, and who takes turns there.
type town struct {
	*testcluster.Cluster
	t      *testing.T
	dirs   []string
	client *http.Client
	homes  map[string]home // of the sessions
}

type home struct {
	Shard   int    `json:"shard"`
	Backend string `json:"backend"`
	Epoch   uint32 `json:"epoch"`
}

// begin starts three nodes. Only losses may move sessions: backends are not judged,
// and nothing is evened out.
func begin(t *testing.T, replicas int) *town {
	t.Helper()
	w := &town{t: t, client: &http.Client{Timeout: patience}, homes: map[string]home{}}
	t.Cleanup(w.client.CloseIdleConnections)
	c, err := testcluster.Start(t.Context(), testcluster.Options{Nodes: 3, Backends: 3, Config: func(cfg *node.Config) {
		pool := cfg.Pools[testcluster.PoolName]
		sticky := proxy.DefaultSession()
		pool.Sticky, pool.Headers.ExposeBackend = &sticky, true
		pool.Health.Enabled, pool.Outlier.ConsecutiveFailures, pool.Backend.Engine, pool.Rebalance.Enabled = false, 0, "none", false
		cfg.Pools[testcluster.PoolName] = pool
		cfg.Shards.Count, cfg.Shards.Replicas = 4, replicas
		w.dirs = append(w.dirs, cfg.Node.DataDir)
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.Cluster = c
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	w.whole(replicas, 0, 1, 2)
	return w
}

func (w *town) admin(i int) *client.Client {
	w.t.Helper()
	c, err := client.New(w.Node(i).AdminURL(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// until waits until look finds nothing wrong.
func (w *town) until(look func() string) {
	w.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond) // asking all the time would be the load
	defer tick.Stop()
	for by := time.Now().Add(patience); ; <-tick.C {
		wrong := look()
		if wrong == "" {
			return
		}
		if time.Now().After(by) {
			all, err := w.shards(0)
			w.t.Fatalf("after %v still: %s\nnode 0 says %+v, %v", patience, wrong, all, err)
		}
	}
}

// shards is what a node says of them.
func (w *town) shards(i int) ([]api.Shard, error) {
	var l api.ShardList
	err := w.admin(i).Get(w.t.Context(), &l, "shards")
	return l.Shards, err
}

// whole waits until each of the nodes sees every shard with so many replicas that
// vote and keep up, and nothing done to it.
func (w *town) whole(replicas int, nodes ...int) {
	w.t.Helper()
	for _, i := range nodes {
		w.until(func() string {
			all, err := w.shards(i)
			if err != nil || len(all) < 5 {
				return fmt.Sprintf("node %d knows %d shards, %v", i, len(all), err)
			}
			for _, s := range all {
				up := 0
				for _, r := range s.Replicas {
					if r.Role == api.LeaderRole || r.Role == api.VoterRole && r.Match > 0 && r.Lag == 0 {
						up++
					}
				}
				if s.Leader == "" || s.Step != nil || up != replicas || len(s.Replicas) != replicas {
					return fmt.Sprintf("node %d, shard %d: led by %q, step %+v, replicas %+v", i, s.ID, s.Leader, s.Step, s.Replicas)
				}
			}
			return ""
		})
	}
}

// turn takes one turn of a session, and tells which backend had it.
func (w *town) turn(i int, session string) string {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.Node(i).URL()+"/v1/models", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("X-Session-ID", session)
	resp, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	return resp.Header.Get("X-Starling-Backend")
}

// moveIn has sessions take their first turns, at all of the nodes, and notes where
// they are agreed to live.
func (w *town) moveIn(sessions int, nodes ...int) {
	w.t.Helper()
	for s := range sessions {
		w.movesIn(fmt.Sprint("session ", s), nodes...)
	}
}

func (w *town) movesIn(name string, nodes ...int) {
	w.t.Helper()
	w.until(func() string {
		w.turn(nodes[0], name)
		h, err := w.agreed(nodes[0], name)
		if err != nil || h.Epoch == 0 { // a leader that was slow to answer: it is a guess
			return fmt.Sprintf("%s is at %+v, %v", name, h, err)
		}
		w.homes[name] = h
		return ""
	})
	for _, i := range nodes {
		w.until(func() string {
			if b := w.turn(i, name); b != w.homes[name].Backend {
				return fmt.Sprintf("%s is at %s, and by node %d at %s", name, w.homes[name].Backend, i, b)
			}
			return ""
		})
	}
}

// livesIn says whether any session does in a shard.
func (w *town) livesIn(shard int) bool {
	for _, h := range w.homes {
		if h.Shard == shard {
			return true
		}
	}
	return false
}

// agreed is where a session lives, by its shard's leader.
func (w *town) agreed(i int, session string) (h home, err error) {
	err = w.admin(i).Get(w.t.Context(), &h, "sessions", testcluster.PoolName, session)
	return h, err
}

// stayed waits until every session is agreed to live where it did.
func (w *town) stayed(nodes ...int) {
	w.t.Helper()
	for name, was := range w.homes {
		for _, i := range nodes {
			w.until(func() string {
				b := w.turn(i, name)
				h, err := w.agreed(i, name)
				if err != nil || b != was.Backend || h.Backend != was.Backend || h.Epoch < was.Epoch {
					return fmt.Sprintf("%s was at %+v, now by node %d at %s; agreed is %+v, %v", name, was, i, b, h, err)
				}
				return ""
			})
		}
	}
}

// kept copies a stopped node's directory.
func (w *town) kept(i int) (backup string) {
	w.t.Helper()
	backup = w.t.TempDir()
	if err := testcluster.CopyDir(backup, w.dirs[i]); err != nil {
		w.t.Fatal(err)
	}
	return backup
}

// putBack puts a copy in a directory's place.
func (w *town) putBack(i int, backup string) {
	w.t.Helper()
	if err := os.RemoveAll(w.dirs[i]); err != nil {
		w.t.Fatal(err)
	}
	if err := testcluster.CopyDir(w.dirs[i], backup); err != nil {
		w.t.Fatal(err)
	}
}

func (w *town) restart(nodes ...int) {
	w.t.Helper()
	for _, i := range nodes {
		if err := w.Restart(w.t.Context(), i); err != nil {
			w.t.Fatal(err)
		}
	}
}
