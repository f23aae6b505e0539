package testcluster_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/llm"
	"github.com/starling-lb/starling/testcluster/sim"
)

var replayFull = flag.Bool("replay.full", false, "TestReplay with 5,000 requests, three rounds and all peers; a quarter of an hour")

const (
	replaySpeed = 10.0 / raceFactor // times faster than the simulator's seconds
	replayStep  = 10                // tokens of the simulator that are one event here: 5,000 requests are 36 times as many events
	simDecode   = 50                // tokens a second, of the simulator's engine of speed 1
)

// tooBusy is how late requests are sent at the 99th percentile where the machine has
// no time to measure anything.
const tooBusy = 20 * time.Millisecond

// replay is one load, for real engines and for the simulator's oracle.
type replay struct {
	cell sim.Cell
	jobs []sim.Job
	busy *atomic.Bool // what was measured tells nothing
}

func newReplay(requests int, sigma float64, seed uint64) replay {
	c := sim.Sized(1, 4, 0.85)
	c.Load.Requests, c.Load.Sigma, c.Seed = requests, sigma, seed
	rows := make([]llm.Row, 0, requests)
	for _, j := range c.Jobs() {
		j.Output = (j.Output + replayStep - 1) / replayStep * replayStep
		rows = append(rows, llm.Row{At: time.Duration(j.At * float64(time.Second)), Context: j.Prompt, Generated: j.Output})
	}
	c.Load.Rows = rows // of whole events, so that both serve the same
	return replay{c, c.Jobs(), new(atomic.Bool)}
}

// oracle is the slowdown of the 95th and 99th percentile that nobody can beat.
func (r replay) oracle() (p95, p99 float64) {
	c := r.cell
	c.Rule = sim.Rule{Policy: sim.Oracle}
	f := sim.Run(c)
	return f.Slowdown.P95, f.Slowdown.P99
}

// play sends the requests, each at its time whatever became of those before, and
// measures from when it was due.
func (r replay) play(t *testing.T, policy string) (p95, p99 float64) {
	t.Helper()
	n := r.node(t, policy)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}, Timeout: 5 * time.Minute}
	defer client.CloseIdleConnections()
	slowdown := make([]float64, len(r.jobs))
	began := time.Now()
	wait := time.NewTimer(0)
	defer wait.Stop()
	var late []time.Duration
	var streams sync.WaitGroup
	for i, j := range r.jobs {
		due := began.Add(time.Duration(j.At / replaySpeed * float64(time.Second)))
		wait.Reset(time.Until(due))
		<-wait.C
		late = append(late, time.Since(due))
		streams.Go(func() {
			if err := converse(t.Context(), client, n.URL(), j); err != nil {
				t.Errorf("%s, request %d: %v", policy, i, err)
			}
			slowdown[i] = time.Since(due).Seconds() * replaySpeed / j.Work()
		})
	}
	streams.Wait()
	slices.Sort(late)
	if lag := late[len(late)*99/100]; lag > tooBusy {
		t.Logf("%s: requests were sent %v late at the 99th percentile: the machine is too busy to measure", policy, lag.Round(time.Millisecond))
		r.busy.Store(true)
	}
	measured := slowdown[len(slowdown)/5:]
	slices.Sort(measured)
	at := func(q float64) float64 { return measured[int(math.Ceil(q*float64(len(measured))))-1] }
	return at(0.95), at(0.99)
}

// node is a starling before four engines of speeds 1, 1, 2 and 0.5.
func (r replay) node(t *testing.T, policy string) *testcluster.Node {
	t.Helper()
	var origins []origin
	for i, e := range r.cell.Engines {
		s, err := llm.New(llm.Options{ID: fmt.Sprintf("b%d", i+1), Speed: e.Speed * replaySpeed, Decode: simDecode / replayStep})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := s.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
		origins = append(origins, origin{id: fmt.Sprintf("b%d", i+1), addr: strings.TrimPrefix(s.URL(), "http://")})
	}
	return startNode(t, testcluster.Options{}, func(p *proxy.PoolConfig) {
		p.Policy = policy
		p.Backend.MaxStreams = r.cell.Engines[0].Slots
		p.Queue.MaxWaiting, p.Queue.Timeout = len(r.jobs), 0 // none is turned away: all policies serve the same
	}, origins...)
}

// converse sends one request and reads its answer to the end.
func converse(ctx context.Context, client *http.Client, url string, j sim.Job) error {
	tokens := j.Output / replayStep
	body := fmt.Sprintf(`{"model":"demo-model","stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"Tell me about starlings."}]}`, tokens)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set(llm.PromptTokensHeader, strconv.Itoa(j.Prompt))
	req.Header.Set(llm.OutputTokensHeader, strconv.Itoa(tokens))
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("status %d: %.200s", resp.StatusCode, text)
	case !strings.HasSuffix(strings.TrimSpace(string(text)), "[DONE]"):
		return errors.New("the answer has no end")
	}
	return nil
}

// TestReplay: on real sockets p2c is close to the oracle of the same requests in
// the simulator, and ahead of its peers. The short form only looks whether it is
// no worse than round robin.
func TestReplay(t *testing.T) {
	if !*replayFull {
		r := newReplay(400/raceFactor, 0.5, 1)
		best, _ := r.oracle()
		own, turns := 0.0, 0.0
		t.Run("policies", func(t *testing.T) {
			t.Run("p2c", func(t *testing.T) { t.Parallel(); own, _ = r.play(t, backend.StepTime) })
			t.Run("round_robin", func(t *testing.T) { t.Parallel(); turns, _ = r.play(t, backend.RoundRobin) })
		})
		t.Logf("slowdown p95: oracle %.2f, p2c %.2f, round_robin %.2f", best, own, turns)
		if own > turns && !r.busy.Load() {
			t.Errorf("slowdown p95 is %.2f with p2c, %.2f with round_robin", own, turns)
		}
		return
	}
	var ratios []float64
	for seed := range uint64(3) {
		r := newReplay(5000, 0, seed+1)
		_, best := r.oracle()
		_, own := r.play(t, backend.StepTime)
		if !r.busy.Load() {
			ratios = append(ratios, own/best)
		}
		t.Logf("round %d: slowdown p99 of the oracle %.3f, p2c %.3f: %.3f times", seed+1, best, own, own/best)
		for _, policy := range []string{backend.RoundRobin, backend.LeastConnections, backend.PeakEWMA} {
			_, p99 := r.play(t, policy)
			t.Logf("round %d: %s %.3f: %.3f times", seed+1, policy, p99, p99/best)
			if p99 < own && !r.busy.Load() {
				t.Errorf("round %d: slowdown p99 is %.3f with p2c, %.3f with %s", seed+1, own, p99, policy)
			}
		}
	}
	if len(ratios) < 3 {
		t.Fatalf("the machine was too busy in %d of 3 rounds; run it where nothing else runs", 3-len(ratios))
	}
	if slices.Sort(ratios); ratios[1] > 1.15 {
		t.Errorf("p2c has %.3f times the oracle's p99, the median of three; want at most 1.15", ratios[1])
	}
}
