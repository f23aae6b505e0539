// Package moving_test has real nodes move sessions, or leave them where they are, to
// even out load.
package moving_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/llm"
)

// TestMain has all tests wait at once in the short form: that is most of what they do.
func TestMain(m *testing.M) {
	flag.Parse()
	if !*full {
		if err := flag.Set("test.parallel", "3"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// full has the tests take the time that they are about: minutes.
var full = flag.Bool("moving.full", false, "times as they are by default, or a tenth of them, instead of hundredths")

const (
	patience = 40 * time.Second // no wait in a test is longer, unless it says so
	pool     = testcluster.PoolName
	nodes    = 3
)

// stage is three nodes, their backends, a client, and what the nodes log.
type stage struct {
	*testcluster.Cluster
	client *http.Client
	log    *book
}

func newStage(t *testing.T, backends int, each llm.Options, edit func(*node.Config, *proxy.PoolConfig)) *stage {
	t.Helper()
	s := &stage{log: &book{}, client: &http.Client{Timeout: 5 * patience, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	t.Cleanup(s.client.CloseIdleConnections)
	s.Cluster = testcluster.ForTest(t, testcluster.Options{
		Nodes: nodes, Backends: backends, Backend: each,
		Logger: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Config: func(cfg *node.Config) {
			p := cfg.Pools[pool]
			sticky := proxy.DefaultSession()
			sticky.Key = sticky.Key[:1] // who brings no header has no session, and is given none
			p.Sticky, p.Headers.ExposeBackend = &sticky, true
			edit(cfg, &p)
			cfg.Pools[pool] = p
		},
	})
	for i := range nodes {
		eventually(t, patience, func() string { return s.unsettled(t, i) })
	}
	return s
}

// book keeps the log's lines about rebalancing.
type book struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (b *book) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("rebalancing looked")) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lines = append(b.lines, string(line))
	}
	return len(line), nil
}

// has is how many lines hold all of the words.
func (b *book) has(words ...string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		all := true
		for _, w := range words {
			all = all && strings.Contains(l, w)
		}
		if all {
			n++
		}
	}
	return n
}

// pace is how many requests a second came by the last line, and above how many they
// are a spike.
func (b *book) pace() (pace, above float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.lines) == 0 {
		return 0, 1
	}
	return figures(b.lines[len(b.lines)-1])
}

// lulls says whether any line behind the first so many saw no spike.
func (b *book) lulls(from int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.lines[from:], func(line string) bool {
		pace, above := figures(line)
		return pace <= above
	})
}

func figures(line string) (pace, above float64) {
	_, figures, _ := strings.Cut(line, "requests_per_second=")
	if _, err := fmt.Sscanf(figures, "%g spike_above=%g", &pace, &above); err != nil || above == 0 {
		return 0, 1 // nothing is known yet
	}
	return pace, above
}

func (s *stage) admin(t *testing.T, i int) *client.Client {
	t.Helper()
	c, err := client.New(s.Node(i).AdminURL(), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// unsettled says what a node lacks: every shard has a leader and three voters that
// keep up.
func (s *stage) unsettled(t *testing.T, i int) string {
	var l api.ShardList
	if err := s.admin(t, i).Get(t.Context(), &l, "shards"); err != nil {
		return err.Error()
	}
	if len(l.Shards) < 2 {
		return fmt.Sprintf("%d shards are known", len(l.Shards))
	}
	for _, sh := range l.Shards {
		voters := 0
		for _, r := range sh.Replicas {
			if r.Role == api.LeaderRole || r.Role == api.VoterRole && r.Match > 0 && r.Lag == 0 {
				voters++
			}
		}
		if sh.Leader == "" || voters != nodes {
			return fmt.Sprintf("shard %d is led by %q, and %d replicas keep up", sh.ID, sh.Leader, voters)
		}
	}
	return ""
}

// leader is the number of the node that leads the only shard of sessions.
func (s *stage) leader(t *testing.T) int {
	t.Helper()
	leads := 0
	eventually(t, patience, func() string {
		for i := range nodes {
			if s.metric(t, i, "starling_shard_leader", `shard="1"`) == 1 {
				leads = i
				return ""
			}
		}
		return "nobody leads shard 1"
	})
	return leads
}

// rebalance switches it at every node.
func (s *stage) rebalance(t *testing.T, on bool) {
	t.Helper()
	for i := range nodes {
		s.post(t, i, api.Rebalancing{Enabled: on}, "pools", pool, "rebalance")
	}
}

// pool is a node's view of the pool.
func (s *stage) pool(t *testing.T, i int) api.Pool {
	t.Helper()
	var l api.Pools
	if err := s.admin(t, i).Get(t.Context(), &l, "pools"); err != nil {
		t.Fatal(err)
	}
	return l.Pools[0]
}

// said is the planner's last word, of whichever node leads now.
func (s *stage) said(t *testing.T) (last api.Rebalance) {
	t.Helper()
	for i := range nodes {
		if r := s.pool(t, i).Rebalance; r.LastDecision != nil && (last.LastDecision == nil || r.LastDecision.After(*last.LastDecision)) {
			last = r
		}
	}
	return last
}

// metric sums a node's samples of one metric whose labels hold all of with.
func (s *stage) metric(t *testing.T, i int, name string, with ...string) (sum float64) {
	t.Helper()
	resp, err := s.client.Get(s.Node(i).AdminURL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		labels, value, ok := strings.Cut(strings.TrimSpace(l), " ")
		matches := ok && (labels == name || strings.HasPrefix(labels, name+"{"))
		for _, w := range with {
			matches = matches && strings.Contains(labels, w)
		}
		if v, err := strconv.ParseFloat(value, 64); matches && err == nil {
			sum += v
		}
	}
	return sum
}

// everywhere adds a metric over the nodes.
func (s *stage) everywhere(t *testing.T, name string, with ...string) (sum float64) {
	t.Helper()
	for i := range nodes {
		sum += s.metric(t, i, name, with...)
	}
	return sum
}

// turn is one of a session at a node, of so many tokens; who answered, and an error
// where the answer is not whole.
func (s *stage) turn(ctx context.Context, i int, session string, tokens int) (home string, err error) {
	body := fmt.Sprintf(`{"stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"hello"}]}`, tokens)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Node(i).URL()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Session-ID", session)
	resp, err := s.client.Do(req)
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

// move has a session live at a backend. Its turns may be so long on a busy machine that
// it moves after the answer was due.
func (s *stage) move(t *testing.T, session, to string) {
	t.Helper()
	eventually(t, 3*patience, func() string {
		err := s.admin(t, 0).Post(t.Context(), api.Destination{Backend: to}, "sessions", pool, session, "move")
		var v api.Session
		if err == nil || s.admin(t, 0).Get(t.Context(), &v, "sessions", pool, session) == nil && v.Backend == to && !v.Provisional {
			return ""
		}
		return err.Error()
	})
}

// post has a node do something. On a busy machine nobody may lead for a moment.
func (s *stage) post(t *testing.T, i int, body any, path ...string) {
	t.Helper()
	eventually(t, patience, func() string {
		if err := s.admin(t, i).Post(t.Context(), body, path...); err != nil {
			return err.Error()
		}
		return ""
	})
}

// rest waits, and says whether ctx lasts.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// eventually waits until look finds nothing wrong.
func eventually(t *testing.T, within time.Duration, look func() string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); ; <-tick.C {
		began := time.Now()
		wrong := look()
		if wrong == "" {
			return
		}
		if began.After(deadline) {
			t.Fatalf("after %v still: %s", within, wrong)
		}
	}
}
