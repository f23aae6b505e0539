package testcluster_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
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

// talk is a number of sessions that take turns, and where each of them lives.
type talk struct {
	c      *testcluster.Cluster
	client *http.Client
	name   string // of the sessions, before their numbers
	homes  []string
	exact  bool // no turn may be elsewhere, whoever can be asked
	alone  bool // nobody can agree on homes: they need not be agreed on to be the same everywhere
	strict bool // a turn is refused where the leader's answer does not come within the default wait
}

func newTalk(t *testing.T, c *testcluster.Cluster, sessions int) *talk {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	t.Cleanup(client.CloseIdleConnections)
	return &talk{c: c, client: client, name: "session", homes: make([]string, sessions)}
}

// ask takes a turn of a session, as a client does: again where it was refused since
// nobody could say in time where the session lives, and only a leader may say it.
func (k *talk) ask(n *testcluster.Node, session int) (string, error) {
	for late := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		b, err := sessionTurn(k.client, n, fmt.Sprint(k.name, " ", session))
		if err == nil || !k.strict || !strings.Contains(err.Error(), string(backend.NoLeader)) || time.Now().After(late) {
			return b, err
		}
	}
}

// moveIn has every session take its first turn. Where a node had to guess, since the
// leader's answer did not come within the default wait, it is at home once that is
// agreed on.
func (k *talk) moveIn(t *testing.T, nodes ...int) {
	t.Helper()
	firsts, before := make([]string, len(k.homes)), k.guesses(t, nodes)
	for s := range k.homes {
		b, err := k.ask(k.c.Node(nodes[s%len(nodes)]), s)
		if err != nil {
			t.Fatal(err)
		}
		firsts[s] = b
	}
	for _, i := range nodes {
		eventually(t, settleTime, func() string {
			if n := metrics(t, k.c.Node(i), "starling_provisional_bindings"); n > 0 {
				return fmt.Sprintf("node %d has guessed %v homes", i, n)
			}
			return ""
		})
	}
	if k.guesses(t, nodes) == before {
		k.homes = firsts
	}
}

// guesses is how many turns nodes have counted that nobody could be asked about in
// time, ever.
func (k *talk) guesses(t *testing.T, nodes []int) (n float64) {
	t.Helper()
	for _, i := range nodes {
		n += metrics(t, k.c.Node(i), "starling_sticky_lookups_total", `result="fallback"`)
	}
	return n
}

// take has every session take so many turns, at one of the nodes after the other;
// each must be answered, and by the backend that answered the first one. Where the
// machine is so busy that a node had to guess although there is a leader, it has
// counted that, and as many turns may be elsewhere.
func (k *talk) take(t *testing.T, turns int, nodes ...int) {
	t.Helper()
	if !k.alone && !slices.ContainsFunc(k.homes, func(home string) bool { return home != "" }) {
		k.moveIn(t, nodes...)
	}
	var all sync.WaitGroup
	var away atomic.Int64
	before := k.guesses(t, nodes)
	for s := range k.homes {
		all.Go(func() {
			for i := range turns {
				b, err := k.ask(k.c.Node(nodes[(s+i)%len(nodes)]), s)
				switch {
				case err != nil:
					t.Errorf("session %d, turn %d: %v", s, i, err)
				case k.homes[s] == "":
					k.homes[s] = b
				case k.homes[s] != b:
					away.Add(1)
					t.Logf("session %d, turn %d: at %s, and was at %s", s, i, b, k.homes[s])
				}
			}
		})
	}
	all.Wait()
	if n := away.Load(); n > 0 && (k.exact || float64(n) > k.guesses(t, nodes)-before) {
		moves, repins := 0.0, 0.0
		for _, i := range nodes {
			moves += metrics(t, k.c.Node(i), "starling_moves_total", `result="done"`)
			repins += metrics(t, k.c.Node(i), "starling_sticky_lookups_total", `result="repin"`)
		}
		t.Errorf("%d turns were at other backends than the ones before; %v turns were guessed, %v sessions were moved, %v turns left their backend", n, k.guesses(t, nodes)-before, moves, repins)
	}
	if t.Failed() {
		t.FailNow()
	}
}

// exposed has answers name their backend, and sessions stay whatever the load: on a
// busy machine a crowd of turns is reason enough to move some of them.
func exposed(cfg *node.Config) {
	pool := cfg.Pools[testcluster.PoolName]
	pool.Headers.ExposeBackend, pool.Rebalance.Enabled = true, false
	cfg.Pools[testcluster.PoolName] = pool
}

// TestSessionsStay: 100 sessions take 10 turns each, at one node after the other:
// each has one backend. A node dies, and once its shards have leaders again the
// other two send every session where it was, and refuse none. It comes back, and
// does the same.
func TestSessionsStay(t *testing.T) {
	c := agreeing(t, 3, exposed)
	k := newTalk(t, c, 100)
	k.take(t, 10, 0, 1, 2)
	used := map[string]int{}
	for _, b := range k.homes {
		used[b]++
	}
	if len(used) != 3 {
		t.Errorf("100 sessions are at %v, want some at each of three backends", used)
	}
	c.Kill(2)
	ledWithout(t, c, "n3", 0, 1)
	k.take(t, 10, 0, 1)
	if err := c.Restart(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	settled(t, c, 3, 0, 1, 2)
	k.take(t, 10, 0, 1, 2)
}

// TestAllNodesRestart: all nodes die; started again, in another order, they are
// the same cluster and every session is where it was.
func TestAllNodesRestart(t *testing.T) {
	c := agreeing(t, 3, exposed)
	k := newTalk(t, c, 100)
	k.take(t, 10, 0, 1, 2)
	var before, after api.Status
	if err := admin(t, c.Node(0)).Get(t.Context(), &before, "status"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c.Kill(i)
	}
	for _, i := range []int{2, 0, 1} {
		if err := c.Restart(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, c, 3, 0, 1, 2)
	k.take(t, 10, 0, 1, 2)
	if err := admin(t, c.Node(0)).Get(t.Context(), &after, "status"); err != nil {
		t.Fatal(err)
	}
	if before.Cluster.ID != after.Cluster.ID || before.Node.ID != after.Node.ID {
		t.Errorf("node %s of cluster %s came back as node %s of cluster %s", before.Node.ID, before.Cluster.ID, after.Node.ID, after.Cluster.ID)
	}
}

// TestNodeAlone: a file with pools and listeners only is a complete node: it
// leads its shards when its start returns, and keeps its sessions over its death.
func TestNodeAlone(t *testing.T) {
	c, err := testcluster.Start(t.Context(), testcluster.Options{Backends: 3, Config: func(cfg *node.Config) {
		sessionsOn(cfg)
		exposed(cfg)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	led := func() {
		t.Helper()
		var s api.Status
		if err := admin(t, c.Node(0)).Get(t.Context(), &s, "status"); err != nil {
			t.Fatal(err)
		}
		if s.Shards.Count == 0 || s.Shards.Led != s.Shards.Count || s.Cluster.ID == "" || !s.Cluster.MetaQuorum {
			t.Fatalf("it has started, and is not whole: %+v %+v", s.Cluster, s.Shards)
		}
	}
	led()
	k := newTalk(t, c, 30)
	k.take(t, 3, 0)
	c.Kill(0)
	if err := c.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	led()
	k.take(t, 3, 0)
}
