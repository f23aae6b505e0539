package fault

import (
	"errors"
	"net"
	"os"
	"time"
)

// reader is the Read direction: what came but is held back.
type reader struct {
	half
	held []byte
	err  error     // what came after held
	due  time.Time // when held may pass
}

func (c *conn) Read(p []byte) (int, error) {
	r := &c.in
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if c.fault.Load() != nil {
			return 0, c.failure("read", nil)
		}
		s := c.rule(&r.half)
		w := s.Read
		empty := len(r.held) == 0 && r.err == nil
		var err error
		switch {
		case empty && !w.Stall:
			n, passed, err := c.fetch(p, w)
			if passed {
				return n, c.failure("read", err)
			}
		case w.Drop && len(r.held) > 0:
			r.held = r.held[:0]
		case w.Stall || w.Drop:
			err = c.pause(&r.deadline, s, time.Time{}, nil)
		case time.Now().Before(r.due):
			err = c.pause(&r.deadline, s, r.due, nil)
		default:
			return c.take(p, w)
		}
		if err != nil {
			return 0, c.failure("read", err)
		}
	}
}

// readAhead is how much is fetched at least where pieces are delayed, so that
// what came together is late together however little the caller asks for.
const readAhead = 32 << 10

// fetch waits for the next piece; if no fault is against it, it has passed,
// else it is held. The rule may have changed while nothing came.
func (c *conn) fetch(p []byte, w Way) (n int, passed bool, err error) {
	r := &c.in
	buf := p
	if w.Delay > 0 && 0 < len(p) && len(p) < readAhead {
		buf = make([]byte, readAhead)
	}
	n, err = c.Conn.Read(buf[:r.fit(w, len(buf))])
	mine := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed)
	w = c.rule(&r.half).Read
	if mine || n == 0 && err == nil || w == (Way{}) && n <= len(p) {
		return copy(p, buf[:n]), true, err
	}
	r.held, r.err = append(r.held[:0], buf[:n]...), err
	r.due = r.book(w, n)
	if late := time.Now().Add(w.Delay); late.After(r.due) {
		r.due = late
	}
	return 0, false, nil
}

// take passes what is held, up to the cut.
func (c *conn) take(p []byte, w Way) (int, error) {
	r := &c.in
	if len(r.held) == 0 {
		err := r.err
		r.err = nil
		return 0, c.failure("read", err)
	}
	n := len(p)
	if w.CutAfter > 0 {
		n = int(min(int64(n), w.CutAfter-r.passed))
	}
	n = copy(p[:n], r.held)
	r.held = r.held[n:]
	r.passed += int64(n)
	if r.spent(w) {
		c.end(w.Reset)
	}
	return n, nil
}
