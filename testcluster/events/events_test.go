// Package events holds what nodes tell of themselves against what is done to them.
package events

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/testcluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// ear follows one node and keeps all that it tells.
type ear struct {
	mu    sync.Mutex
	heard []api.Event
	last  string
}

// listen follows until the test is over or the returned function is called.
func (e *ear) listen(t *testing.T, c *client.Client, recent int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := c.Follow(ctx, client.Follower{After: e.behind(), Recent: recent, Take: e.take})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the events ended: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func (e *ear) take(one api.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, one)
	if one.ID != "" {
		e.last = one.ID
	}
}

func (e *ear) behind() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// hears waits for an event whose line holds all the words.
func (e *ear) hears(t *testing.T, words ...string) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		if e.told(words...) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("nothing is told of %q; told were\n%s", words, e)
		}
	}
}

func (e *ear) told(words ...string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.heard, func(one api.Event) bool {
		text := string(one.Kind) + " " + one.Text()
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	})
}

func (e *ear) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var b strings.Builder
	for _, one := range e.heard {
		fmt.Fprintf(&b, "%s %s\n", one.Kind, one.Text())
	}
	return b.String()
}

// A cluster's story, told by one of its nodes: every change of state, each with its
// reason, whoever made it and at whichever node; and what was missed meanwhile.
func TestEveryChangeIsTold(t *testing.T) {
	c, err := testcluster.Start(t.Context(), testcluster.Options{Nodes: 3, Backends: 3, Config: testcluster.DemoConfig})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = c.Stop(ctx) // one of its nodes was killed
		http.DefaultClient.CloseIdleConnections()
	})
	if err := c.AwaitSessions(t.Context(), patience); err != nil {
		t.Fatal(err)
	}
	first, second := ask(t, c, 0), ask(t, c, 1)
	e := &ear{}
	stop := e.listen(t, first, 1000)
	e.hears(t, "member n2", "alive")
	e.hears(t, "node n3", "active")
	e.hears(t, "leader shard 16", "term")
	e.hears(t, "ready n1", "may get traffic")

	order := func(at *client.Client, body any, path ...string) {
		t.Helper()
		var err error
		for by := time.Now().Add(patience); time.Now().Before(by); { // on a machine that does much else, what is asked may not be agreed on in time
			if err = at.Post(t.Context(), body, path...); err == nil {
				return
			}
			<-time.After(50 * time.Millisecond)
		}
		t.Fatal(err)
	}
	turns(t, c.Node(0).URL(), 150) // so that each backend has some, and the first node leads some of those
	order(second, nil, "backends", "b1", "drain")
	e.hears(t, "state b1", "active -> draining", "operator")
	e.hears(t, "move pool llm", "sessions done")
	order(first, nil, "backends", "b1", "undrain")
	e.hears(t, "operator undrain backend, backend b1")
	e.hears(t, "state b1", "draining -> active")
	order(second, api.Policy{Policy: "random"}, "pools", "llm", "policy")
	e.hears(t, "pool pool llm", "p2c -> random")
	order(second, api.Rebalancing{}, "pools", "llm", "rebalance")
	e.hears(t, "pool pool llm", "on -> off")
	order(second, api.Weight{Weight: 7}, "backends", "b2", "weight")
	e.hears(t, "pool b2", "1 -> 7")
	if err := c.Backend(2).Kill(); err != nil {
		t.Fatal(err)
	}
	e.hears(t, "state b3", "active -> unhealthy", "health checks failed")
	e.hears(t, "move pool llm", "rebound")

	stop()
	order(second, nil, "node", "drain") // nobody listens
	order(second, nil, "node", "undrain")
	e.listen(t, first, 0)
	e.hears(t, "member n2", "-> draining")
	c.Kill(2)
	e.hears(t, "member n3", "-> dead")
	e.hears(t, "leader", "n3 ->")
	order(first, nil, "node", "drain")
	e.hears(t, "drain n1", "turning_away")
	e.hears(t, "ready n1", "not_ready")

	e.mu.Lock()
	defer e.mu.Unlock()
	seen := map[string]bool{}
	for _, one := range e.heard {
		if one.Kind == api.LostEvent || one.Reason == "" || one.Time.IsZero() || seen[one.ID] {
			t.Errorf("lost, told twice, or without a reason or time: %+v", one)
		}
		seen[one.ID] = true
	}
}

func ask(t *testing.T, c *testcluster.Cluster, i int) *client.Client {
	t.Helper()
	node, err := client.New(c.Node(i).AdminURL(), "")
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// turns has so many sessions, each with one turn.
func turns(t *testing.T, url string, n int) {
	t.Helper()
	for i := range n {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Session-ID", fmt.Sprint("s", i))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("turn %d: %s", i, resp.Status)
		}
	}
}
