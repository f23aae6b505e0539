package testcluster_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
)

// admin asks a node as the commands do.
func admin(t *testing.T, n *testcluster.Node) *client.Client {
	t.Helper()
	c, err := client.New(n.AdminURL(), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// known is a backend as the admin API shows it; ok is false where there is none.
func known(t *testing.T, n *testcluster.Node, id string) (b api.Backend, ok bool) {
	t.Helper()
	var l api.Backends
	if err := admin(t, n).Get(t.Context(), &l, "backends"); err != nil {
		t.Fatal(err)
	}
	for _, b := range l.Backends {
		if b.ID == id {
			return b, true
		}
	}
	return b, false
}

// ends is how many requests of a load ended well and ill.
type ends struct {
	good, bad atomic.Int64
	first     atomic.Pointer[string] // the first bad end
}

// busy keeps eight clients asking until stop.
func busy(t *testing.T, url string) (e *ends, stop func()) {
	t.Helper()
	e = &ends{}
	done := make(chan struct{})
	var tasks sync.WaitGroup
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	for range 8 {
		tasks.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := turn(transport, url); err != nil {
					text := err.Error()
					e.first.CompareAndSwap(nil, &text)
					e.bad.Add(1)
				} else {
					e.good.Add(1)
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { close(done); tasks.Wait(); transport.CloseIdleConnections() })
	t.Cleanup(stop)
	return e, stop
}

// turn asks for a short answer of a demo backend, as a stream.
func turn(transport http.RoundTripper, url string) error {
	body := `{"model":"demo","stream":true,"max_tokens":4,"messages":[{"role":"user","content":"hello"}]}`
	req, err := http.NewRequest("POST", url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != 200 || !strings.HasSuffix(strings.TrimSpace(string(data)), "[DONE]")) {
		err = fmt.Errorf("%s: %q", resp.Status, data)
	}
	return err
}

// more waits until n more requests ended well.
func (e *ends) more(t *testing.T, n int64) {
	t.Helper()
	from := e.good.Load()
	eventually(t, patience, func() string {
		if got := e.good.Load() - from; got < n {
			return fmt.Sprintf("%d of %d answers", got, n)
		}
		return ""
	})
}

// What an operator does by the API, with streams running all the while: nobody
// notices, and what was decided outlives a restart of the node.
func TestOperateUnderLoad(t *testing.T) {
	dir := t.TempDir()
	spare, err := testcluster.Start(t.Context(), testcluster.Options{Backends: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, spare) })
	c, err := testcluster.Start(t.Context(), testcluster.Options{Backends: 3, Config: func(cfg *node.Config) { cfg.Node.DataDir = dir }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	n := c.Node(0)
	api := admin(t, n)
	e, enough := busy(t, n.URL())
	do := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		e.more(t, 40)
	}
	ctx := t.Context()
	do("add", api.Post(ctx, map[string]any{"id": "added", "url": spare.Backend(0).URL()}, "pools", testcluster.PoolName, "backends"))
	do("weigh", api.Post(ctx, map[string]int{"weight": 3}, "backends", "b1", "weight"))
	do("drain", api.Post(ctx, nil, "backends", "b2", "drain"))
	eventually(t, patience, func() string {
		if b, _ := known(t, n, "b2"); b.State != backend.Draining || b.InFlight.Local != 0 {
			return fmt.Sprintf("b2 is %s with %d streams", b.State, b.InFlight.Local)
		}
		return ""
	})
	for _, policy := range backend.Policies() {
		do(policy, api.Post(ctx, map[string]string{"policy": policy}, "pools", testcluster.PoolName, "policy"))
	}
	do("eject", api.Post(ctx, nil, "backends", "b1", "eject"))
	do("admit", api.Post(ctx, nil, "backends", "b1", "admit"))
	do("remove", api.Delete(ctx, "pools", testcluster.PoolName, "backends", "b3"))
	if _, ok := known(t, n, "b3"); ok {
		t.Error("b3 is still there")
	}
	do("undrain", api.Post(ctx, nil, "backends", "b2", "undrain"))
	do("drain again", api.Post(ctx, nil, "backends", "b2", "drain"))
	enough()
	if e.bad.Load() > 0 {
		t.Errorf("%d of %d requests failed; the first: %s", e.bad.Load(), e.good.Load()+e.bad.Load(), *e.first.Load())
	}
	eventually(t, patience, func() string {
		for _, id := range []string{"b1", "b2", "added"} {
			if b, _ := known(t, n, id); b.InFlight.Local != 0 {
				return fmt.Sprintf("%s counts %d streams and nothing runs", id, b.InFlight.Local)
			}
		}
		return ""
	})

	if err := n.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	again, err := testcluster.Start(ctx, testcluster.Options{Backends: 3, Config: func(cfg *node.Config) { cfg.Node.DataDir = dir }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, again) })
	n = again.Node(0)
	if b, ok := known(t, n, "added"); !ok || b.URL != spare.Backend(0).URL() {
		t.Errorf("what was added did not outlive the restart: %+v", b)
	}
	if _, ok := known(t, n, "b3"); ok {
		t.Error("what was removed came back")
	}
	if b, _ := known(t, n, "b2"); b.State != backend.Draining {
		t.Errorf("b2 is %s", b.State)
	}
	if b, _ := known(t, n, "b1"); b.Weight != 3 {
		t.Errorf("b1 has weight %d", b.Weight)
	}
	for _, id := range []string{"b1", "b2", "b3", "added"} {
		if err := admin(t, n).Post(ctx, nil, "backends", id, "reset"); err != nil {
			t.Errorf("reset %s: %v", id, err)
		}
	}
	var names []string
	for _, p := range n.Backends().Backends {
		names = append(names, fmt.Sprintf("%s*%d %s", p.ID, p.Weight, p.State))
	}
	if got := strings.Join(names, ", "); got != "b1*1 active, b2*1 active, b3*1 active" {
		t.Errorf("after the resets: %s", got)
	}
}

// Backends that a file names come and go with it, and a broken file changes
// nothing; nobody's stream notices.
func TestFileOfBackends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "backends.yaml")
	pool, err := testcluster.Start(t.Context(), testcluster.Options{Backends: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, pool) })
	line := func(i int) string { return fmt.Sprintf("  - {id: f%d, url: %q}\n", i+1, pool.Backend(i).URL()) }
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	put("backends:\n" + line(0))
	c, err := testcluster.Start(t.Context(), testcluster.Options{Config: func(cfg *node.Config) {
		p := cfg.Pools[testcluster.PoolName]
		p.Sources.File = path
		cfg.Pools[testcluster.PoolName] = p
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	n := c.Node(0)
	e, enough := busy(t, n.URL())
	e.more(t, 20) // ready means that there are backends
	put("backends:\n" + line(0) + line(1))
	eventually(t, patience, func() string {
		if _, ok := known(t, n, "f2"); !ok {
			return "f2 has not come"
		}
		return ""
	})
	put("backends:\n  - {id: f1, url: nonsense}\n")
	e.more(t, 20)
	put("backends:\n" + line(1))
	eventually(t, patience, func() string {
		if _, ok := known(t, n, "f1"); ok {
			return "f1 has not gone"
		}
		return ""
	})
	e.more(t, 20)
	enough()
	if e.bad.Load() > 0 {
		t.Errorf("%d requests failed; the first: %s", e.bad.Load(), *e.first.Load())
	}
}

// A backend whose engine tells its load has a cap by it, though nobody
// configured one, and what is over it waits at the node; but for one, by which
// the engine shows that it is full.
func TestEngineTellsTheCap(t *testing.T) {
	slow := testcluster.Options{Backends: 1}
	slow.Backend.MaxActive = 3
	slow.Backend.Speed = 2
	c, err := testcluster.Start(t.Context(), slow)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	n := c.Node(0)
	_, enough := busy(t, n.URL())
	eventually(t, patience, func() string {
		b, _ := known(t, n, "b1")
		if b.Cap != 3 || b.CapSource != backend.CapEngine {
			return fmt.Sprintf("cap %d by %s", b.Cap, b.CapSource)
		}
		return ""
	})
	eventually(t, patience, func() string {
		if b, _ := known(t, n, "b1"); b.InFlight.Local != 4 || n.Status().Streams.Waiting != 4 {
			return fmt.Sprintf("%d run, %d wait", b.InFlight.Local, n.Status().Streams.Waiting)
		}
		return ""
	})
	enough()
}
