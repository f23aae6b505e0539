package testcluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/llm"
)

// Three nodes, three demo backends, and a node that is cut off: a session's turns go
// where they went, once all nodes have heard where that is.
func ExampleForTest() {
	t := new(testing.T) // the test's own

	c := testcluster.ForTest(t, testcluster.Options{Nodes: 3, Backends: 3, Config: testcluster.DemoConfig})
	now, cancel := context.WithCancel(context.Background())
	cancel()
	defer c.Stop(now) // not needed in a test
	home := func(n *testcluster.Node) string {
		req, _ := http.NewRequest(http.MethodGet, n.URL()+"/v1/models", nil)
		req.Header.Set(llm.SessionHeader, "me")
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.Header.Get(llm.BackendHeader)
	}
	home(c.Node(0))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	agreed, err := c.AwaitAgreed(ctx, "me")
	if err != nil {
		t.Fatal(err)
	}
	before := agreed.Backend
	c.Partition([]int{0})
	fmt.Println("the same backend at the node that is cut off:", home(c.Node(0)) == before)
	fmt.Println("and at the others:", home(c.Node(1)) == before)
	c.Heal()
	c.Node(2).Kill()
	fmt.Println("and when another node has died:", home(c.Node(1)) == before)
	// Output:
	// the same backend at the node that is cut off: true
	// and at the others: true
	// and when another node has died: true
}

// TestAwaitAgreed: it is not over while a node has not heard of a session.
func TestAwaitAgreed(t *testing.T) {
	c := testcluster.ForTest(t, testcluster.Options{Nodes: 3, Backends: 2, Config: func(cfg *node.Config) { sessionsOn(cfg); exposed(cfg) }})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	await := func(within time.Duration) (api.Session, error) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return c.AwaitAgreed(ctx, "s")
	}
	if s, err := await(100 * time.Millisecond); err == nil {
		t.Errorf("a session that never was: %+v", s)
	}
	c.Partition([]int{2})
	if _, err := sessionTurn(client, c.Node(0), "s"); err != nil {
		t.Fatal(err)
	}
	if s, err := await(time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one of three is cut off: %+v, %v", s, err)
	}
	c.Heal()
	s, err := await(settleTime)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c.Partition([]int{i})
		got, err := sessionTurn(client, c.Node(i), "s")
		if c.Heal(); err != nil || got != s.Backend {
			t.Errorf("node %d alone goes to %q, %v; all agreed on %s", i, got, err, s.Backend)
		}
	}
}

// TestDisk: what a disk says before each write.
func TestDisk(t *testing.T) {
	d := testcluster.NewDisk()
	if err := d.May(); err != nil {
		t.Error(err)
	}
	d.Full()
	if err := d.May(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("full: %v", err)
	}
	d.Fail()
	if err := d.May(); !errors.Is(err, testcluster.ErrDisk) {
		t.Errorf("failing: %v", err)
	}
	const by = 20 * time.Millisecond
	d.Slow(by)
	if began := time.Now(); d.May() != nil || time.Since(began) < by {
		t.Errorf("slow: %v", time.Since(began))
	}
	d.Stall()
	wrote := make(chan error, 1)
	go func() { wrote <- d.May() }()
	select {
	case err := <-wrote:
		t.Errorf("stalled: %v", err)
	case <-time.After(by):
	}
	d.Mend()
	if err := <-wrote; err != nil {
		t.Errorf("mended: %v", err)
	}
}

// TestAwaitSessions: nodes that wait for others are no cluster, and it is said which
// lacks what.
func TestAwaitSessions(t *testing.T) {
	c, err := testcluster.Start(t.Context(), testcluster.Options{Nodes: 2, Backends: 1, Config: func(cfg *node.Config) { cfg.Cluster.BootstrapExpect = 3 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) }) // nothing runs that it could cut
	if err := c.AwaitSessions(t.Context(), 200*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "n1 has no cluster: ") {
		t.Errorf("got %v", err)
	}
}
