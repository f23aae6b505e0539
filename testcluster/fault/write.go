package fault

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// lagLimit is how much may be under way in a delayed direction before writers
// wait, as for a full socket buffer.
const lagLimit = 1 << 20

func (c *conn) Write(p []byte) (n int, err error) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	for n < len(p) && err == nil {
		s := c.rule(&c.out)
		m := 0
		if s.Write == (Way{}) && !c.lag.busy() {
			m, err = c.Conn.Write(p[n:])
		} else {
			m, err = c.writePiece(s, p[n:])
		}
		n += m
	}
	if err != nil {
		err = c.failure("write", err)
	}
	return n, err
}

// writePiece moves on by what the rule allows now, which may be nothing: then
// it has waited for a reason to look again.
func (c *conn) writePiece(s *setting, p []byte) (int, error) {
	h, w := &c.out, s.Write
	switch {
	case w.Stall:
		return 0, c.pause(&h.deadline, s, time.Time{}, nil)
	case h.spent(w):
		return 0, os.NewSyscallError("write", syscall.EPIPE)
	case w.Drop:
		return len(p), c.usable(&h.deadline)
	case w.Rate > 0 && time.Now().Before(h.free):
		return 0, c.pause(&h.deadline, s, h.free, nil)
	}
	n, err := c.send(s, p[:h.fit(w, len(p))])
	h.passed += int64(n)
	h.book(w, n)
	if n > 0 && h.spent(w) && !c.lag.then(func() { c.end(w.Reset) }) {
		c.end(w.Reset)
	}
	return n, err
}

// usable is what a write that goes nowhere still has to ask.
func (c *conn) usable(d *deadline) error {
	at, _ := d.watch()
	if !at.IsZero() && !time.Now().Before(at) {
		return os.ErrDeadlineExceeded
	}
	select {
	case <-c.gone:
		return net.ErrClosed
	default:
		return nil
	}
}

func (c *conn) send(s *setting, p []byte) (int, error) {
	if s.Write.Delay <= 0 && !s.Write.Hold && !c.lag.busy() {
		return c.Conn.Write(p)
	}
	if err := c.usable(&c.out.deadline); err != nil {
		return 0, err
	}
	p = p[:min(len(p), lagLimit)]
	full, first, err := c.lag.put(p, time.Now().Add(s.Write.Delay))
	switch {
	case err != nil:
		return 0, err
	case full != nil:
		return 0, c.pause(&c.out.deadline, s, time.Time{}, full)
	case first && !c.net.start(c.lagLoop):
		c.end(true) // nobody will send it
		return 0, net.ErrClosed
	}
	return len(p), nil
}

// start runs a task that Stop waits for; false if Stop began.
func (n *Net) start(task func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.over {
		n.tasks.Go(task)
	}
	return !n.over
}

// lag is what was written and is still on its way.
type lag struct {
	mu      sync.Mutex
	pieces  []piece // running: not all are sent
	bytes   int
	running bool
	ends    []func()      // to do once all are sent
	room    chan struct{} // made by who waits for room, closed when there is some
	err     error         // of a delayed write; the next write tells it
}

type piece struct {
	due  time.Time
	data []byte
}

// put takes a copy of p, unless there is no room: then full is closed when to
// try again. First says that nobody sends yet.
func (l *lag) put(p []byte, due time.Time) (full <-chan struct{}, first bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, false, l.err
	}
	if l.bytes > 0 && l.bytes+len(p) > lagLimit {
		if l.room == nil {
			l.room = make(chan struct{})
		}
		return l.room, false, nil
	}
	if n := len(l.pieces); n > 0 && due.Before(l.pieces[n-1].due) {
		due = l.pieces[n-1].due // a shorter delay overtakes nobody
	}
	l.pieces = append(l.pieces, piece{due, append([]byte(nil), p...)})
	l.bytes += len(p)
	first = !l.running
	l.running = true
	return nil, first, nil
}

func (l *lag) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

// then has do done after the last piece; false if there is none to wait for.
func (l *lag) then(do func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running {
		l.ends = append(l.ends, do)
	}
	return l.running
}

// head is the next piece; after the last one it is nil and the ends are due.
func (l *lag) head() (next *piece, ends []func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pieces) > 0 {
		return &l.pieces[0], nil
	}
	l.running = false
	ends, l.ends = l.ends, nil
	return nil, ends
}

// pop takes the head away; with an error, all.
func (l *lag) pop(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.err, l.pieces, l.bytes = err, nil, 0
	} else {
		l.bytes -= len(l.pieces[0].data)
		l.pieces = l.pieces[1:]
	}
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
}

// lagLoop sends pieces when they are due; it ends when it has sent all.
func (c *conn) lagLoop() {
	for {
		p, ends := c.lag.head()
		if p == nil {
			for _, do := range ends {
				do()
			}
			return
		}
		lost, err := c.travel(p.due)
		if err == nil && !lost {
			_, err = c.Conn.Write(p.data)
		}
		c.lag.pop(err)
	}
}

// travel waits until a piece arrives, or is lost on the way.
func (c *conn) travel(due time.Time) (lost bool, err error) {
	for {
		s := c.link.rule.Load()
		var over <-chan time.Time // never, while stalled
		if !s.Write.Stall && !s.Write.Hold {
			left := time.Until(due)
			if left <= 0 {
				return s.Write.Drop, nil
			}
			over = time.After(left)
		}
		select {
		case <-over:
		case <-s.changed:
		case <-c.dead:
			return true, net.ErrClosed
		case <-c.net.stopped:
			return true, net.ErrClosed
		}
	}
}
