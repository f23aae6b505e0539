package testcluster_test

import (
	"context"
	"encoding/json"
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
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/llm"
)

// clinic is a cluster of quick demo backends that is asked short questions.
type clinic struct {
	t *testing.T
	*testcluster.Cluster
	client http.Client
}

func newClinic(t *testing.T, backends int, edit func(*proxy.PoolConfig)) *clinic {
	t.Helper()
	c, err := testcluster.Start(t.Context(), testcluster.Options{Backends: backends, Backend: llm.Options{Speed: 20}, Config: func(cfg *node.Config) {
		pool := cfg.Pools[testcluster.PoolName]
		pool.Health.Interval, pool.Health.DownInterval, pool.Health.Timeout = 100*time.Millisecond, 100*time.Millisecond, 5*time.Second
		edit(&pool)
		cfg.Pools[testcluster.PoolName] = pool
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	return &clinic{t: t, Cluster: c, client: http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// question is one request of a few tokens, which is not tried again.
func (c *clinic) question() (status int, code, from string) {
	resp, err := c.client.Post(c.Node(0).URL()+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"hi","max_tokens":4}`))
	if err != nil {
		c.t.Error(err)
		return 0, "", ""
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("X-Starling-Error"), resp.Header.Get("X-Demo-Backend")
}

// faults sets a backend's switches.
func (c *clinic) faults(i int, f llm.Faults) {
	c.t.Helper()
	if err := c.Backend(i).SetFaults(f); err != nil {
		c.t.Fatal(err)
	}
}

// backends is what the node says of them.
func (c *clinic) backends() []api.Backend {
	c.t.Helper()
	var list api.Backends
	if err := json.Unmarshal(ask(c.t, c.Node(0), "/v1/backends"), &list); err != nil {
		c.t.Fatal(err)
	}
	return list.Backends
}

// become waits for the backends' states.
func (c *clinic) become(want ...backend.State) {
	c.t.Helper()
	eventually(c.t, patience, func() string {
		for i, b := range c.backends() {
			if b.State != want[i] {
				return fmt.Sprintf("%s is %s (%s), want %s", b.ID, b.State, b.Reason, want[i])
			}
		}
		return ""
	})
}

// TestHungBackendThatAnswersItsCheck: out after three failures, tried by a
// single stream, and back soon after it recovered.
func TestHungBackendThatAnswersItsCheck(t *testing.T) {
	const header, base = 600 * time.Millisecond, 1500 * time.Millisecond
	c := newClinic(t, 3, func(p *proxy.PoolConfig) {
		p.Outlier.ConsecutiveFailures, p.Outlier.BaseEjection = 3, base
		p.Timeouts.ResponseHeader = header
	})
	events, err := c.Node(0).Events("", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	c.faults(0, llm.Faults{Hang: true, Health: llm.HealthOK})
	failed := 0
	for began := time.Now(); c.backends()[0].State != backend.Ejected; {
		if status, code, _ := c.question(); status == 504 && code == string(backend.CodeTimeout) {
			failed++
		} else if status != 200 {
			t.Fatalf("status %d, %s", status, code)
		}
		if time.Since(began) > patience {
			t.Fatalf("still not out after %d failures", failed)
		}
	}
	if failed != 3 {
		t.Errorf("out after %d failures, want 3", failed)
	}
	// It hangs on through its trial, while many ask.
	var late atomic.Int64
	var asking sync.WaitGroup
	over := make(chan struct{})
	for range 8 {
		asking.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				switch status, code, _ := c.question(); status {
				case 200:
				case 504:
					late.Add(1)
				default:
					t.Errorf("status %d, %s", status, code)
				}
			}
		})
	}
	eventually(t, patience, func() string {
		if b := c.backends()[0]; !strings.Contains(b.Reason, "trial stream failed") {
			return fmt.Sprintf("b1 is %s: %s", b.State, b.Reason)
		}
		return ""
	})
	c.faults(0, llm.Faults{})
	c.become(backend.Active, backend.Active, backend.Active)
	close(over)
	asking.Wait()
	if n := late.Load(); n != 1 {
		t.Errorf("%d streams were spent on the trial of a hung backend, want 1", n)
	}
	var own []api.Event
	list, err := events.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Backend == "b1" {
			own = append(own, e)
		}
	}
	if len(own) != 3 || own[2].Reason != "the trial stream succeeded" {
		t.Fatalf("events: %+v", own)
	}
	if out, most := own[1].Time.Sub(own[0].Time), (base+base/10+time.Second)*raceFactor+header; out < base || out > most {
		t.Errorf("the trial's end came %v after the first ejection, want %v to %v", out, base, most)
	}
	if out, most := own[2].Time.Sub(own[1].Time), (2*base+2*base/10+time.Second)*raceFactor; out < 2*base || out > most {
		t.Errorf("back %v after the second ejection, want %v to %v", out, 2*base, most)
	}
}

// TestAllDown: with nobody left the answer comes at once.
func TestAllDown(t *testing.T) {
	c := newClinic(t, 3, func(p *proxy.PoolConfig) {})
	for i := range 3 {
		if err := c.Backend(i).Kill(); err != nil {
			t.Fatal(err)
		}
	}
	c.become(backend.Unhealthy, backend.Unhealthy, backend.Unhealthy)
	inTime(t, "an answer, the median of nine", 50*time.Millisecond*raceFactor, func() time.Duration {
		var took []time.Duration
		for range 9 {
			began := time.Now()
			status, code, _ := c.question()
			took = append(took, time.Since(began))
			if status != 503 || code != string(backend.NoBackend) {
				t.Errorf("status %d, %s", status, code)
			}
		}
		slices.Sort(took)
		return took[4]
	})
	for i := range 3 {
		if err := c.Backend(i).Revive(); err != nil {
			t.Fatal(err)
		}
	}
	c.become(backend.Active, backend.Active, backend.Active)
	if status, code, _ := c.question(); status != 200 {
		t.Errorf("revived: status %d, %s", status, code)
	}
}

// TestPanicSpreadsAndSaysSo: two of three fail their checks and serve well.
func TestPanicSpreadsAndSaysSo(t *testing.T) {
	c := newClinic(t, 3, func(p *proxy.PoolConfig) {})
	n := c.Node(0)
	if got := metrics(t, n, "starling_panic"); got != 0 {
		t.Errorf("panic is %v at first", got)
	}
	c.faults(0, llm.Faults{Health: llm.HealthFail})
	c.become(backend.Unhealthy, backend.Active, backend.Active)
	for range 20 {
		if status, code, from := c.question(); status != 200 || from == "b1" {
			t.Fatalf("one of three is out: status %d, %s from %s", status, code, from)
		}
	}
	events, err := n.Events("", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	c.faults(1, llm.Faults{Health: llm.HealthFail})
	c.become(backend.Unhealthy, backend.Unhealthy, backend.Active)
	if got := metrics(t, n, "starling_panic", `pool="llm"`); got != 1 {
		t.Errorf("panic is %v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	told := func(e api.Event) bool { return e.Kind == api.PanicEvent && e.Panic && e.Pool == "llm" }
	var list []api.Event
	for !slices.ContainsFunc(list, told) {
		more, err := events.Next(ctx)
		if list = append(list, more...); err != nil {
			t.Fatalf("told %+v, %v", list, err)
		}
	}
	from := map[string]int{}
	for range 90 {
		status, code, b := c.question()
		if status != 200 {
			t.Fatalf("status %d, %s", status, code)
		}
		from[b]++
	}
	if len(from) != 3 {
		t.Errorf("in panic answers came from %v", from)
	}
	c.faults(0, llm.Faults{})
	c.faults(1, llm.Faults{})
	c.become(backend.Active, backend.Active, backend.Active)
	if got := metrics(t, n, "starling_panic"); got != 0 {
		t.Errorf("panic is %v after it", got)
	}
}

// TestBurstSpreads: 64 requests at once leave none of 8 backends with more than 10.
func TestBurstSpreads(t *testing.T) {
	c := newClinic(t, 8, func(p *proxy.PoolConfig) {})
	for i := range 8 {
		c.faults(i, llm.Faults{Hang: true, Health: llm.HealthOK}) // all stay until they are seen
	}
	for range 64 {
		in := dialNode(t, c.Node(0))
		t.Cleanup(func() { in.Close() })
		body := `{"prompt":"hi","max_tokens":4}`
		send(t, in, fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	}
	eventually(t, patience, func() string {
		if n := inFlight(t, c.Node(0)); n != 64 {
			return fmt.Sprintf("%d streams", n)
		}
		return ""
	})
	for _, b := range c.backends() {
		if b.InFlight.Local > 10 {
			t.Errorf("%s has %d of 64 streams", b.ID, b.InFlight.Local)
		}
	}
	for i := range 8 {
		c.faults(i, llm.Faults{})
	}
}

// TestBackendDrain: nothing new comes, what runs goes on, and the end is told.
func TestBackendDrain(t *testing.T) {
	c := newClinic(t, 2, func(p *proxy.PoolConfig) { p.Backend.DrainTimeout = time.Hour })
	n := c.Node(0)
	c.faults(0, llm.Faults{Hang: true, Health: llm.HealthOK})
	c.faults(1, llm.Faults{Hang: true, Health: llm.HealthOK})
	var answers [2]chan int
	for i := range answers { // one at each
		answers[i] = make(chan int, 1)
		go func() {
			status, _, _ := c.question()
			answers[i] <- status
		}()
		eventually(t, patience, func() string {
			if got := inFlight(t, n); got != int64(i+1) {
				return fmt.Sprintf("%d streams", got)
			}
			return ""
		})
	}
	verb := func(path string) {
		t.Helper()
		resp, err := c.client.Post(n.AdminURL()+path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatalf("POST %s: %d", path, resp.StatusCode)
		}
	}
	verb("/v1/backends/b1/drain")
	if b := c.backends()[0]; b.State != backend.Draining || b.Drain == nil || b.Drain.Left < 3000 || b.InFlight.Local != 1 {
		t.Fatalf("draining: %+v", b)
	}
	c.faults(1, llm.Faults{})
	for range 20 {
		if status, code, from := c.question(); status != 200 || from != "b2" {
			t.Fatalf("status %d, %s from %s", status, code, from)
		}
	}
	if got := metrics(t, n, "starling_drains_total"); got != 0 {
		t.Errorf("%v drains are over", got)
	}
	c.faults(0, llm.Faults{})
	for _, a := range answers {
		if status := await(t, "an answer", a); status != 200 {
			t.Errorf("a stream under way ended with %d", status)
		}
	}
	eventually(t, patience, func() string {
		if b := c.backends()[0]; b.State != backend.Draining || b.Drain != nil || !strings.Contains(b.Reason, "drained in") || !strings.Contains(b.Reason, "was the last") {
			return fmt.Sprintf("%+v", b)
		}
		return ""
	})
	if done, all := metrics(t, n, "starling_drains_total", `result="done"`), metrics(t, n, "starling_drain_seconds_count"); done != 1 || all != 1 {
		t.Errorf("%v drains done, %v timed", done, all)
	}
	verb("/v1/backends/b1/undrain")
	c.become(backend.Active, backend.Active)
}
