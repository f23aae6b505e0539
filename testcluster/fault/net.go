package fault

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// DialFunc opens a connection, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// Net is a network that can be made bad. It holds no goroutine but for writes
// that are delayed.
type Net struct {
	stopped chan struct{}
	tasks   sync.WaitGroup // delayed writes under way

	mu    sync.Mutex // guards what follows, and every link's conns and own
	over  bool       // Stop began
	any   Rule
	links map[string]*link
}

// link is all connections of one label.
type link struct {
	label string
	rule  atomic.Pointer[setting]
	own   bool // has a rule of its own, not that of Any
	dials int  // under way
	conns map[*conn]struct{}
}

// New is a good network.
func New() *Net {
	return &Net{stopped: make(chan struct{}), links: make(map[string]*link)}
}

// Set puts a rule on a label, or on Any: every label without one.
func (n *Net) Set(label string, r Rule) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if label == Any {
		n.any = r
		for _, l := range n.links {
			if !l.own {
				l.set(r)
			}
		}
		return
	}
	l := n.link(label)
	l.own = true
	l.set(r)
}

// Clear takes a label's rule away, so that Any's holds; of Any itself, it makes
// the network good.
func (n *Net) Clear(label string) {
	if label == Any {
		n.Set(Any, Rule{})
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.links[label]; l != nil {
		l.own = false
		l.set(n.any)
		n.tidy(l)
	}
}

// Reset resets the open connections of a label, or of all with Any, and says
// how many there were.
func (n *Net) Reset(label string) int {
	conns := n.find(label)
	for _, c := range conns {
		c.end(true)
	}
	return len(conns)
}

// Open counts connections that their owner has not closed, those that a fault
// ended among them.
func (n *Net) Open(label string) int { return len(n.find(label)) }

// Stop resets what is open, lets dials fail from now on and returns when no
// delayed write is left.
func (n *Net) Stop() {
	n.mu.Lock()
	if !n.over {
		n.over = true
		close(n.stopped)
	}
	n.mu.Unlock()
	n.Reset(Any)
	n.tasks.Wait()
}

func (n *Net) find(label string) []*conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []*conn
	for _, l := range n.links {
		if label == Any || l.label == label {
			for c := range l.conns {
				found = append(found, c)
			}
		}
	}
	return found
}

// link is called with the lock held.
func (n *Net) link(label string) *link {
	l := n.links[label]
	if l == nil {
		l = &link{label: label, conns: make(map[*conn]struct{})}
		l.rule.Store(newSetting(n.any))
		n.links[label] = l
	}
	return l
}

// tidy forgets a link that says nothing; called with the lock held.
func (n *Net) tidy(l *link) {
	if !l.own && l.dials == 0 && len(l.conns) == 0 && n.links[l.label] == l {
		delete(n.links, l.label)
	}
}

func (l *link) set(r Rule) { close(l.rule.Swap(newSetting(r)).changed) }

// Dialer wraps a dialer; without a label each connection's is the address that
// is dialed.
func (n *Net) Dialer(label string, dial DialFunc) DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		name := label
		if name == "" {
			name = addr
		}
		n.mu.Lock()
		l := n.link(name)
		l.dials++
		n.mu.Unlock()
		defer func() {
			n.mu.Lock()
			l.dials--
			n.tidy(l)
			n.mu.Unlock()
		}()
		if err := n.handshake(ctx, l); err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Addr: address{network, addr}, Err: err}
		}
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return n.wrap(name, c)
	}
}

// handshake is what a dial meets before there is a connection.
func (n *Net) handshake(ctx context.Context, l *link) error {
	start := time.Now()
	for {
		s := l.rule.Load()
		if s.Refuse {
			return os.NewSyscallError("connect", syscall.ECONNREFUSED)
		}
		var over <-chan time.Time // never, in the dark
		if !s.dark() {
			left := s.Read.Delay + s.Write.Delay - time.Since(start)
			if left <= 0 {
				return nil
			}
			over = time.After(left)
		}
		select {
		case <-over:
		case <-s.changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-n.stopped:
			return net.ErrClosed
		}
	}
}

func (n *Net) wrap(label string, inner net.Conn) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		inner.Close() // nothing waits for its end
		return nil, net.ErrClosed
	}
	l := n.link(label)
	c := newConn(n, l, inner)
	l.conns[c] = struct{}{}
	return c, nil
}

func (n *Net) drop(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(c.link.conns, c)
	n.tidy(c.link)
}

// Listener wraps a listener; all its connections have the label.
func (n *Net) Listener(label string, l net.Listener) net.Listener {
	return &listener{Listener: l, net: n, label: label}
}

type listener struct {
	net.Listener
	net   *Net
	label string
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.net.refuses(l.label) {
			reset(inner)
			continue
		}
		return l.net.wrap(l.label, inner)
	}
}

func (n *Net) refuses(label string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.links[label]; l != nil {
		return l.rule.Load().Refuse
	}
	return n.any.Refuse
}

// address names what was dialed in an error, before anything resolved it.
type address struct{ network, text string }

func (a address) Network() string { return a.network }
func (a address) String() string  { return a.text }
