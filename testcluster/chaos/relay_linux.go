package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"

	"github.com/starling-lb/starling/testcluster/fault"
)

const (
	gossipPort = "7946"
	rpcPort    = "7947"
	proxyPort  = "8080"
	adminPort  = "9901"
)

// relays stand between every two nodes. Node i is at 127.A.B.i, and calls others
// from there; it tells them that it is at 127.A.C.i, where its relay is. So a relay
// sees who calls by where from, and unchanged programs can be told what to do. A
// node that is down has no relay: who calls it is refused, as by a closed port.
type relays struct {
	nodes, doors string // "127.A.B." and "127.A.C."
	links        *fault.Links

	mu sync.Mutex
	up map[string]*relay // by host of the node
}

func newRelays() (*relays, error) {
	for range 50 {
		a, b := 1+rand.IntN(250), 2*rand.IntN(120)
		n := &relays{nodes: fmt.Sprintf("127.%d.%d.", a, b), doors: fmt.Sprintf("127.%d.%d.", a, b+1), links: fault.NewLinks(), up: map[string]*relay{}}
		l, err := net.Listen("tcp", n.doors+"1:"+gossipPort)
		if err == nil {
			_ = l.Close() // it carried nothing
			return n, nil
		}
		n.links.Stop()
		if !strings.Contains(err.Error(), "in use") {
			return nil, fmt.Errorf("addresses of the loopback network: %w (%w)", err, ErrLevel)
		}
	}
	return nil, fmt.Errorf("no free addresses of the loopback network: %w", ErrLevel)
}

func (n *relays) ways() ways { return n.links }

func (n *relays) places(i int) (places, error) {
	i = 1 + (i-1)%240 // six homes of each of forty nodes
	host, door := fmt.Sprint(n.nodes, i), fmt.Sprint(n.doors, i)
	return places{
		gossip: net.JoinHostPort(host, gossipPort), rpc: net.JoinHostPort(host, rpcPort),
		proxy: net.JoinHostPort(host, proxyPort), admin: net.JoinHostPort(host, adminPort),
		advertise: door, seed: net.JoinHostPort(door, gossipPort),
	}, nil
}

// relay is what stands before one node.
type relay struct {
	n     *relays
	name  string
	host  string // of the node
	tcp   []net.Listener
	udp   net.PacketConn
	gone  chan struct{} // closed when it is
	tasks sync.WaitGroup

	mu   sync.Mutex
	over bool
	open map[net.Conn]bool
}

func (n *relays) open(m *member) error {
	name, host, door := m.name, hostOf(m.at.gossip), m.at.advertise
	r := &relay{n: n, name: name, host: host, gone: make(chan struct{}), open: map[net.Conn]bool{}}
	var err error
	for _, port := range []string{gossipPort, rpcPort} {
		l, e := net.Listen("tcp", net.JoinHostPort(door, port))
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		r.tcp = append(r.tcp, l)
	}
	if r.udp, _ = net.ListenPacket("udp", net.JoinHostPort(door, gossipPort)); r.udp == nil || err != nil {
		r.close()
		return fmt.Errorf("relay of %s: %w", name, errors.Join(err, ErrLevel))
	}
	for _, at := range []string{host, door} { // also of what it sends, and of what is sent through its relay
		n.links.Name(at, name)
	}
	n.mu.Lock()
	n.up[host] = r
	n.mu.Unlock()
	for i, port := range []string{gossipPort, rpcPort} {
		r.tasks.Go(func() { r.acceptLoop(r.tcp[i], port) })
	}
	r.tasks.Go(r.packetLoop)
	return nil
}

func (n *relays) shut(m *member) {
	host := hostOf(m.at.gossip)
	n.mu.Lock()
	r := n.up[host]
	delete(n.up, host)
	n.mu.Unlock()
	if r != nil {
		r.close()
	}
}

func (n *relays) end() {
	n.mu.Lock()
	all := n.up
	n.up = map[string]*relay{}
	n.mu.Unlock()
	for _, r := range all {
		r.close()
	}
	n.links.Stop()
}

// close resets what is open, as the death of a process does.
func (r *relay) close() {
	close(r.gone)
	for _, l := range r.tcp {
		_ = l.Close()
	}
	if r.udp != nil {
		_ = r.udp.Close()
	}
	r.mu.Lock()
	r.over = true
	for c := range r.open {
		end(c)
	}
	r.mu.Unlock()
	r.tasks.Wait()
}

// end closes with a reset, where that can be.
func end(c net.Conn) {
	inner := c
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		inner = t.NetConn()
	}
	if t, ok := inner.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// hold notes a connection; false: it was closed, for the relay is.
func (r *relay) hold(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		end(c)
		return false
	}
	r.open[c] = true
	return true
}

func (r *relay) drop(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
}

func (r *relay) acceptLoop(l net.Listener, port string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if r.hold(c) {
			r.tasks.Go(func() { r.carry(c, port) })
		}
	}
}

// carry takes a connection on to the node, from whoever called.
func (r *relay) carry(c net.Conn, port string) {
	defer r.drop(c)
	from := r.n.links.Whose(hostOf(c.RemoteAddr().String()))
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(address, port))
	}
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() { // a dial that waits in the dark ends with the relay, or with the caller's patience
		defer close(gone)
		select {
		case <-ctx.Done():
		case <-r.gone:
			cancel()
		}
	}()
	there, err := r.n.links.Dial(from, dial)(ctx, "tcp", r.host)
	cancel()
	<-gone
	if err != nil {
		end(c)
		return
	}
	if !r.hold(there) {
		end(c)
		return
	}
	defer r.drop(there)
	var both sync.WaitGroup
	both.Go(func() { pass(there, c) })
	both.Go(func() { pass(c, there) })
	both.Wait()
	_, _ = c.Close(), there.Close()
}

// pass copies until the end, and hands that on as it was.
func pass(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		end(to)
		end(from)
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// packetLoop takes packets on to the node, through the relay of who sent them, so
// that they come from where that is known to be.
func (r *relay) packetLoop() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := r.udp.ReadFrom(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // an ICMP answer to something sent
		}
		host := hostOf(from.String())
		r.n.mu.Lock()
		source := r.n.up[host]
		r.n.mu.Unlock()
		if source == nil {
			continue // of nobody that is up
		}
		to := &net.UDPAddr{IP: net.ParseIP(r.host), Port: 7946}
		send := func(b []byte) { _, _ = source.udp.WriteTo(b, to) } // lost, as packets may be
		if !r.n.links.Send(source.name, r.name, buf[:n], send) {
			send(buf[:n])
		}
	}
}
