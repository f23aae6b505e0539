package testcluster_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/llm"
)

// sessionsAs is exposed, with a say in what happens without a leader.
func sessionsAs(consistency string) func(*node.Config) {
	return func(cfg *node.Config) {
		exposed(cfg)
		pool := cfg.Pools[testcluster.PoolName]
		sticky := *pool.Sticky
		sticky.Consistency = consistency
		pool.Sticky = &sticky
		cfg.Pools[testcluster.PoolName] = pool
	}
}

// longTurn is a streamed turn of a session; began hears of its backend once its
// head has come.
func longTurn(client *http.Client, n *testcluster.Node, session string, tokens int, began chan<- string) error {
	body := fmt.Sprintf(`{"stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"hello"}]}`, tokens)
	req, err := http.NewRequest(http.MethodPost, n.URL()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("X-Session-ID", session)
	req.Header.Set(llm.OutputTokensHeader, strconv.Itoa(tokens))
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		began <- ""
		return err
	}
	defer resp.Body.Close()
	began <- resp.Header.Get("X-Starling-Backend")
	text, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "[DONE]")) {
		err = fmt.Errorf("status %d, %.200s", resp.StatusCode, text)
	}
	return err
}

// TestNobodyNoticesADeath: a node dies, the leader of some shards too, and the next
// turns are sent at once to a node that never saw the sessions: the same backends,
// and none is refused.
func TestNobodyNoticesADeath(t *testing.T) {
	c := agreeing(t, 3, sessionsAs("available"))
	k := newTalk(t, c, 100)
	k.take(t, 10, 0)
	k.exact = true // last known bindings are bindings
	c.Kill(2)
	k.take(t, 10, 1)
	c.Kill(0)
	k.take(t, 3, 1) // without a quorum
}

// TestStrictOverADeath: only no_leader is answered meanwhile, and not for long.
func TestStrictOverADeath(t *testing.T) {
	c := agreeing(t, 3, sessionsAs("strict"))
	k := newTalk(t, c, 20)
	k.strict = true
	k.take(t, 2, 0, 1, 2)
	c.Kill(2)
	began, refused := time.Now(), 0
	for s := range k.homes {
		eventually(t, settleTime, func() string {
			b, err := sessionTurn(k.client, c.Node(s%2), fmt.Sprint("session ", s))
			if err != nil {
				refused++
				if !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), string(backend.NoLeader)) {
					t.Errorf("session %d: %v", s, err)
				}
				return err.Error()
			}
			if b != k.homes[s] {
				t.Errorf("session %d: at %s, and was at %s", s, b, k.homes[s])
			}
			return ""
		})
	}
	t.Logf("%d turns were refused, all is well %v after the death", refused, time.Since(began).Round(10*time.Millisecond))
}

// TestDrainMovesSessions: a backend drains beneath running turns of its sessions:
// none is cut, and when they have ended every session of it has moved, once, and no
// other has.
func TestDrainMovesSessions(t *testing.T) {
	c := agreeing(t, 3, sessionsAs("strict"))
	const sessions = 60
	k := newTalk(t, c, sessions)
	k.strict = true
	k.take(t, 2, 0, 1, 2)
	var turns sync.WaitGroup
	began, ended := make(chan string, sessions), make(chan error, sessions)
	for s := range sessions {
		turns.Go(func() { ended <- longTurn(k.client, c.Node(s%3), fmt.Sprint("session ", s), 60, began) })
	}
	for range sessions {
		if await(t, "a turn's head", began) == "" {
			t.Fatal("a turn did not begin")
		}
	}
	for i := range 3 {
		post(t, c.Node(i), "backends", "b1", "drain")
	}
	turns.Wait()
	for range sessions {
		if err := <-ended; err != nil {
			t.Errorf("a running turn: %v", err)
		}
	}
	was := append([]string(nil), k.homes...)
	eventually(t, settleTime, func() string { // moved between turns, in a moment
		for s := range sessions {
			if v := sessionOf(t, c.Node(1), fmt.Sprint("session ", s)); v.Backend == "b1" || v.Held {
				return fmt.Sprintf("session %d is %+v", s, v)
			}
		}
		return ""
	})
	clear(k.homes)
	k.take(t, 3, 0, 1, 2)
	for s := range sessions {
		v := sessionOf(t, c.Node(2), fmt.Sprint("session ", s))
		switch moved := was[s] == "b1"; {
		case k.homes[s] == "b1" || !moved && k.homes[s] != was[s]:
			t.Errorf("session %d is at %s, and was at %s", s, k.homes[s], was[s])
		case moved != (v.Epoch == 2) || v.Backend != k.homes[s]:
			t.Errorf("session %d was at %s and is %+v", s, was[s], v)
		}
	}
}

// post tells a node to do something.
func post(t *testing.T, n *testcluster.Node, path ...string) {
	t.Helper()
	insist(t, func() error { return admin(t, n).Post(t.Context(), nil, path...) })
}

// sessionOf is what a node's admin API says of a session.
func sessionOf(t *testing.T, n *testcluster.Node, session string) (v api.Session) {
	t.Helper()
	insist(t, func() error { return admin(t, n).Get(t.Context(), &v, "sessions", testcluster.PoolName, session) })
	return v
}

