package load

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var errCut = errors.New("connection closed before the end of the answer")

// client is one connection of a swarm.
type client struct {
	fd      int
	request []byte // shared
	sent    int
	answer  answer
	body    body
}

// swarm drives many client connections from one thread.
type swarm struct {
	clock   Clock
	target  netip.AddrPort
	ended   func(*client) error // the client's answer is complete and right
	poll    *poller
	clients []*client // by descriptor
	in      []byte
	open    int
	dialed  int
	faults  faults
}

// faults counts what went wrong by kind. One is enough to void a run.
type faults map[string]int

func newSwarm(clock Clock, target netip.AddrPort, ended func(*client) error) (*swarm, error) {
	if !target.Addr().Is4() || !target.Addr().IsLoopback() {
		return nil, fmt.Errorf("target %s: only IPv4 loopback addresses may be loaded", target)
	}
	p, err := newPoller()
	if err != nil {
		return nil, err
	}
	return &swarm{clock: clock, target: target, ended: ended, poll: p, in: make([]byte, 256<<10), faults: faults{}}, nil
}

// dial opens one more connection, which sends request as soon as it can.
func (s *swarm) dial(request []byte, b body) error {
	const sources = 8
	fd, err := dial(s.target, byte(1+s.dialed%sources))
	if err != nil {
		return err
	}
	s.dialed++
	for fd >= len(s.clients) {
		s.clients = append(s.clients, nil)
	}
	s.clients[fd] = &client{fd: fd, request: request, body: b}
	s.open++
	return s.poll.edge(fd)
}

// step serves what is ready, or waits for it until the given time.
func (s *swarm) step(until int64) {
	for _, ev := range s.poll.wait(time.Duration(until - s.clock.now())) {
		c := s.clients[ev.Fd]
		if c == nil {
			continue
		}
		err := s.write(c)
		if err == nil && ev.Events&^uint32(unix.EPOLLOUT) != 0 {
			err = s.read(c, hungUp(ev))
		}
		if err != nil {
			s.faults.add(err)
			s.drop(c)
		}
	}
}

func (s *swarm) write(c *client) error {
	if c.sent == len(c.request) {
		return nil
	}
	n, errno := send(c.fd, c.request[c.sent:])
	if errno != 0 {
		return fmt.Errorf("send a request: %w", errno)
	}
	c.sent += n
	return nil
}

func (s *swarm) read(c *client, hungUp bool) error {
	for c.fd >= 0 {
		n, errno := receive(c.fd, s.in)
		switch {
		case errno == unix.EAGAIN:
			return nil
		case errno != 0:
			return fmt.Errorf("read an answer: %w", errno)
		case n == 0:
			return errCut
		}
		done, err := c.answer.feed(s.in[:n], c.body, s.clock.now())
		if err == nil && done {
			err = s.ended(c)
		}
		if err != nil || n < len(s.in) && !hungUp {
			return err
		}
	}
	return nil
}

// again sends the client's request once more on the same connection.
func (s *swarm) again(c *client) error {
	c.answer.reset()
	c.sent = 0
	return s.write(c)
}

func (s *swarm) drop(c *client) {
	if c.fd < 0 {
		return
	}
	s.clients[c.fd] = nil
	s.open--
	_ = syscall.Close(c.fd)
	c.fd = -1
}

func (s *swarm) close() {
	for _, c := range s.clients {
		if c != nil {
			s.drop(c)
		}
	}
	s.poll.close()
}

// add counts err; kinds are few, but an error may carry the other side's words.
func (f faults) add(err error) {
	const kinds = 16
	kind := err.Error()
	if _, known := f[kind]; !known && len(f) >= kinds {
		kind = "other errors"
	}
	f[kind]++
}

// err is nil if nothing went wrong.
func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(f)) {
		parts = append(parts, fmt.Sprintf("%s (%d times)", kind, f[kind]))
	}
	return errors.New(strings.Join(parts, "; "))
}
