package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// dials remembers, per address, a dial that just failed: the many groups and
// services that want the same node share one answer.
type dials struct {
	mu     sync.Mutex
	failed map[string]failure
}

type failure struct {
	err error
	at  time.Time
}

func (d *dials) recent(address string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.failed[address]
	if !ok || time.Since(f.at) > dialRest {
		return nil
	}
	return f.err
}

func (d *dials) note(address string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		delete(d.failed, address)
		return
	}
	if d.failed == nil || len(d.failed) > 1024 { // addresses come and go
		d.failed = make(map[string]failure)
	}
	d.failed[address] = failure{err, time.Now()}
}

// dial connects to a node and says hello. The connection is in the crowds given.
func (t *Transport) dial(ctx context.Context, node string, h hello, into ...*crowd) (*conn, error) {
	address, err := t.find(node)
	if err != nil {
		return nil, fmt.Errorf("where is node %s: %w", node, err)
	}
	if err := t.dials.recent(address); err != nil {
		return nil, fmt.Errorf("dial node %s again so soon: %w", node, err)
	}
	raw, err := t.Dial(ctx, "tcp", address)
	if ctx.Err() == nil || err == nil { // who gave up early says nothing about the node
		t.dials.note(address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("dial node %s: %w", node, err)
	}
	h.min, h.max, h.cluster, h.to, h.from = versionMin, versionMax, t.Cluster(), node, t.Node
	h.at, _ = t.Resolver.Resolve(t.Node) // not known yet: "" says so
	secure, err := t.introduce(ctx, raw, h)
	if err != nil {
		_ = raw.Close()
		if r := (*RefusedError)(nil); errors.As(err, &r) {
			t.refusals.log(t.log, address, node, err)
		}
		return nil, fmt.Errorf("greet node %s at %s: %w", node, address, err)
	}
	c := &conn{Conn: secure, t: t, node: node, address: address}
	for _, s := range append(into, &t.dialed) {
		if !s.add(c) {
			_ = c.Close()
			return nil, net.ErrClosed
		}
		c.crowds = append(c.crowds, s)
	}
	return c, nil
}

// find knows the node itself without asking.
func (t *Transport) find(node string) (string, error) {
	switch {
	case node == t.Node && t.listener == nil:
		return "", errors.New("this node listens nowhere")
	case node == t.Node:
		return t.Addr().String(), nil
	}
	return t.Resolver.Resolve(node)
}

// introduce says hello and hears the reply.
func (t *Transport) introduce(ctx context.Context, raw net.Conn, h hello) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	secure, err := t.keys.client(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", explain(err))
	}
	if err := checkNames(secure, h.to); err != nil {
		return nil, &RefusedError{RefusedCertificate, err.Error()}
	}
	if _, err := secure.Write(h.append(nil)); err != nil {
		return nil, err
	}
	a, err := readReply(secure)
	switch {
	case err != nil:
		return nil, explain(err)
	case a.code != Accepted:
		return nil, &RefusedError{a.code, a.text}
	case !stop():
		return nil, context.Cause(ctx)
	}
	return secure, nil
}

// movedLoop closes connections to where a node is no more: Raft keeps its own
// for as long as they live.
func (t *Transport) movedLoop() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
			t.dropMoved()
		}
	}
}

func (t *Transport) dropMoved() {
	now := make(map[string]string)
	moved := t.dialed.pick(func(c *conn) bool {
		address, asked := now[c.node]
		if !asked {
			address, _ = t.find(c.node) // "" where it is not known: what works stays
			now[c.node] = address
		}
		return address != "" && address != c.address
	})
	for _, c := range moved {
		_ = c.Close()
	}
	if len(moved) > 0 {
		t.log.Info("a peer has a new address; connections to the old one are closed", "peer", moved[0].node, "address", now[moved[0].node], "count", len(moved))
	}
}

// gone finds out whose process has ended. Its connections break all at once, so
// there is one probe per node at a time.
type gone struct {
	t       *Transport
	mu      sync.Mutex
	probing map[string]bool
}

func (g *gone) suspect(node string) {
	if g.t.Gone == nil || node == "" || g.t.isStopping() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.probing[node] {
		return
	}
	if g.probing == nil {
		g.probing = make(map[string]bool)
	}
	g.probing[node] = g.t.start(func() {
		g.probe(node)
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.probing, node)
	})
}

// probe asks the machine itself: only a refused connect proves that nobody
// listens there any more.
func (g *gone) probe(node string) {
	ctx, cancel := context.WithTimeout(g.t.ctx, time.Second)
	defer cancel()
	address, err := g.t.Resolver.Resolve(node)
	if err != nil {
		return
	}
	c, err := g.t.Dial(ctx, "tcp", address)
	if err == nil {
		_ = c.Close()
		return
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		g.t.Gone(node)
	}
}
