package testcluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
)

const patience = time.Minute // no wait in a test is longer; a machine that does much else needs some of it

// origin is a backend that does on each connection what serve says; the
// connection is closed when that returns.
type origin struct {
	id   string
	addr string
}

func newOrigin(t *testing.T, id string, serve func(c *net.TCPConn, in *bufio.Reader)) origin {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	over, open := false, map[net.Conn]bool{}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if over {
				c.Close()
			}
			open[c] = true
			mu.Unlock()
			tasks.Go(func() {
				serve(c.(*net.TCPConn), bufio.NewReader(c))
				c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		over = true
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		tasks.Wait()
	})
	return origin{id: id, addr: l.Addr().String()}
}

// startNode runs one node in front of the origins.
func startNode(t *testing.T, o testcluster.Options, edit func(*proxy.PoolConfig), origins ...origin) *testcluster.Node {
	t.Helper()
	o.Config = func(cfg *node.Config) {
		pool := cfg.Pools[testcluster.PoolName]
		for _, at := range origins {
			b := backend.DefaultConfig()
			b.ID, b.URL = at.id, "http://"+at.addr
			pool.Backends = append(pool.Backends, b)
			pool.Health.Enabled, pool.Backend.Engine = false, "none" // an origin does what it does on every connection
		}
		if edit != nil {
			edit(&pool)
		}
		cfg.Pools[testcluster.PoolName] = pool
	}
	c, err := testcluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	return c.Node(0)
}

func stop(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// dialNode is a client's connection.
func dialNode(t *testing.T, n *testcluster.Node) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", n.ProxyAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatalf("send %.20q: %v", text, err)
	}
}

// readHead takes a head, and tells the length that it names; -1: none.
func readHead(in *bufio.Reader) (head string, length int, err error) {
	length = -1
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return head, length, err
		}
		head += line
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if strings.EqualFold(name, "Content-Length") {
			length, err = strconv.Atoi(strings.TrimSpace(value))
		}
		if err != nil || strings.TrimSpace(line) == "" {
			return head, length, err
		}
	}
}

// leave ends a client's connection as its user or its machine would.
func leave(c *net.TCPConn, how string) {
	if how == "RST" {
		c.SetLinger(0)
	}
	c.Close()
}

// await gets a value in time.
func await[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: nothing for %v", what, patience)
		panic("unreachable")
	}
}

// eventually waits until look finds nothing wrong.
func eventually(t *testing.T, within time.Duration, look func() string) {
	t.Helper()
	for start := time.Now(); ; {
		began := time.Now()
		wrong := look()
		if wrong == "" {
			return
		}
		since := began.Sub(start)
		if since > within {
			t.Fatalf("after %v still: %s", within, wrong)
		}
		<-time.After(min(max(since/20, 2*time.Millisecond), 50*time.Millisecond)) // asking all the time would be the load
	}
}

// inTime measures what is quick until it was more often than not. A busy machine may be
// slow once or twice; nothing of it makes that seconds.
func inTime(t *testing.T, what string, limit time.Duration, measure func() time.Duration) {
	t.Helper()
	var took []time.Duration
	late := 0
	for late < 3 {
		last := measure()
		if took = append(took, last); last > limit {
			late++
		}
		if last > limit+2*time.Second {
			break
		}
		if 2*late < len(took) {
			return
		}
	}
	t.Errorf("%s: %v, too often later than %v", what, took, limit)
}

// insist does something at the admin API until the cluster has answered it: on a
// machine that does much else nobody may lead for a moment. What was refused for that
// may have been agreed on all the same, and is then refused as what is so already.
func insist(t *testing.T, do func() error) {
	t.Helper()
	open := false
	eventually(t, settleTime, func() string {
		err := do()
		var refused *client.RefusedError
		switch {
		case err == nil:
			return ""
		case strings.Contains(err.Error(), "did not agree"), errors.As(err, &refused) && refused.Status == http.StatusServiceUnavailable:
			open = true
			return err.Error()
		case open && refused != nil && (refused.Status == http.StatusConflict || refused.Status == http.StatusNotFound):
			return ""
		}
		t.Fatal(err)
		return ""
	})
}

// ask gets one page of the admin API.
func ask(t *testing.T, n *testcluster.Node, path string) []byte {
	t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(n.AdminURL() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: status %d, %v", path, resp.StatusCode, err)
	}
	return body
}

// inFlight is what the node says of all its backends.
func inFlight(t *testing.T, n *testcluster.Node) (sum int64) {
	t.Helper()
	var list api.Backends
	if err := json.Unmarshal(ask(t, n, "/v1/backends"), &list); err != nil {
		t.Fatal(err)
	}
	for _, b := range list.Backends {
		sum += b.InFlight.Local
	}
	return sum
}

// metrics are the samples of one metric whose labels hold all of with.
func metrics(t *testing.T, n *testcluster.Node, name string, with ...string) (sum float64) {
	t.Helper()
	found := false
	for line := range strings.Lines(string(ask(t, n, "/metrics"))) {
		labels, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || labels != name && !strings.HasPrefix(labels, name+"{") {
			continue
		}
		matches := true
		for _, w := range with {
			matches = matches && strings.Contains(labels, w)
		}
		if !matches {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("metric %q: %v", line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		t.Fatalf("no metric %s with %v", name, with)
	}
	return sum
}

func reason(r backend.Reason) string { return fmt.Sprintf("reason=%q", r) }
