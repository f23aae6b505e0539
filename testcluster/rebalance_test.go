package testcluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/llm"
)

// TestOperatorMovesASession: asked at any node, and in force at all of them.
func TestOperatorMovesASession(t *testing.T) {
	c := agreeing(t, 3, exposed)
	k := newTalk(t, c, 10)
	k.take(t, 3, 0, 1, 2)
	for s, home := range k.homes {
		asked := admin(t, c.Node(s%3))
		var was, is api.Session
		if err := asked.Get(t.Context(), &was, "sessions", testcluster.PoolName, fmt.Sprint("session ", s)); err != nil {
			t.Fatal(err)
		}
		if was.Backend != home || was.Epoch == 0 || was.Provisional || was.LastUse == nil {
			t.Errorf("session %d at %s is shown as %+v", s, home, was)
		}
		to := map[string]string{"b1": "b2", "b2": "b3", "b3": "b1"}[home]
		if err := asked.Post(t.Context(), api.Destination{Backend: to}, "sessions", testcluster.PoolName, fmt.Sprint("session ", s), "move"); err != nil {
			t.Fatalf("move of session %d: %v", s, err)
		}
		if err := admin(t, c.Node((s+1)%3)).Get(t.Context(), &is, "sessions", testcluster.PoolName, fmt.Sprint("session ", s)); err != nil {
			t.Fatal(err)
		}
		if is.Backend != to || is.Epoch <= was.Epoch || is.Held {
			t.Errorf("session %d was moved from %+v to %s, and is shown as %+v", s, was, to, is)
		}
		k.homes[s] = to
	}
	k.take(t, 3, 0, 1, 2)
	for _, bad := range []struct {
		key, to string
		status  int
	}{{"never seen", "b1", 404}, {"session 1", "b9", 409}} {
		var refused *client.RefusedError
		err := admin(t, c.Node(0)).Post(t.Context(), api.Destination{Backend: bad.to}, "sessions", testcluster.PoolName, bad.key, "move")
		if !errors.As(err, &refused) || refused.Status != bad.status {
			t.Errorf("move of %q to %s: %v", bad.key, bad.to, err)
		}
	}
}

// chats are sessions that stream all the time, with short pauses.
type chats struct {
	client *http.Client
	nodes  []*testcluster.Node

	mu    sync.Mutex // guards what follows
	homes map[string]string
	wrong []string
}

// run is one session's life, at one node after the other.
func (k *chats) run(ctx context.Context, session string) {
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for i := 0; ; i++ {
		home, err := k.turn(ctx, i, session)
		if ctx.Err() != nil {
			return
		}
		k.mu.Lock()
		if k.homes[session] = home; err != nil {
			k.wrong = append(k.wrong, fmt.Sprintf("%s: %v", session, err))
		}
		k.mu.Unlock()
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

func (k *chats) turn(ctx context.Context, i int, session string) (string, error) {
	body := `{"stream":true,"max_tokens":16,"messages":[{"role":"user","content":"hello"}]}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.nodes[i%len(k.nodes)].URL()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Session-ID", session)
	resp, err := k.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && !strings.Contains(string(text), "[DONE]") {
		err = fmt.Errorf("status %d, and the stream ends with %.100s", resp.StatusCode, text[max(0, len(text)-100):])
	}
	return resp.Header.Get("X-Starling-Backend"), err
}

// at is how many sessions had their last turn at a backend.
func (k *chats) at(id string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, home := range k.homes {
		if home == id {
			n++
		}
	}
	return n
}

// TestRebalancing on real streams through three nodes: ten sessions are on one
// backend and two on another. Some move between their turns; none is cut, and all
// go on.
func TestRebalancing(t *testing.T) {
	c, err := testcluster.Start(t.Context(), testcluster.Options{Nodes: 3, Backends: 2, Backend: llm.Options{Knee: 1, Speed: 10}, Config: func(cfg *node.Config) {
		sessionsOn(cfg)
		exposed(cfg)
		cfg.Shards.Count = 1
		pool := cfg.Pools[testcluster.PoolName]
		pool.Policy = "least_connections" // by p2c, heavy turns would move sessions, too
		pool.Placement.Knee = 1
		pool.Rebalance.Enabled, pool.Rebalance.Interval, pool.Rebalance.MinResidence, pool.Rebalance.MaxRate = true, 500*time.Millisecond, 0, 0
		cfg.Pools[testcluster.PoolName] = pool
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	settled(t, c, 3, 0, 1, 2)
	nodes := []*testcluster.Node{c.Node(0), c.Node(1), c.Node(2)}
	rebalance := func(on bool) {
		t.Helper()
		for _, n := range nodes {
			if err := admin(t, n).Post(t.Context(), api.Rebalancing{Enabled: on}, "pools", testcluster.PoolName, "rebalance"); err != nil {
				t.Fatal(err)
			}
		}
	}
	rebalance(false)
	k := &chats{nodes: nodes, client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}, homes: map[string]string{}}
	t.Cleanup(k.client.CloseIdleConnections)
	for i := range 12 {
		session, to := fmt.Sprint("s", i), "b1"
		if i >= 10 {
			to = "b2"
		}
		home, err := k.turn(t.Context(), i, session)
		if err == nil && home != to {
			err = admin(t, c.Node(0)).Post(t.Context(), api.Destination{Backend: to}, "sessions", testcluster.PoolName, session, "move")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, end := context.WithCancel(t.Context())
	var lives sync.WaitGroup
	defer lives.Wait()
	defer end()
	for i := range 12 {
		lives.Go(func() { k.run(ctx, fmt.Sprint("s", i)) })
	}
	eventually(t, patience, func() string {
		if a, b := k.at("b1"), k.at("b2"); a != 10 || b != 2 {
			return fmt.Sprintf("%d sessions are at b1 and %d at b2, before any may move", a, b)
		}
		return ""
	})
	rebalance(true)
	last := ""
	eventually(t, 3*patience, func() string {
		for _, n := range nodes { // one of them leads the shard
			var l api.Pools
			if err := admin(t, n).Get(t.Context(), &l, "pools"); err != nil {
				return err.Error()
			}
			if r := l.Pools[0].Rebalance; r.Enabled && r.LastDecision != nil {
				last = r.Reason
			}
		}
		if n := k.at("b1"); n > 8 {
			return fmt.Sprintf("%d sessions are at b1; the planner says %q", n, last)
		}
		return ""
	})
	rebalance(false)
	eventually(t, patience, func() string { // every node has a replica here; the last moves come true by and by
		b1, _ := known(t, c.Node(1), "b1")
		if b2, _ := known(t, c.Node(1), "b2"); b1.Sessions != k.at("b1") || b2.Sessions != k.at("b2") {
			return fmt.Sprintf("%d and %d sessions are shown, and had their last turns at %d and %d", b1.Sessions, b2.Sessions, k.at("b1"), k.at("b2"))
		}
		return ""
	})
	end()
	lives.Wait()
	if a, b := k.at("b1"), k.at("b2"); a+b != 12 || len(k.wrong) > 0 || last == "" {
		t.Errorf("%d sessions are at b1 and %d at b2; the planner says %q; wrong: %q", a, b, last, k.wrong)
	}
}
