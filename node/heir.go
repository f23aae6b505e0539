package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/starling-lb/starling/node/handover"
	"github.com/starling-lb/starling/proxy"
)

// What a process does that becomes a node which another one was.

// take has the process before let go of the node: from here on it is this one's.
func (n *Node) take(ctx context.Context) error {
	if n.opt.Before != nil {
		estate, err := n.opt.Before.Take(ctx)
		if err != nil {
			return fmt.Errorf("take over from the process before: %w", err)
		}
		n.goOnWith(estate)
		n.taken.Store(true)
	}
	n.hostElders()
	return nil
}

const (
	leaseWait = 3 * time.Second // for leases of sessions' shards, before connections are taken in
	elderWait = time.Second     // and for the process before to say what it carries
)

// succeed says that this process serves, and returns when it is the node.
func (n *Node) succeed(ctx context.Context) error {
	if n.opt.Before == nil {
		return nil
	}
	if q := n.quorum.Load(); q != nil && n.sticks() {
		short, cancel := context.WithTimeout(ctx, leaseWait)
		q.Leased(short)
		cancel()
	}
	n.awaitElder(ctx)
	if err := n.opt.Before.Ready(ctx, Version().Version); err != nil {
		return fmt.Errorf("take over from the process before: %w", err)
	}
	return nil
}

// awaitElder waits for the first word of what the process before carries: the first
// pick shall know it.
func (n *Node) awaitElder(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, elderWait)
	defer cancel()
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for n.links.Load().Silent() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// serveOn has connections taken in, and closes sockets that this configuration does
// not want.
func (n *Node) serveOn() {
	if n.begin != nil {
		close(n.begin)
	}
	if left := n.spare.Load().Close(); len(left) > 0 {
		n.log.Warn("sockets were handed in that no listener is configured for; they are closed", "sockets", left)
	}
	n.notify("READY=1", fmt.Sprintf("MAINPID=%d", os.Getpid()))
}

// notify tells a supervisor, if there is one.
func (n *Node) notify(lines ...string) {
	if err := handover.Notify(n.opt.Notify, lines...); err != nil {
		n.log.Warn("the supervisor was not told", "err", err)
	}
}

// notifyReload is what systemd wants to hear before a reload; READY=1 ends it.
func (n *Node) notifyReload() {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		n.notify("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000))
	}
}

// inherited is a listener that takes the sockets which were handed in first.
func (n *Node) inherited(next proxy.Listener) proxy.Listener {
	return func(ctx context.Context, network, address string) (net.Listener, error) {
		if l, ok, err := n.spare.Load().Listen(ctx, network, address); ok {
			return l, err
		}
		return next(ctx, network, address)
	}
}

// sharedDir takes the directory with the lock that the process before shares.
func sharedDir(path string, lock *os.File) (*dataDir, error) {
	mine, err := os.Stat(filepath.Join(path, "lock"))
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w; it cannot be another one than that of the process before", path, err)
	}
	theirs, err := lock.Stat()
	if err != nil {
		return nil, fmt.Errorf("the lock of the process before: %w", err)
	}
	if !os.SameFile(mine, theirs) {
		return nil, fmt.Errorf("data directory %s is another one than that of the process before; that cannot change in an upgrade: stop the node, and start it", path)
	}
	d := &dataDir{path: path, lock: lock}
	if d.id, err = identify(filepath.Join(path, "starling.json")); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", path, err)
	}
	return d, nil
}

// peerSockets are those at which this node hears others.
type peerSockets struct {
	mu   sync.Mutex
	open []peerSocket
}

type peerSocket struct {
	network, address string
	of               any
}

func (p *peerSockets) note(network, address string, of any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, peerSocket{network, address, of})
}

func (p *peerSockets) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = nil
}

func (p *peerSockets) all() []peerSocket {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]peerSocket(nil), p.open...)
}

// listenPeers opens a socket for other nodes, or takes one that was handed in.
func (n *Node) listenPeers(next proxy.Listener) proxy.Listener {
	open := n.inherited(next)
	return func(ctx context.Context, network, address string) (net.Listener, error) {
		l, err := open(ctx, network, address)
		if err == nil {
			n.peers.note(network, address, l)
		}
		return l, err
	}
}

type packetListener func(ctx context.Context, network, address string) (net.PacketConn, error)

func (n *Node) listenPacket(next packetListener) packetListener {
	return func(ctx context.Context, network, address string) (net.PacketConn, error) {
		c, ok, err := n.spare.Load().ListenPacket(ctx, network, address)
		if !ok {
			c, err = next(ctx, network, address)
		}
		if err == nil {
			n.peers.note(network, address, c)
		}
		return c, err
	}
}

// roll registers what is to be there anew when this node becomes itself again.
type roll struct {
	prometheus.Registerer
	mu   sync.Mutex
	here []prometheus.Collector
}

// Register implements prometheus.Registerer.
func (s *roll) Register(c prometheus.Collector) error {
	err := s.Registerer.Register(c)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.here = append(s.here, c)
	}
	return err
}

func (s *roll) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.here {
		s.Unregister(c)
	}
	s.here = nil
}
