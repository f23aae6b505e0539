package proxy_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// crew is a data plane with backends of net/http, and a client of it.
type crew struct {
	rig
	configs []backend.Config
	client  *http.Client
}

// newCrew has backend i, of id bi, answered by serve(i).
func newCrew(t *testing.T, n int, edit func(*proxy.PoolConfig), serve func(i int) http.HandlerFunc) *crew {
	c := &crew{rig: rig{t: t, registry: prometheus.NewRegistry()}}
	for i := range n {
		s := httptest.NewServer(serve(i))
		t.Cleanup(s.Close)
		entry := backend.DefaultConfig()
		entry.ID, entry.URL = fmt.Sprintf("b%d", i), s.URL
		c.configs = append(c.configs, entry)
	}
	pool := proxy.DefaultPool()
	pool.Backends, pool.Health.Enabled = c.configs, false
	if edit != nil {
		edit(&pool)
	}
	route, l := proxy.DefaultRoute(), proxy.DefaultListener()
	route.Pool = "p"
	l.Address, l.MaxConnections, l.Routes = "127.0.0.1:0", 0, []proxy.RouteConfig{route}
	var err error
	c.server, err = proxy.New(proxy.Config{
		Listeners: []proxy.ListenerConfig{l}, Timeouts: proxy.DefaultClientTimeouts(), Pools: map[string]proxy.PoolConfig{"p": pool},
	}, proxy.Options{Logger: slog.New(slog.DiscardHandler), Registry: c.registry, Dial: c.dialer, Listen: c.listener, Ready: func() error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: patience}
	t.Cleanup(func() {
		c.client.CloseIdleConnections()
		c.stopNow()
	})
	return c
}

// get asks for a path and returns the body.
func (c *crew) get(path string, header ...string) (string, error) {
	req, err := http.NewRequest("GET", "http://"+c.server.Addrs()[0]+path, nil)
	if err != nil {
		return "", err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, body)
	}
	return string(body), err
}

// named answers with the backend's name.
func named(i int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, "b%d", i) }
}

// Backends join, leave and change their weights, and policies follow each other,
// while requests come: none fails, and no count begins anew.
func TestChangesUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 5, nil, named)
	var done, failed atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := c.get("/"); err != nil {
					failed.Add(1)
					t.Errorf("a request failed: %v", err)
					return
				}
				done.Add(1)
			}
		})
	}
	served := func() float64 { return c.metric("starling_streams_total", "backend", "b0") }
	more := func() { // until some more requests are through
		t.Helper()
		until, was := done.Load()+40, served()
		eventually(t, patience, func() string {
			if n := done.Load(); n < until && failed.Load() == 0 {
				return fmt.Sprintf("%d requests of %d", n, until)
			}
			return ""
		})
		if is := served(); is < was {
			t.Errorf("b0's count went from %v to %v", was, is)
		}
	}
	pool := c.server.Pools()[0]
	kept := pool.Backends()[0]
	update := func(list ...backend.Config) {
		t.Helper()
		if err := c.server.Update("p", list); err != nil {
			t.Error(err)
		}
		more()
	}
	heavy := c.configs[0]
	heavy.Weight = 5
	for _, policy := range backend.Policies() {
		if err := pool.SetPolicy(policy, 0.5, backend.Random); err != nil {
			t.Error(err)
		}
		more()
		update(c.configs[:3]...)
		update(c.configs...)
		update(heavy, c.configs[3], c.configs[4])
		update(c.configs[:4]...)
	}
	close(stop)
	clients.Wait()
	if pool.Backends()[0] != kept {
		t.Error("b0 was made anew")
	}
	c.atRest(patience, backend.Done, float64(done.Load()))
}

// Two policies of a pool are measured side by side, each by what it placed.
func TestPoliciesCompared(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 2, func(p *proxy.PoolConfig) {
		p.Policy, p.Placement.Second, p.Placement.SecondShare = backend.RoundRobin, backend.Random, .3
	}, named)
	const n = 300
	for range n {
		if _, err := c.get("/"); err != nil {
			t.Fatal(err)
		}
	}
	c.atRest(patience, backend.Done, n)
	first, second := c.metric("starling_policy_streams_total", "policy", "round_robin"), c.metric("starling_policy_streams_total", "policy", "random")
	if first+second != n || second < n/5 || second > n*2/5 {
		t.Errorf("of %d streams %v and %v are counted; the second policy places three tenths", n, first, second)
	}
}

