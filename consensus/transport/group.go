package transport

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// GroupID names one incarnation of a shard's Raft group.
type GroupID struct{ Shard, Incarnation uint32 }

func (id GroupID) String() string {
	return fmt.Sprintf("shard %d incarnation %d", id.Shard, id.Incarnation)
}

// Group is one Raft group's share of the port: a listener whose address is the
// replica's name, and a dialer that takes names. A name is the node's id, and where
// the node has lost a replica of the shard before, "#" and something that tells the
// two apart: who means the one does not get the other. Close ends its connections
// and dials, too.
type Group struct {
	ID GroupID

	name string

	t        *Transport
	incoming chan *conn
	ctx      context.Context // ends with Close, or with the transport
	close    context.CancelFunc
	conns    crowd
}

var _ net.Listener = (*Group)(nil)

// Group opens a group's share; there is one at a time of each shard.
func (t *Transport) Group(id GroupID, name string) (*Group, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.groups[id.Shard]; g != nil {
		return nil, fmt.Errorf("open %v: %v is open", id, g.ID)
	}
	g := &Group{ID: id, name: name, t: t, incoming: make(chan *conn)}
	g.ctx, g.close = context.WithCancel(t.ctx)
	t.groups[id.Shard] = g
	close(t.opened) // whoever waits for one looks again
	t.opened = make(chan struct{})
	return g, nil
}

func (t *Transport) group(shard uint32) *Group {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.groups[shard]
}

// hand gives an accepted connection to whoever waits in Accept.
func (g *Group) hand(c *conn) {
	if g == nil {
		_ = c.Close() // closed since it was judged
		return
	}
	select {
	case g.incoming <- c:
	case <-g.ctx.Done():
		_ = c.Close()
	}
}

// Accept waits for the next connection of this group.
func (g *Group) Accept() (net.Conn, error) {
	select {
	case c := <-g.incoming:
		return c, nil
	case <-g.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close ends the group's share of the port.
func (g *Group) Close() error {
	g.close()
	g.t.mu.Lock()
	if g.t.groups[g.ID.Shard] == g {
		delete(g.t.groups, g.ID.Shard)
	}
	g.t.mu.Unlock()
	g.conns.end()
	return nil
}

// Addr is the replica's name.
func (g *Group) Addr() net.Addr { return nodeAddr(g.name) }

// special is what a hello says of a name beside the node; "" of most.
func special(name string) string {
	_, text, _ := strings.Cut(name, "#")
	return text
}

// DialNode connects to a replica of the same group, by its name.
func (g *Group) DialNode(name string, timeout time.Duration) (net.Conn, error) {
	node, _, _ := strings.Cut(name, "#")
	ctx, cancel := context.WithTimeout(g.ctx, timeout)
	defer cancel()
	c, err := g.t.dial(ctx, node, hello{kind: kindGroup, group: g.ID, service: special(name)}, &g.conns)
	if err != nil {
		return nil, err // not a nil *conn in an interface
	}
	return c, nil
}

type nodeAddr string

func (a nodeAddr) Network() string { return "node" }
func (a nodeAddr) String() string  { return string(a) }
