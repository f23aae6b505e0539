package proxy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// Phase is how far a stream has come.
type Phase string

// The phases of a stream, in their order.
const (
	Placing    Phase = "placing"    // a backend is being chosen
	Queued     Phase = "queued"     // all backends are full
	Connecting Phase = "connecting" // to the backend
	Waiting    Phase = "waiting"    // for the head of the answer
	Streaming  Phase = "streaming"  // the answer
	Tunnelling Phase = "tunnelling" // after a change of protocol
)

// Stream is one request and its answer. It is counted at a backend from the
// pick on, and settles once.
type Stream struct {
	client   *client
	pool     *pool
	lease    backend.Lease
	tried    []*backend.Backend
	attempts int           // the first counted
	breaks   int           // of them, those that a backend broke off
	retrying bool          // a retry is taken out of the pool's budget
	answers  bool          // a byte of an answer came
	begun    bool          // part of the body is gone to a backend
	uploaded chan struct{} // closed when the goroutine that sends the body has ended; nil: none
	upErr    error         // how it ended
	total    *time.Timer
	headIn   time.Duration // from the request's head to the answer's; 0: it did not come
	sentAt   atomic.Int64  // when the goroutine that sends the body had sent it all, in ns since 1970; 0: not yet, or there is none

	connecting time.Duration // spent in connects
	queued     time.Duration // spent waiting for a place

	continued bool   // the client was told to send its body
	renewed   bool   // a kept connection had been closed, and the request went out again on a new one
	keyless   bool   // the pool has sessions, and the request names none
	policy    string // that chose the backend, where two are measured side by side

	read atomic.Bool  // the whole body was read from the client
	in   atomic.Int64 // bytes to the backend
	out  atomic.Int64 // bytes to the client

	mu       sync.Mutex // guards what follows, which others read or set
	live     bool
	id       uint64
	started  time.Time
	phase    Phase
	target   string // backend's id
	visit    *visit // nil: the request names no session
	poolName string
	answered bool        // the head of the answer went out: nothing can be added to it
	cut      *failure    // why the stream was given up
	head     *time.Timer // until when the head of the answer may come, once the whole request is sent
	cancel   context.CancelFunc
	link     *wire.Link
	framed   bool      // a WebSocket: it can be ended between two frames
	partBy   time.Time // when that has to be done; zero: it goes on
}

// begin starts the stream of a new request.
func (s *Stream) begin() {
	s.pool, s.tried, s.begun, s.uploaded, s.upErr = nil, s.tried[:0], false, nil, nil
	s.attempts, s.breaks, s.answers = 0, 0, false
	s.headIn, s.connecting, s.queued = 0, 0, 0
	s.continued, s.renewed, s.keyless, s.policy = false, false, false, ""
	s.read.Store(false)
	s.sentAt.Store(0)
	s.in.Store(0)
	s.out.Store(0)
	server := s.client.server
	server.running.Add(1)
	s.mu.Lock()
	s.live, s.id, s.started, s.phase = true, server.nextID.Add(1), time.Now(), Placing
	s.target, s.visit, s.poolName, s.answered, s.cut, s.cancel, s.link = "", nil, "", false, nil, nil, nil
	s.framed, s.partBy = false, time.Time{}
	s.mu.Unlock()
}

// enter says which pool the stream belongs to, and sets its total time running.
func (s *Stream) enter(p *pool) {
	s.pool = p
	s.mu.Lock()
	s.poolName = p.Name
	id := s.id
	s.mu.Unlock()
	if total := p.cfg.Timeouts.StreamTotal; total > 0 {
		s.total = time.AfterFunc(total, func() {
			s.abandon(&failure{reason: backend.Deadline, code: backend.CodeTimeout, message: "the stream took longer than it may", timeout: "stream_total", of: id})
		})
	}
}

// giveUp ends the stream from outside: whatever it waits for ends at once. The
// client is told code, if it can still be told; without a code its connection
// is given up too. It tells whether the stream was running.
func (s *Stream) giveUp(why backend.Reason, code backend.Code) bool {
	return s.abandon(&failure{reason: why, code: code, message: "the stream was given up: " + string(why)})
}

