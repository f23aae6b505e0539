package testcluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

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
	agreed, err := c.AwaitAgreed(context.Background(), "me")
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
