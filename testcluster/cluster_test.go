package testcluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/llm"
	"github.com/starling-lb/starling/testcluster/load"
)

func TestClusterLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	c, err := testcluster.Start(t.Context(), testcluster.Options{Backends: 2, UsualPorts: true})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	addrs := []string{c.Node(0).ProxyAddrs()[0], c.Node(0).AdminAddr(), c.Backend(0).Addr(), c.Backend(1).Addr()}
	for _, url := range []string{c.Node(0).URL() + "/v1/models", c.Node(0).AdminURL() + "/readyz", c.Backend(1).ControlURL() + "/control/status"} {
		resp, err := client.Get(url)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("GET %s: %v, %v", url, resp, err)
		}
		resp.Body.Close()
	}
	for _, want := range append(addrs, "curl -N "+c.Node(0).URL()) {
		if !strings.Contains(c.Guide(), want) {
			t.Errorf("the guide does not name %s:\n%s", want, c.Guide())
		}
	}
	// A second one finds the usual ports taken and has others.
	other, err := testcluster.Start(t.Context(), testcluster.Options{Backends: 1, UsualPorts: true})
	if err != nil {
		t.Fatal(err)
	}
	stop(t, other)
	stop(t, c)
	stop(t, c) // again
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
	for _, a := range addrs {
		if c, err := net.Dial("tcp", a); err == nil {
			c.Close()
			t.Errorf("%s still accepts", a)
		}
	}
}

func TestStartThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, o := range map[string]testcluster.Options{
		"nodes":   {Nodes: testcluster.MaxNodes + 1},
		"backend": {Backends: 2, Backend: llm.Options{Speed: -1}},
		"port":    {Backends: 2, Config: func(c *node.Config) { c.Listeners[0].Address = taken.Addr().String() }},
		"admin":   {Backends: 2, Config: func(c *node.Config) { c.Admin.Address = taken.Addr().String() }},
	} {
		c, err := testcluster.Start(t.Context(), o)
		if err == nil {
			stop(t, c)
			t.Errorf("%s: no error", name)
		}
		if name == "nodes" && !errors.Is(err, testcluster.ErrNodes) {
			t.Errorf("%s: %v, want ErrNodes", name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}

// screenful is what a Show wrote so far.
type screenful struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screenful) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screenful) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestShowTellsTheStory: a backend is killed and comes back, and what a reader
// is told of it comes in the right order.
func TestShowTellsTheStory(t *testing.T) {
	c, err := testcluster.Start(t.Context(), testcluster.Options{Backends: 3, Backend: testcluster.DemoBackend(), Config: func(cfg *node.Config) {
		pool := cfg.Pools[testcluster.PoolName]
		pool.Outlier.BaseEjection, pool.Outlier.MaxEjection = time.Second, time.Second
		pool.Health.Interval, pool.Health.DownInterval = 200*time.Millisecond, 200*time.Millisecond
		pool.Health.Fall = 10 // it is out for its streams first
		cfg.Pools[testcluster.PoolName] = pool
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, c)
	out := &screenful{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type result struct {
		snap load.Snapshot
		err  error
	}
	ended := make(chan result, 1)
	began := time.Now()
	go func() {
		snap, err := c.Show(ctx, testcluster.ShowOptions{Out: out, Load: load.Options{Rate: 20, Output: 60}, Up: 1500 * time.Millisecond, Down: 2500 * time.Millisecond})
		ended <- result{snap, err}
	}()
	for _, want := range []string{
		"tokens/s", "b2 killed: its", "b2 is ejected", "traffic has left b2", "b2 started again", "b2 is active again", "traffic is back at b2", "b3 killed",
	} {
		eventually(t, patience, func() string {
			if !strings.Contains(out.String(), want) {
				return fmt.Sprintf("no %q in\n%s", want, out)
			}
			return ""
		})
		if took := time.Since(began); want == "tokens/s" && took > 2*time.Second*raceFactor {
			t.Errorf("the first figures came after %v", took)
		}
	}
	cancel()
	r := await(t, "the show ends", ended)
	text := out.String()
	if r.err != nil || r.snap.Failures() > 0 || r.snap.Skipped > 0 || strings.Contains(text, "!!") {
		t.Errorf("%v; %d failures, %d skipped:\n%s", r.err, r.snap.Failures(), r.snap.Skipped, text)
	}
	if r.snap.Done == 0 || r.snap.Broken == 0 || !strings.Contains(text, fmt.Sprintf("%d streams finished, %d broken (backends killed: 2)", r.snap.Done, r.snap.Broken)) {
		t.Errorf("the summary does not tell what the load counted (%d done, %d broken):\n%s", r.snap.Done, r.snap.Broken, text)
	}
	at := -1
	for _, step := range []string{"b2 killed", "b2 is ejected", "traffic has left b2", "b2 started again", "b2 is active again", "traffic is back at b2"} {
		i := strings.Index(text, step)
		if i < at {
			t.Errorf("%q comes too early in\n%s", step, text)
		}
		at = i
	}
}

// TestFailuresAreLoud: a failure that nobody made on purpose is shouted.
func TestFailuresAreLoud(t *testing.T) {
	c, err := testcluster.Start(t.Context(), testcluster.Options{Backends: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, c)
	out := &screenful{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	if err := c.Backend(0).Kill(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := c.Show(ctx, testcluster.ShowOptions{Out: out, Load: load.Options{Rate: 50}})
		ended <- err
	}()
	for _, want := range []string{"the only backend is left alone", "streams FAILED, status 502 backend_refused"} {
		eventually(t, patience, func() string {
			if !strings.Contains(out.String(), want) {
				return fmt.Sprintf("no %q in\n%s", want, out)
			}
			return ""
		})
	}
	if err := c.Backend(0).Revive(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := await(t, "the show ends", ended); err != nil {
		t.Error(err)
	}
}