// abandon is giveUp for a failure that is told.
func (s *Stream) abandon(f *failure) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.of != 0 && f.of != s.id {
		return false // a timer that was late for its own stream
	}
	if !s.live || s.cut != nil || s.phase == Tunnelling && f.reason == backend.ClientLeft && !s.client.conn.Broken() {
		return false // in a tunnel, a FIN says only that one direction has ended
	}
	if s.answered {
		f.code = ""
	}
	s.cut = f
	if s.framed && f.reason == backend.Drained && s.link != nil {
		s.part()
		return true
	}
	if s.cancel != nil {
		s.cancel()
	}
	if s.link != nil {
		s.link.Interrupt()
	}
	if f.code == "" {
		s.client.conn.Interrupt()
	} else {
		s.client.conn.StopReading()
	}
	return true
}

// hold makes a link the stream's, so that giving up the stream reaches it. It
// fails when the stream was given up meanwhile.
func (s *Stream) hold(l *wire.Link, phase Phase) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link, s.phase, s.cancel = l, phase, nil
	return s.cutError()
}

// cutError is the failure of a stream that was given up; mu is held.
func (s *Stream) cutError() error {
	if s.cut == nil {
		return nil
	}
	return s.cut
}

// letGo takes the link out of the reach of giveUp; nobody touches it after.
func (s *Stream) letGo() *wire.Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.link
	s.link = nil
	return l
}

// settle ends the stream: its count is given back, and it is counted under one
// reason. It returns why the exchange failed, nil where it did not.
func (s *Stream) settle(err error) *failure {
	if s.total != nil {
		s.total.Stop()
		s.total = nil
	}
	s.endUpload()
	s.forget()
	s.client.conn.Unwatch()
	b := s.lease.Backend()
	if l := s.letGo(); l != nil {
		s.pool.drop(b, l)
	}
	if b != nil && b.Standing().State == backend.Draining {
		b.HeldBy(s.id)
	}
	s.lease.Release(time.Now())
	s.endTurn()
	f := failureOf(err)
	s.mu.Lock()
	cut, _ := s.cutError().(*failure)
	s.live, s.link, s.cancel = false, nil, nil
	s.mu.Unlock()
	if f != nil && cut != nil {
		f = cut // what made the rest fail
	}
	if f == nil && cut != nil {
		s.client.close = true // the answer was whole all the same
	}
	reason := backend.Done
	if f != nil {
		reason = f.reason
		if f.timeout != "" {
			s.client.server.metrics.timeout(f.timeout)
		}
		if f.code == "" {
			s.client.close = true
		}
	}
	s.ended(b, reason, f)
	s.client.server.metrics.settled(s, b, reason)
	server := s.client.server
	server.ends.ever[reason].Add(1)
	server.bequest.add(s.end(b, reason))
	if server.Draining() && reason != backend.Shed {
		server.finished.Add(1)
		server.ends.add(reason)
	}
	server.running.Add(-1)
	s.client.conn.ResumeReading()
	return f
}

func (s *Stream) end(b *backend.Backend, why backend.Reason) End {
	if b == nil {
		return End{Pool: s.poolName, Reason: why}
	}
	return End{Pool: s.poolName, Backend: b.ID, Reason: why}
}

// failureOf is the failure in err; nil for nil.
func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	var f *failure
	if !errors.As(err, &f) {
		panic("BUG: a stream ended with " + err.Error())
	}
	return f
}

// StreamInfo is a running stream as others see it.
type StreamInfo struct {
	ID       uint64
	Pool     string
	Backend  string
	Epoch    uint32 // of its session's binding; 0: it has none
	Started  time.Time
	Phase    Phase
	Client   string
	BytesOut int64
}

// info reads the stream from outside; ok is false where none runs.
func (s *Stream) info() (i StreamInfo, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return StreamInfo{
		ID: s.id, Pool: s.poolName, Backend: s.target, Epoch: s.epoch(), Started: s.started, Phase: s.phase,
		Client: s.client.addr, BytesOut: s.out.Load(),
	}, s.live
}
