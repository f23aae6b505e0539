package consensus

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// network joins the nodes of a town. A road between two of them can be cut: what
// is sent is swallowed and nothing comes, as in a real partition, and a dial does
// not return before its time. Answers on a road can be held, and let go later.
type network struct {
	mu    sync.Mutex
	at    map[string]string
	cut   map[road]bool
	held  map[road]chan struct{} // closed when answers may go on
	came  map[road]int           // answers that were held back, ever
	links map[*link]struct{}
}

// road is one way between two nodes: who dialed, and whom.
type road struct{ from, to string }

func newNetwork() *network {
	return &network{at: make(map[string]string), cut: make(map[road]bool), held: make(map[road]chan struct{}), came: make(map[road]int), links: make(map[*link]struct{})}
}

func (n *network) Resolve(node string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, ok := n.at[node]; ok {
		return at, nil
	}
	return "", errors.New("nobody knows it")
}

func (n *network) set(node, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[node] = address
}

// where is a node's address; the node is there.
func (n *network) where(node string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at[node]
}

func (n *network) who(address string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for node, at := range n.at {
		if at == address {
			return node
		}
	}
	return ""
}

func (n *network) dialer(from string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, kind, address string) (net.Conn, error) {
		r := road{from, n.who(address)}
		if n.isCut(r) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c, err := (&net.Dialer{}).DialContext(ctx, kind, address)
		if err != nil {
			return nil, err
		}
		l := &link{Conn: c, net: n, road: r, closed: make(chan struct{}), moved: make(chan struct{}, 1)}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.links[l] = struct{}{}
		return l, nil
	}
}

func (n *network) isCut(r road) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[r]
}

// part cuts all roads between two groups of nodes, both ways.
func (n *network) part(some, others []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range some {
		for _, b := range others {
			n.cut[road{a, b}], n.cut[road{b, a}] = true, true
		}
	}
}

// close cuts one road, one way.
func (n *network) close(r road) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[r] = true
}

// heal opens all roads. Connections that lost something are broken, as TCP would
// have them be, or make good.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = make(map[road]bool)
	for r, c := range n.held {
		close(c)
		delete(n.held, r)
	}
	for l := range n.links {
		if l.lost {
			_ = l.Conn.Close()
		}
	}
}

// hold keeps back what the other side answers to a node, until release.
func (n *network) hold(r road) (release func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := make(chan struct{})
	n.held[r] = c
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.held[r] == c {
			delete(n.held, r)
			close(c)
		}
	}
}

// link is a dialed connection; the other end needs no wrapping.
type link struct {
	net.Conn
	net  *network
	road road
	lost bool // network.mu guards it

	closed chan struct{}
	moved  chan struct{} // one place: the deadline of reads is another
	once   sync.Once
	end    atomic.Int64 // the deadline of reads, in ns; 0: none
}

func (l *link) SetDeadline(t time.Time) error {
	_ = l.Conn.SetWriteDeadline(t)
	return l.SetReadDeadline(t)
}

func (l *link) SetReadDeadline(t time.Time) error {
	l.end.Store(0)
	if !t.IsZero() {
		l.end.Store(t.UnixNano())
	}
	select {
	case l.moved <- struct{}{}:
	default:
	}
	return l.Conn.SetReadDeadline(t)
}

// wait is until what is held back may go on.
func (l *link) wait(held <-chan struct{}) error {
	for {
		var late <-chan time.Time
		if end := l.end.Load(); end != 0 {
			late = time.After(time.Until(time.Unix(0, end)))
		}
		select {
		case <-held:
			return nil
		case <-l.closed:
			return net.ErrClosed
		case <-late:
			return os.ErrDeadlineExceeded
		case <-l.moved:
		}
	}
}

func (l *link) Read(b []byte) (int, error) {
	for {
		k, err := l.Conn.Read(b)
		l.net.mu.Lock()
		held, cut := l.net.held[l.road], l.net.cut[l.road]
		if cut && held == nil && k > 0 {
			l.lost = true
		}
		if held != nil && k > 0 {
			l.net.came[l.road]++
		}
		l.net.mu.Unlock()
		switch {
		case held != nil && err == nil:
			if err := l.wait(held); err != nil {
				return 0, err
			}
			return k, nil // what had arrived before a cut arrives after it
		case cut && err == nil:
			continue
		}
		return k, err
	}
}

func (l *link) Write(b []byte) (int, error) {
	l.net.mu.Lock()
	cut := l.net.cut[l.road]
	l.lost = l.lost || cut
	l.net.mu.Unlock()
	if cut {
		return len(b), nil
	}
	return l.Conn.Write(b)
}

func (l *link) Close() error {
	l.once.Do(func() { close(l.closed) })
	l.net.mu.Lock()
	delete(l.net.links, l)
	l.net.mu.Unlock()
	return l.Conn.Close()
}

// kept tells whether something is held back on a road.
func (n *network) kept(r road) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.came[r] > 0
}
