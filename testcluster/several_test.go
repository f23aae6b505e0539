package testcluster_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/llm"
)

// several starts a cluster of nodes and waits until each knows all, and has
// heard from all.
func several(t *testing.T, o testcluster.Options, edit func(*proxy.PoolConfig)) *testcluster.Cluster {
	t.Helper()
	o.Config = func(cfg *node.Config) {
		pool := cfg.Pools[testcluster.PoolName]
		edit(&pool)
		cfg.Pools[testcluster.PoolName] = pool
	}
	c, err := testcluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	for i := range o.Nodes {
		eventually(t, patience, func() string {
			var l api.Members
			if err := admin(t, c.Node(i)).Get(t.Context(), &l, "members"); err != nil {
				return err.Error()
			}
			spoken := 0
			for _, m := range l.Members {
				if m.State == backend.MemberAlive && (m.Self || m.ReportAge != nil) {
					spoken++
				}
			}
			if spoken != o.Nodes {
				return fmt.Sprintf("node %d knows %d of %d", i, spoken, o.Nodes)
			}
			return ""
		})
	}
	return c
}

// TestCapsOverTheCluster: 3 nodes, 10 backends with two places each, 20 long
// streams at random nodes, 20 ms apart: just as many as there are places, and five
// more a second later, which have to wait. All are served, and no node puts a
// third stream where a report could have told it that two are.
func TestCapsOverTheCluster(t *testing.T) {
	c := several(t, testcluster.Options{Nodes: 3, Backends: 10, Backend: llm.Options{Decode: 50}}, func(p *proxy.PoolConfig) {
		for i := range p.Backends {
			p.Backends[i].MaxStreams = 2
		}
		p.Queue.Timeout = patience
	})
	const all, more = 20, 5
	var streams sync.WaitGroup
	defer streams.Wait()
	errs := make(chan error, all+more)
	begin := func() {
		url := c.Node(rand.IntN(3)).URL()
		streams.Go(func() { errs <- longStream(url) })
	}
	thirds := make(chan []third, 1)
	go func() { thirds <- watchCaps(c, 2, 2600*time.Millisecond) }() // by then none of the streams has ended
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range all {
		<-tick.C
		begin()
	}
	<-time.After(reportAge)
	for range more {
		begin()
	}
	over := <-thirds
	for range all + more {
		if err := <-errs; err != nil {
			t.Errorf("a client saw: %v", err)
		}
	}
	for _, o := range over {
		t.Logf("%s had a third stream %v after the second", o.backend, o.after)
		if o.after > reportAge*raceFactor {
			t.Errorf("%s got a third stream when all had been told of two", o.backend)
		}
	}
	if len(over) > max(3, raceFactor) { // two within the few milliseconds that a word takes are possible, and rare where the machine has time
		t.Errorf("%d backends had more than 2 streams", len(over))
	}
}

// reportAge is how old a report of a node gets that has something to say.
const reportAge = time.Second

// third is a stream above a backend's cap, and how long after the backend was
// full.
type third struct {
	backend string
	after   time.Duration
}

// watchCaps looks at all backends for some time.
func watchCaps(c *testcluster.Cluster, most int, lasts time.Duration) (list []third) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	full, seen := map[string]time.Time{}, map[string]bool{}
	for start := time.Now(); time.Since(start) < lasts; <-tick.C {
		for _, b := range c.Backends() {
			s := b.Status()
			switch n := s.Running + s.Waiting; {
			case n < most:
				delete(full, b.ID)
			case full[b.ID].IsZero():
				full[b.ID] = time.Now()
			}
			if s.Running+s.Waiting > most && !seen[b.ID] {
				seen[b.ID] = true
				list = append(list, third{b.ID, time.Since(full[b.ID])})
			}
		}
	}
	return list
}

// longStream reads an answer of some three seconds.
func longStream(url string) error { return stream(url, 150) }

// stream reads an answer of so many tokens.
func stream(url string, tokens int) error {
	body := fmt.Sprintf(`{"stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"hello"}]}`, tokens)
	req, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set(llm.OutputTokensHeader, strconv.Itoa(tokens))
	req.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != 200 || !strings.Contains(string(text), "[DONE]") {
		return fmt.Errorf("status %d, %.200s", resp.StatusCode, text)
	}
	return nil
}

