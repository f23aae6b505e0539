package transport

import (
	"errors"
	"net"
	"os"
	"sync"
)

// conn is one connection after its hello, and the sets it must be closed with.
type conn struct {
	net.Conn
	t       *Transport
	node    string // the peer
	address string // where it was dialed; "" if it was accepted
	crowds  []*crowd
	close   sync.Once
}

func (c *conn) Close() (err error) {
	c.close.Do(func() {
		err = c.Conn.Close()
		for _, in := range c.crowds {
			in.remove(c)
		}
	})
	return err
}

// Read notices the peer's end: whoever ends takes all its connections along,
// which is the first that others hear of it.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
		c.t.gone.suspect(c.node)
	}
	return n, err
}

// crowd is connections that end together.
type crowd struct {
	mu     sync.Mutex
	conns  map[*conn]struct{}
	limit  int // 0: none
	closed bool
}

// add fails where the crowd is closed or full.
func (s *crowd) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.limit > 0 && len(s.conns) >= s.limit {
		return false
	}
	if s.conns == nil {
		s.conns = make(map[*conn]struct{})
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *crowd) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// pick returns those that which tells.
func (s *crowd) pick(which func(*conn) bool) (found []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if which(c) {
			found = append(found, c)
		}
	}
	return found
}

// end closes all, and whatever comes later.
func (s *crowd) end() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, c := range s.pick(func(*conn) bool { return true }) {
		_ = c.Close()
	}
}