// A stream counts for the policy that placed it, whichever places others by the
// time it ends.
func TestComparedByWhoPlaced(t *testing.T) {
	t.Parallel()
	came, over := make(chan struct{}), make(chan struct{})
	c := newCrew(t, 1, func(p *proxy.PoolConfig) {
		p.Policy, p.Placement.Second = backend.RoundRobin, backend.Random
	}, func(int) http.HandlerFunc {
		return func(http.ResponseWriter, *http.Request) {
			close(came)
			<-over
		}
	})
	answered := make(chan error)
	go func() {
		_, err := c.get("/")
		answered <- err
	}()
	<-came
	if err := c.server.Pools()[0].SetPolicy(backend.LeastConnections, 0, backend.Random); err != nil {
		t.Error(err)
	}
	close(over)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	c.atRest(patience, backend.Done, 1)
	for policy, want := range map[string]float64{backend.RoundRobin: 1, backend.LeastConnections: 0} {
		if n := c.metric("starling_policy_streams_total", "policy", policy); n != want {
			t.Errorf("%s has placed %v streams, want %v", policy, n, want)
		}
	}
}

// A key's requests go to one backend, wherever in the request the key is.
func TestHashKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key    string
		header func(key string) []string
		path   string
	}{
		{"header:X-User", func(k string) []string { return []string{"x-user", k} }, "/"},
		{"cookie:id", func(k string) []string { return []string{"Cookie", "a=b; id=" + k + "; id2=x"} }, "/"},
		{"query:id", func(string) []string { return nil }, "/?a=b&id=KEY&x"},
	} {
		c := newCrew(t, 4, func(p *proxy.PoolConfig) { p.Policy, p.Placement.HashKey = backend.ConsistentHash, tt.key }, named)
		to := map[string]bool{}
		for i := range 40 {
			key := fmt.Sprintf("user-%d", i)
			var first string
			for range 3 {
				got, err := c.get(strings.ReplaceAll(tt.path, "KEY", key), tt.header(key)...)
				if err != nil {
					t.Fatal(err)
				}
				if first == "" {
					first = got
				}
				if got != first {
					t.Errorf("%s %s: first %s, then %s", tt.key, key, first, got)
				}
			}
			to[first] = true
		}
		if len(to) != 4 {
			t.Errorf("%s: 40 keys went to %d of 4 backends", tt.key, len(to))
		}
	}
	c := newCrew(t, 4, func(p *proxy.PoolConfig) { p.Policy = backend.IPHash }, named)
	first, err := c.get("/")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if got, err := c.get("/"); err != nil || got != first {
			t.Errorf("ip_hash: first %s, then %s, %v", first, got, err)
		}
	}
}

// The events of running streams tell how fast their backends are: one of
// half the pace shows, and so does one that stops.
func TestSpeedsOfStreams(t *testing.T) {
	t.Parallel()
	var frozen atomic.Bool
	c := newCrew(t, 3, nil, func(i int) http.HandlerFunc {
		pace := 10 * time.Millisecond
		if i == 2 {
			pace *= 4
		}
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for {
				select {
				case <-r.Context().Done():
					return
				case <-tick.C:
				}
				if i == 0 && frozen.Load() {
					continue
				}
				if _, err := io.WriteString(w, "data: {\"token\": \"x\"}\n\n"); err != nil {
					return
				}
				w.(http.Flusher).Flush()
			}
		}
	})
	var streams sync.WaitGroup
	defer streams.Wait() // once all are closed
	for range 6 {
		conn, err := net.Dial("tcp", c.server.Addrs()[0])
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		streams.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	}
	list := c.server.Pools()[0].Backends()
	speeds := func() [3]float64 { return [3]float64{list[0].Speed(), list[1].Speed(), list[2].Speed()} }
	eventually(t, patience, func() string {
		if s := speeds(); list[0].Rate() == 0 || s[2] > .5*min(s[0], s[1]) {
			return fmt.Sprintf("speeds %v, a stream alone gets %v events a second; the third is four times slower", s, list[0].Rate())
		}
		return ""
	})
	frozen.Store(true)
	eventually(t, patience, func() string {
		if s := speeds(); s[0] > .2*s[1] {
			return fmt.Sprintf("speeds %v; the first is frozen", s)
		}
		return ""
	})
}