// TestHungBackendIsOutEverywhere: a backend that hangs is out on every node
// soon, at a number of checks that does not grow with the nodes, and back soon
// after it is mended.
func TestHungBackendIsOutEverywhere(t *testing.T) {
	for _, nodes := range []int{3, 16} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			const backends, hang = 16, 7 // fewer than would be panic
			c := several(t, testcluster.Options{Nodes: nodes, Backends: backends}, func(*proxy.PoolConfig) {})
			before, began := healthChecks(t, c, nodes), time.Now()
			var took []time.Duration
			hung := map[string]time.Time{}
			for i := range hang { // at any phase of the checks
				<-time.After(2*time.Second/3 + rand.N(time.Second/2))
				if err := c.Backend(i).SetFaults(llm.Faults{Hang: true}); err != nil {
					t.Fatal(err)
				}
				hung[c.Backend(i).ID] = time.Now()
			}
			tick := time.NewTicker(50 * time.Millisecond) // asking all of them all the time would be the load
			defer tick.Stop()
			eventually(t, patience, func() string {
				<-tick.C
				for id, at := range hung {
					last, why := outSince(t, c, nodes, id)
					if why != "" {
						return why
					}
					took = append(took, last.Sub(at))
					delete(hung, id)
				}
				return ""
			})
			rate := (healthChecks(t, c, nodes) - before) / backends / time.Since(began).Seconds()
			slices.Sort(took)
			t.Logf("%d nodes: out on all after %v; %.2f checks per backend and second", nodes, took, rate)
			if took[hang/2] > 5*time.Second*raceFactor || took[hang-1] > 8*time.Second*raceFactor {
				t.Errorf("out on all after %v, want 3 s and at most 4 on a quiet machine", took)
			}
			if rate > 2.2 {
				t.Errorf("%.2f checks per backend and second, want about 1.5 at any number of nodes", rate)
			}
			for i := range hang {
				if err := c.Backend(i).Revive(); err != nil {
					t.Fatal(err)
				}
				eventually(t, patience, func() string { return stands(t, c, nodes, c.Backend(i).ID, backend.Active) })
			}
		})
	}
}

// TestBusyIsNotDead: a backend whose health page does not answer in time stays in
// on every node while one of them gets bytes from it, and is out soon after.
func TestBusyIsNotDead(t *testing.T) {
	c := several(t, testcluster.Options{Nodes: 3, Backends: 2, Backend: llm.Options{Decode: 50}}, func(p *proxy.PoolConfig) {
		p.Outlier.PanicPercent = 0
	})
	id := c.Backend(0).ID
	busyUntil := time.Now().Add(9 * time.Second)
	var streams sync.WaitGroup
	for range 4 { // some of each go to either backend
		streams.Go(func() {
			for time.Now().Before(busyUntil) {
				if err := longStream(c.Node(0).URL()); err != nil {
					t.Errorf("a client saw: %v", err)
					return
				}
			}
		})
	}
	eventually(t, patience, func() string {
		if c.Backend(0).Status().Running == 0 {
			return "nothing runs there"
		}
		return ""
	})
	if err := c.Backend(0).SetFaults(llm.Faults{HealthDelay: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(busyUntil) {
		<-tick.C
		if why := stands(t, c, 3, id, backend.Active); why != "" && c.Backend(0).Status().Running > 0 {
			t.Fatalf("while it sends: %s", why)
		}
	}
	streams.Wait()
	eventually(t, patience, func() string { return stands(t, c, 3, id, backend.Unhealthy) })
}

// stands says which node does not see the backend in a state.
func stands(t *testing.T, c *testcluster.Cluster, nodes int, id string, want backend.State) string {
	t.Helper()
	for n := range nodes {
		if seen, _ := known(t, c.Node(n), id); seen.State != want {
			return fmt.Sprintf("node %d sees %s %s: %s", n, id, seen.State, seen.Reason)
		}
	}
	return ""
}

// outSince is when the last of the nodes took a backend out for its health, or
// which has not.
func outSince(t *testing.T, c *testcluster.Cluster, nodes int, id string) (last time.Time, why string) {
	t.Helper()
	for n := range nodes {
		seen, _ := known(t, c.Node(n), id)
		if seen.State != backend.Unhealthy {
			return last, fmt.Sprintf("node %d sees %s %s: %s", n, id, seen.State, seen.Reason)
		}
		if seen.Since.After(last) {
			last = seen.Since
		}
	}
	return last, ""
}

// healthChecks is how many checks all nodes have made.
func healthChecks(t *testing.T, c *testcluster.Cluster, nodes int) (n float64) {
	t.Helper()
	for i := range nodes {
		resp, err := http.Get(c.Node(i).AdminURL() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, " "); ok && strings.HasPrefix(name, "starling_health_checks_total{") {
				v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
				if err != nil {
					t.Fatal(err)
				}
				n += v
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
	return n
}
