package moving_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/testcluster/llm"
)

// chats are sessions that stream all the time, with short pauses.
type chats struct {
	*stage
	mu    sync.Mutex // guards what follows
	homes map[string]string
	wrong []string
}

// run is one session's life, at one node after the other.
func (k *chats) run(ctx context.Context, session string) {
	for i := 0; ; i++ {
		home, err := k.turn(ctx, i%nodes, session, chatTokens)
		if ctx.Err() != nil {
			return
		}
		k.mu.Lock()
		if k.homes[session] = home; err != nil {
			k.wrong = append(k.wrong, fmt.Sprintf("%s: %v", session, err))
		}
		k.mu.Unlock()
		if !rest(ctx, 20*time.Millisecond) {
			return
		}
	}
}

// chatTokens is a turn's length: a second where ten run, so that twelve sessions are
// some 15 requests a second.
const chatTokens = 48

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

// spike has 150 requests a second come to some nodes, or as many as the machine can,
// which belong to no session and take next to no time, until its end is called.
func (s *stage) spike(t *testing.T, at ...int) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	due := time.NewTicker(time.Second / 150)
	var all sync.WaitGroup
	for w := range 32 {
		all.Go(func() {
			for s.ping(ctx, at[w%len(at)]) {
				select {
				case <-due.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
		due.Stop()
	}
}

// ping is a request without a session; it says whether ctx lasts.
func (s *stage) ping(ctx context.Context, i int) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Node(i).URL()+"/v1/models", nil)
	if err != nil {
		panic(err)
	}
	if resp, err := s.client.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return ctx.Err() == nil
}

// looks is how often the planner looked, with what result.
func (s *stage) looks(t *testing.T, reason string) float64 {
	t.Helper()
	return s.everywhere(t, "starling_rebalance_looks_total", fmt.Sprintf("reason=%q", reason))
}

// TestTenAndTwo on real streams through three nodes: ten sessions are on one backend
// and two on another of equal ones. The imbalance is seen, and some move; all remain,
// none is cut, and the backends are more alike. Then they are put back, and requests
// without a session come, to the nodes that do not plan: as long as they come none moves.
func TestTenAndTwo(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2, llm.Options{Knee: 1, Speed: 10}, func(cfg *node.Config, p *proxy.PoolConfig) {
		cfg.Shards.Count = 1
		p.Policy = "least_connections" // by p2c, heavy turns would move sessions, too
		p.Placement.Knee = 1
		r := &p.Rebalance
		r.Interval, r.MinResidence, r.MaxRate = 300*time.Millisecond, 0, 30
	})
	s.rebalance(t, false)
	k := &chats{stage: s, homes: map[string]string{}}
	end := k.begin(t)
	defer end()
	k.uneven(t)
	leads := s.leader(t)
	before := s.pool(t, leads).StepTimeCV
	s.rebalance(t, true)
	eventually(t, 2*patience, func() string {
		if n := k.at("b1"); n > 8 {
			return fmt.Sprintf("%d sessions are at b1; the planner says %q", n, s.said(t).Reason)
		}
		if after := s.pool(t, leads).StepTimeCV; after >= before {
			return fmt.Sprintf("the step times' cv was %.2f and is %.2f", before, after)
		}
		return ""
	})
	s.rebalance(t, false)
	k.rests(t)
	end()
	a, b := k.at("b1"), k.at("b2")
	if a+b != 12 || len(k.wrong) > 0 || s.everywhere(t, "starling_move_cut_streams_total") > 0 {
		t.Errorf("%d sessions are at b1 and %d at b2; wrong: %q", a, b, k.wrong)
	}
	if n := s.everywhere(t, "starling_sessions", fmt.Sprintf("pool=%q", pool)); n != 12 {
		t.Errorf("%v sessions are bound", n)
	}
	for _, reason := range []string{"once", "moved", "spike"} {
		if s.looks(t, reason) == 0 || s.log.has("pool="+pool, "shard=1", "reason="+reason, "step_time_cv=", "spike_above=") == 0 {
			t.Errorf("%q: the metric has %v looks, the log %d", reason, s.looks(t, reason), s.log.has("reason="+reason))
		}
	}
}

// uneven has ten sessions live at b1 and two at b2, and waits for turns there.
func (k *chats) uneven(t *testing.T) {
	t.Helper()
	for i := range 12 {
		to := "b1"
		if i >= 10 {
			to = "b2"
		}
		k.move(t, fmt.Sprint("s", i), to)
	}
	eventually(t, patience, func() string {
		if a, b := k.at("b1"), k.at("b2"); a != 10 || b != 2 {
			return fmt.Sprintf("%d sessions are at b1 and %d at b2, before any may move", a, b)
		}
		return ""
	})
}

// begin has twelve sessions talk.
func (k *chats) begin(t *testing.T) (end func()) {
	t.Helper()
	for i := range 12 {
		if _, err := k.turn(t.Context(), i%nodes, fmt.Sprint("s", i), 1); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var lives sync.WaitGroup
	for i := range 12 {
		lives.Go(func() { k.run(ctx, fmt.Sprint("s", i)) })
	}
	return func() {
		cancel()
		lives.Wait()
	}
}

// rests checks that in a spike at nodes that lead nothing the leader plans no moves,
// however uneven the backends are, and says why. On a busy machine a spike is not as
// high all the time: that one is none.
func (k *chats) rests(t *testing.T) {
	t.Helper()
	for range 5 {
		if k.rested(t) {
			return
		}
	}
	t.Error("none of five spikes was one at each of five looks")
}

// rested says whether the spike was one at every look.
func (k *chats) rested(t *testing.T) bool {
	t.Helper()
	k.uneven(t)
	leads := k.leader(t)
	end := k.spike(t, (leads+1)%nodes, (leads+2)%nodes)
	defer end()
	eventually(t, patience, func() string {
		if pace, above := k.log.pace(); pace < 1.3*above {
			return fmt.Sprintf("the leader sees %.0f requests/s, and a spike above %.0f", pace, above)
		}
		return ""
	})
	moved, seen, from := k.looks(t, "moved"), k.looks(t, "spike"), k.log.has()
	k.rebalance(t, true)
	defer k.rebalance(t, false)
	eventually(t, patience, func() string {
		if more := k.looks(t, "spike") - seen; more < 5 && !k.log.lulls(from) {
			return fmt.Sprintf("the spike is seen at %v looks; the planner says %q", more, k.said(t).Reason)
		}
		return ""
	})
	now, left := k.looks(t, "moved"), k.at("b1")
	if k.log.lulls(from) {
		return false
	}
	if now != moved || left != 10 {
		t.Errorf("%v moves were planned in a spike; %d sessions are at b1", now-moved, left)
	}
	eventually(t, patience, func() string {
		if said := k.said(t); !strings.Contains(said.Reason, "spike: ") || said.LastDecision == nil {
			return fmt.Sprintf("in a spike the leader says %+v", said)
		}
		return ""
	})
	return true
}
