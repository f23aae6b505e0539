package testcluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/consensus"
	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/handover"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/testcluster/fault"
)

// Seams are where a node of this process can be hurt.
type Seams struct {
	Links  *fault.Links // to the other nodes; nil: good ones
	Dial   proxy.Dialer // to backends; nil: TCP
	From   string       // host that calls to other nodes come from; empty: any
	Logger *slog.Logger // nil: discards
	Long   int          // entries after which a log is cut, soon; 0: many
	File   string       // that the configuration was read from; empty: there is none

	Before  *handover.Elder  // the process that was the node and hands it over; nil: none
	Program handover.Program // that an upgrade starts; zero: there are none
}

// StartNode brings up a node with a configuration.
func StartNode(ctx context.Context, cfg node.Config, s Seams) (*Node, error) {
	n := &Node{Name: cfg.Node.Name, plug: newPlug(), disk: NewDisk(), clock: &Clock{}}
	if s.From != "" {
		n.plug.from = &net.TCPAddr{IP: net.ParseIP(s.From)}
	}
	o := node.Options{
		Logger: s.Logger, Dial: s.Dial, ListenPeers: n.plug.listen, ListenPacket: n.plug.listenPacket, DialPeers: n.plug.dial,
		Disk: n.disk.May, Now: n.clock.Now, LongLog: s.Long, File: s.File, Before: s.Before, Program: s.Program,
	}
	if s.Links != nil {
		o.DialPeers = proxy.Dialer(s.Links.Dial(n.Name, n.plug.dial))
		o.ListenPacket = func(ctx context.Context, network, address string) (net.PacketConn, error) {
			c, err := n.plug.listenPacket(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return s.Links.Packets(n.Name, c), nil
		}
	}
	var err error
	if n.Node, err = node.New(cfg, o); err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Name, err)
	}
	if err := n.Start(ctx); err != nil {
		return nil, fmt.Errorf("start node %s: %w", n.Name, err)
	}
	if s.Links != nil {
		for _, address := range []string{n.GossipAddr(), n.RPCAddr()} {
			s.Links.Name(address, n.Name)
		}
	}
	return n, nil
}

// Disk is what the node writes what it agrees on to.
func (n *Node) Disk() *Disk { return n.disk }

// Clock is what the node counts leases by.
func (n *Node) Clock() *Clock { return n.clock }

// Kill ends the node as a process ends that dies: its streams break, and no other
// node is told. What it has written stays.
func (n *Node) Kill() {
	n.plug.pull()
	n.disk.Mend() // or its last write could wait for ever
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.Stop(now) // says that streams were cut and that nobody could be told, as it should be
}

// Clock is one that can jump; a new one is right.
type Clock struct{ off atomic.Int64 }

// Now is the time since the machine's start, and what the clock has jumped.
func (c *Clock) Now() time.Duration { return consensus.Now() + time.Duration(c.off.Load()) }

// Jump puts the clock forward, as if the machine had been suspended.
func (c *Clock) Jump(by time.Duration) { c.off.Add(int64(max(by, 0))) }

// ErrDisk is what a disk that fails says.
var ErrDisk = errors.New("input/output error, made for a test")
