package proxy

import (
	"errors"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// continueWait is how long a client that asked for leave to send its body
// waits for the backend's word. Backends that know no 100 never give it.
const continueWait = time.Second

// goAhead tells a client that asked, once, to send its body (RFC 9110, section
// 10.1.1). One that is gone shows where its body is read.
func (s *Stream) goAhead() {
	c := s.client
	if !c.req.Expect || s.continued {
		return
	}
	s.continued = true
	_ = c.conn.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n"), c.gate.timeouts.WriteIdle)
}

// readHead reads the next head of the answer.
func (s *Stream) readHead(l *wire.Link) error {
	c := s.client
	wait, limit := s.pool.cfg.Timeouts.ResponseHeader, int(s.pool.cfg.Limits.MaxResponseHeader)
	if c.req.Expect && !s.continued && s.in.Load() == 0 && (wait == 0 || wait > continueWait) {
		err := l.ReadResponse(&c.resp, c.req.IsHead(), continueWait, limit)
		if !errors.Is(err, wire.ErrHeadTimeout) {
			return err
		}
		if s.in.Load() == 0 { // else the client did not wait
			s.goAhead()
		}
	}
	if s.uploaded != nil && (!s.begun || !s.read.Load() && (!c.req.Expect || s.in.Load() > 0)) {
		wait = 0 // it counts from the request's last byte: see expectHead; before the first, a word on it is awaited
	}
	return l.ReadResponse(&c.resp, c.req.IsHead(), wait, limit)
}

// expectHead sets the time running in which the head of the answer has to come,
// once the goroutine that sends the body has sent all of it.
func (s *Stream) expectHead() {
	wait := s.pool.cfg.Timeouts.ResponseHeader
	if wait == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live && !s.answered && s.phase == Waiting {
		id := s.id
		s.head = time.AfterFunc(wait, func() { s.headLate(id) })
	}
}

func (s *Stream) headLate(id uint64) {
	s.mu.Lock()
	late := s.head != nil && !s.answered
	s.mu.Unlock()
	if late {
		f := noHead(nil)
		f.of = id
		s.abandon(f)
	}
}

// headCame undoes expectHead.
func (s *Stream) headCame() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head != nil {
		s.head.Stop()
		s.head = nil
	}
}

// noHead is a backend that did not begin its answer in time.
func noHead(err error) *failure {
	return &failure{code: backend.CodeTimeout, reason: backend.BackendTimeout, message: "no answer in time", timeout: "response_header", blame: true, err: err}
}

// lastHop answers a request that may go no further (RFC 9110, section 7.6.2).
// An OPTIONS learns that somebody is here. A TRACE would learn what others
// have added on its way, credentials for the next hop among it: it is refused.
func (c *client) lastHop() error {
	if string(c.req.Method) == "TRACE" {
		return &failure{code: backend.BadRequest, reason: backend.Refused, message: "a TRACE is not answered here; send it with a higher Max-Forwards, or none"}
	}
	c.close = c.close || !c.bodyRead()
	if err := c.conn.Write(c.answer("200 OK", "text/plain; charset=utf-8", "", ""), c.gate.timeouts.WriteIdle); err != nil {
		return sinkFailure(err)
	}
	c.resp.Status = 200
	c.stream.out.Store(int64(len(c.out)))
	return nil
}
