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

// sessionsAs is exposed, with the contract's time for a binding and a say in what
// happens without a leader.
func sessionsAs(consistency string) func(*node.Config) {
	return func(cfg *node.Config) {
		exposed(cfg)
		pool := cfg.Pools[testcluster.PoolName]
		sticky := *pool.Sticky
		sticky.Consistency, sticky.BindTimeout = consistency, 250*time.Millisecond
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
	k := newTalk(t, c, 60)
	k.take(t, 2, 0)
	c.Kill(2)
	k.take(t, 10, 1)
	c.Kill(0)
	k.take(t, 3, 1) // without a quorum
}

// TestStrictOverADeath: only no_leader is answered meanwhile, and not for long.
func TestStrictOverADeath(t *testing.T) {
	c := agreeing(t, 3, sessionsAs("strict"))
	k := newTalk(t, c, 20)
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
		post(t, c.Node(i), "/v1/backends/b1/drain")
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
func post(t *testing.T, n *testcluster.Node, path string) {
	t.Helper()
	resp, err := http.Post(n.AdminURL()+path, "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("POST %s: %d %s", path, resp.StatusCode, text)
	}
}

// sessionOf is what a node's admin API says of a session.
func sessionOf(t *testing.T, n *testcluster.Node, session string) (v api.Session) {
	t.Helper()
	if err := admin(t, n).Get(t.Context(), &v, "sessions", testcluster.PoolName, session); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestProvisionalIsReconciled: two of three nodes die: bound sessions stay, new ones
// are placed all the same; when the others are back, every choice is agreed on.
func TestProvisionalIsReconciled(t *testing.T) {
	c := agreeing(t, 3, sessionsAs("available"))
	k := newTalk(t, c, 30)
	k.take(t, 2, 0)
	c.Kill(1)
	c.Kill(2)
	k.take(t, 2, 0)
	fresh := newTalk(t, c, 60)
	copy(fresh.homes, k.homes)
	fresh.take(t, 3, 0)
	if got := metrics(t, c.Node(0), "starling_provisional_bindings"); got == 0 {
		t.Error("no choice counts as provisional")
	}
	for _, i := range []int{1, 2} {
		if err := c.Restart(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, c, 3, 0, 1, 2)
	eventually(t, settleTime, func() string {
		if got := metrics(t, c.Node(0), "starling_provisional_bindings"); got != 0 {
			return fmt.Sprintf("%v are still provisional", got)
		}
		return ""
	})
	fresh.take(t, 3, 0, 1, 2)
}
