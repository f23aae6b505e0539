package testcluster_test

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/testcluster"
)

// sessionTurn asks a node in the name of a session, and tells which backend answered.
func sessionTurn(client *http.Client, n *testcluster.Node, session string) (string, error) {
	req, err := http.NewRequest(http.MethodGet, n.URL()+"/v1/models", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Session-ID", session)
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch b := resp.Header.Get("X-Starling-Backend"); {
	case err != nil:
		return "", err
	case resp.StatusCode != http.StatusOK || b == "":
		return "", fmt.Errorf("status %d of backend %q: %.200s", resp.StatusCode, b, body)
	default:
		return b, nil
	}
}

// TestSessionsStay: 100 sessions take 10 turns each, at one node after the other:
// each has one backend. A node dies, and once its shards have leaders again the
// other two send every session where it was, and refuse none.
func TestSessionsStay(t *testing.T) {
	began := time.Now()
	c := agreeing(t, 3, func(cfg *node.Config) {
		pool := cfg.Pools[testcluster.PoolName]
		pool.Headers.ExposeBackend = true
		cfg.Pools[testcluster.PoolName] = pool
	})
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	t.Cleanup(client.CloseIdleConnections)
	const sessions, turns = 100, 10
	homes := make([]string, sessions)
	take := func(rounds int, nodes ...int) {
		t.Helper()
		var all sync.WaitGroup
		for s := range sessions {
			all.Go(func() {
				for i := range rounds {
					b, err := sessionTurn(client, c.Node(nodes[(s+i)%len(nodes)]), fmt.Sprint("session ", s))
					switch {
					case err != nil:
						t.Errorf("session %d, turn %d: %v", s, i, err)
					case homes[s] == "":
						homes[s] = b
					case homes[s] != b:
						t.Errorf("session %d, turn %d: at %s, and was at %s", s, i, b, homes[s])
					}
				}
			})
		}
		all.Wait()
	}
	t.Logf("%v: founded", time.Since(began))
	take(turns, 0, 1, 2)
	t.Logf("%v: taken", time.Since(began))
	used := map[string]int{}
	for _, b := range homes {
		used[b]++
	}
	if len(used) != 3 {
		t.Errorf("100 sessions are at %v, want some at each of three backends", used)
	}
	c.Kill(2)
	t.Logf("%v: killed", time.Since(began))
	ledWithout(t, c, "n3", 0, 1)
	t.Logf("%v: led", time.Since(began))
	take(turns, 0, 1)
	if err := c.Restart(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	t.Logf("%v: restarted", time.Since(began))
	settled(t, c, 3, 0, 1, 2)
	t.Logf("%v: settled", time.Since(began))
	take(turns, 0, 1, 2)
}
