package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/llm"
	"github.com/starling-lb/starling/testcluster/load"
)

const secret = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"

// drive starts a cluster under load and one node that wants a token, and looks at
// both.
func drive(ctx context.Context, program, shots string, t *table) (err error) {
	c, err := testcluster.Start(ctx, testcluster.Options{Nodes: 3, Backends: 3, Backend: testcluster.DemoBackend(), Config: testcluster.DemoConfig})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(c)) }()
	if err := c.AwaitSessions(ctx, 30*time.Second); err != nil {
		return err
	}
	traffic, err := load.New(load.Options{URL: c.Node(0).URL(), More: []string{c.Node(1).URL(), c.Node(2).URL()}, Sessions: 40})
	if err != nil {
		return err
	}
	flowing, end := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() { defer close(over); traffic.Run(flowing) }()
	defer func() { end(); <-over }()

	var listens atomic.Pointer[page]
	browser, err := open(ctx, program, func(m message) {
		if p := listens.Load(); p != nil && m.Session == p.session {
			p.hear(m)
		}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, browser.close()) }()
	p, err := newPage(ctx, browser)
	if err != nil {
		return err
	}
	listens.Store(p)
	look := &looker{ctx: ctx, t: t, p: p, c: c, shots: shots}
	if err := look.everything(); err != nil {
		return err
	}
	closed, err := guarded(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(closed)) }()
	if p, err = newPage(ctx, browser); err != nil {
		return err
	}
	listens.Store(p)
	return (&looker{ctx: ctx, t: t, p: p, c: closed, shots: shots}).token()
}

// guarded is a node whose admin API wants a token.
func guarded(ctx context.Context) (*testcluster.Cluster, error) {
	dir, err := os.MkdirTemp("", "starling-token-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		return nil, err
	}
	return testcluster.Start(ctx, testcluster.Options{Backends: 1, Backend: llm.Options{}, Config: func(c *node.Config) { c.Admin.TokenFile = file }})
}

// turns takes turns of a session until one is answered.
func turns(ctx context.Context, node, key string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return insist(ctx, func() error { return turn(ctx, node, key) })
}

func turn(ctx context.Context, node, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, node+"/v1/models", nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Session-ID", key)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the turn was answered %s", answer.Status)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

func stop(c *testcluster.Cluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.Stop(ctx)
}

// backend is what a node says of one.
func backend(n *testcluster.Node, id string) (api.Backend, error) {
	for _, b := range n.Backends().Backends {
		if b.ID == id {
			return b, nil
		}
	}
	return api.Backend{}, fmt.Errorf("%s knows no backend %s", n.Status().Node.Name, id)
}
