package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/testcluster/llm"
)

func demo() llm.Options { return llm.Options{Speed: 4, Prefill: 4000} }

func slow(times float64) llm.Faults { return llm.Faults{Slow: times} }

func slowHealth(by time.Duration) llm.Faults { return llm.Faults{HealthDelay: by} }

func sessions(p *proxy.PoolConfig) {
	sticky := proxy.DefaultSession()
	p.Sticky = &sticky
}

// talking says what clients do, one request after the other.
type talking struct {
	prompt, answer int // tokens
	session        bool
	fresh          bool // another session with every request
	think          time.Duration
}

// clients has so many clients talk to the first node, until they are stopped.
func (s *scene) clients(ctx context.Context, n int, t talking) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var talks sync.WaitGroup
	var named atomic.Int64
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}
	for range n {
		talks.Go(func() {
			name := named.Add(1)
			for ctx.Err() == nil {
				if t.fresh {
					name = named.Add(1)
				}
				s.turn(ctx, client, t, name) // what fails was to fail
				select {
				case <-time.After(t.think):
				case <-ctx.Done():
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		talks.Wait()
		client.CloseIdleConnections()
	})
	s.undo = append(s.undo, stop)
	return stop
}

func (s *scene) turn(ctx context.Context, client *http.Client, t talking, session int64) {
	body := fmt.Sprintf(`{"stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"Sing."}]}`, t.answer)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Node(0).URL()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(llm.PromptTokensHeader, fmt.Sprint(t.prompt))
	if t.session {
		req.Header.Set("X-Session-ID", fmt.Sprint("session ", session))
	}
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body) // a break is what some stages are about
	resp.Body.Close()
}

// flip kills the first two backends in turn, the other one coming back each time.
func (s *scene) flip(ctx context.Context, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var flips sync.WaitGroup
	flips.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := 0; ; i++ {
			if s.Backend(1-i%2).Revive() != nil || s.Backend(i%2).Kill() != nil {
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		flips.Wait()
	})
	s.undo = append(s.undo, stop)
	return stop
}

// connect opens connections on which nothing is sent.
func (s *scene) connect(ctx context.Context, n int) (closeAll func(), err error) {
	var open []net.Conn
	closeAll = func() {
		for _, c := range open {
			c.Close()
		}
	}
	s.undo = append(s.undo, closeAll)
	for range n {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", s.Node(0).ProxyAddrs()[0])
		if err != nil {
			return nil, err
		}
		open = append(open, c)
	}
	return closeAll, nil
}

// led waits until every shard has a leader.
func (s *scene) led(ctx context.Context) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		led := true
		for _, shard := range s.Node(0).Shards(ctx).Shards {
			led = led && shard.Leader != ""
		}
		if led && len(s.Node(0).Shards(ctx).Shards) > 1 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("the shards have no leaders")
		}
	}
}

// settled waits until the first node has told of all its provisional choices.
func (s *scene) settled(ctx context.Context) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	f := newFilm(func(string) bool { return false }, nil)
	for {
		if err := f.scrape(ctx, "n1", s.Node(0).AdminURL()); err != nil {
			return err
		}
		if strings.Contains(f.last["n1"], "\nstarling_provisional_bindings 0\n") {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("choices stay provisional")
		}
	}
}

// fromFile starts one node from a configuration file.
func fromFile(ctx context.Context) (*scene, error) {
	dir, err := os.MkdirTemp("", "alerts-")
	if err != nil {
		return nil, err
	}
	s := &scene{notes: map[string]any{}, undo: []func(){func() { os.RemoveAll(dir) }}}
	path := filepath.Join(dir, "starling.yaml")
	write := func(more string) error {
		text := fmt.Sprintf("node: {name: n1, data_dir: %s/data}\nreload: {watch: false}\nadmin: {address: 127.0.0.1:0}\nlisteners: [{address: 127.0.0.1:0, routes: [{pool: p}]}]\n", dir)
		if more == "" {
			more = "pools: {p: {backends: [http://127.0.0.1:1], health: {enabled: false}}}\n"
		}
		return os.WriteFile(path, []byte(text+more), 0o600)
	}
	if err := write(""); err != nil {
		s.end()
		return nil, err
	}
	cfg, err := node.Load(path)
	if err != nil {
		s.end()
		return nil, err
	}
	n, err := node.New(cfg, node.Options{File: path})
	if err == nil {
		err = n.Start(ctx)
	}
	if err != nil {
		s.end()
		return nil, err
	}
	s.undo = append(s.undo, func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = n.Stop(now) // nothing runs on it
	})
	s.notes["write"], s.notes["node"] = write, n
	s.nodes = func() map[string]string { return map[string]string{"n1": "http://" + n.AdminAddr()} }
	return s, nil
}