// TestMajorityLost: two nodes of five keep no replicas. Two of the other three die
// under a load of bound and new sessions, asked through all that live: none is
// refused, bound ones stay, and new ones are at one place as seen from every node.
// When the two are back, each is agreed on, nearly all where they were.
func TestMajorityLost(t *testing.T) {
	c := agreeing(t, 5, func(cfg *node.Config) {
		sessionsAs("available")(cfg)
		cfg.Shards.Host = cfg.Node.Name != "n4" && cfg.Node.Name != "n5"
	})
	k := newTalk(t, c, 100)
	k.take(t, 10, 0, 1, 2, 3, 4)
	k.exact = true
	live := []int{0, 3, 4}
	stop, load := make(chan struct{}), make(chan int, 1)
	go func() { load <- underLoad(t, c, stop, live) }()
	c.Kill(1)
	c.Kill(2)
	fresh := newTalk(t, c, 60)
	fresh.name, fresh.alone, fresh.exact = "newcomer", true, true
	for range 3 {
		k.take(t, 3, live...)
		fresh.take(t, 3, live...)
	}
	close(stop)
	turns := await(t, "the end of the load", load)
	for _, i := range live {
		if metrics(t, c.Node(i), "starling_provisional_bindings") == 0 {
			t.Errorf("no choice of node %d counts as provisional", i)
		}
	}
	for _, i := range []int{1, 2} {
		if err := c.Restart(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, c, 3, 0, 1, 2, 3, 4)
	eventually(t, 30*time.Second, func() string {
		for _, i := range live {
			if got := metrics(t, c.Node(i), "starling_provisional_bindings"); got != 0 {
				return fmt.Sprintf("%v of node %d are still provisional", got, i)
			}
		}
		return ""
	})
	k.take(t, 3, 0, 1, 2, 3, 4)
	// What a leader had written down and could not get agreed on any more when the
	// two died is agreed on when they are back, and came before the guesses.
	agreed := newTalk(t, c, len(fresh.homes))
	agreed.name, agreed.alone, agreed.exact = fresh.name, true, true
	agreed.take(t, 3, 0, 1, 2, 3, 4)
	elsewhere := 0
	for s, home := range agreed.homes {
		if home != fresh.homes[s] {
			elsewhere++
		}
	}
	if elsewhere > len(fresh.homes)/10 {
		t.Errorf("%d of %d guesses were not agreed on", elsewhere, len(fresh.homes))
	}
	if turns < 20 {
		t.Errorf("the load were %d turns", turns)
	}
}

// underLoad has sessions of their own take turns, 50 in a second and half of them
// new, until it is told to stop; each must be answered. It returns how many.
func underLoad(t *testing.T, c *testcluster.Cluster, stop <-chan struct{}, nodes []int) (turns int) {
	k := newTalk(t, c, 0)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	for ; ; turns++ {
		select {
		case <-stop:
			return turns
		case <-tick.C:
		}
		turn := turns
		all.Go(func() {
			if _, err := sessionTurn(k.client, c.Node(nodes[turn%len(nodes)]), fmt.Sprint("loaded ", turn/2)); err != nil {
				t.Errorf("turn %d under load: %v", turn, err)
			}
		})
	}
}

// TestAddAndRemove: a backend more moves nobody; one that is removed at one node
// loses its own sessions, each once, and they are at one place as seen from every
// node.
func TestAddAndRemove(t *testing.T) {
	c := agreeing(t, 3, sessionsAs("available"))
	const sessions = 300
	k := newTalk(t, c, sessions)
	k.take(t, 2, 0, 1, 2)
	n := admin(t, c.Node(0))
	more := api.NewBackend{ID: "b9", URL: c.Backend(0).URL(), Weight: 1}
	insist(t, func() error { return n.Post(t.Context(), more, "pools", testcluster.PoolName, "backends") })
	picks(t, c, "b1 b2 b3 b9", 0, 1, 2)
	k.take(t, 2, 0, 1, 2)
	if moved := metrics(t, c.Node(1), "starling_moves_total"); moved != 0 {
		t.Errorf("%v moves because of a backend more", moved)
	}
	was := append([]string(nil), k.homes...)
	insist(t, func() error { return n.Delete(t.Context(), "pools", testcluster.PoolName, "backends", "b2") })
	began := time.Now()
	for i := range 3 {
		eventually(t, settleTime, func() string {
			for s := range sessions {
				if v := sessionOf(t, c.Node(i), fmt.Sprint("session ", s)); v.Backend == "b2" || v.Held {
					return fmt.Sprintf("session %d is %+v", s, v)
				}
			}
			return ""
		})
	}
	t.Logf("all have moved %v later", time.Since(began).Round(10*time.Millisecond))
	clear(k.homes)
	k.take(t, 3, 0, 1, 2)
	for s := range sessions {
		v := sessionOf(t, c.Node(s%3), fmt.Sprint("session ", s))
		if moved := was[s] == "b2"; moved != (v.Epoch == 2) || !moved && k.homes[s] != was[s] || v.Backend != k.homes[s] {
			t.Errorf("session %d was at %s, is seen at %s, and is %+v", s, was[s], k.homes[s], v)
		}
	}
}
