package proxy

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// open brings the exchange up to the head of a final answer.
func (s *Stream) open() error {
	for {
		s.attempts++
		err := s.attempt()
		s.repay()
		if err == nil || !s.again(err) {
			return err
		}
	}
}

// attempt picks a backend and opens the exchange with it.
func (s *Stream) attempt() error {
	err := s.place()
	if s.attempts > 1 {
		s.pool.between.Add(-1)
	}
	if err == nil {
		err = s.exchange()
	}
	for errors.Is(err, errMoved) {
		if err = s.rejoin(); err == nil {
			err = s.exchange()
		}
	}
	return err
}

// exchange asks the backend where the stream has its place.
func (s *Stream) exchange() error {
	b := s.lease.Backend()
	from, connecting := s.asking(), s.connecting
	err := s.ask(b, false)
	if err != nil && s.stale(err) {
		s.renewed = true
		s.pool.shedding.retries.Inc()
		err = s.ask(b, true)
	}
	if err == nil {
		s.forget()
		s.headed(from, s.connecting-connecting)
		return nil
	}
	if errors.Is(err, errMoved) {
		return err
	}
	if f := failureOf(err); f.blame {
		s.pool.Failed(&s.lease, time.Now(), f.kind(), f.message)
	}
	return err
}

// stale tells whether an exchange failed because the kept connection had been
// closed, and may be repeated on a new one.
func (s *Stream) stale(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.stale && s.rewind()
}

// ask sends the request to b and waits for the head of the answer. The link is
// held on success, and closed otherwise.
func (s *Stream) ask(b *backend.Backend, fresh bool) error {
	s.upErr = nil
	l, err := s.connect(b, fresh)
	if err != nil {
		return err
	}
	err = s.hold(l, Waiting)
	if err == nil {
		err = s.look()
	}
	if errors.Is(err, errMoved) {
		if s.letGo() != nil {
			s.pool.keep(b, l) // nothing was sent
		}
		return err
	}
	if err == nil {
		err = s.send(l, b)
	}
	if err == nil {
		err = s.awaitAnswer(l)
	}
	if err != nil {
		s.endUpload()
		if s.letGo() != nil {
			s.pool.drop(b, l)
		}
	}
	return err
}

// connect takes a kept link, or opens one; fresh wants a new one.
func (s *Stream) connect(b *backend.Backend, fresh bool) (*wire.Link, error) {
	if !fresh {
		if l := s.pool.kept(b); l != nil {
			s.mu.Lock()
			s.target = b.ID
			s.mu.Unlock()
			return l, nil
		}
	}
	ctx, cancel := s.client.dialContext()
	defer cancel()
	s.mu.Lock()
	s.phase, s.cancel, s.target = Connecting, cancel, b.ID
	err := s.cutError()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.client.conn.Watch(!s.client.up.Ended())
	from := time.Now()
	l, err := s.pool.dial(ctx, s.client.server, b)
	s.connecting += time.Since(from)
	s.client.conn.Unwatch()
	if err == nil {
		return l, nil
	}
	s.mu.Lock()
	cut := s.cutError()
	s.mu.Unlock()
	switch {
	case cut != nil:
		return nil, cut
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &failure{code: backend.CodeTimeout, reason: backend.BackendTimeout, message: "connecting took too long", timeout: "connect", elsewhere: true, blame: true, err: err}
	}
	return nil, &failure{code: backend.CodeRefused, reason: backend.BackendRefused, message: "no connection could be made", elsewhere: true, blame: !ownShortage(err), err: err}
}

// ownShortage tells whether it was this process or system that had no
// descriptor left: no fault of the backend's.
func ownShortage(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// address writes the head anew where it says something of the backend, or of the
// session's home there.
func (s *Stream) address(b *backend.Backend) {
	c, name := s.client, ""
	switch {
	case s.pool.cfg.Backend.Host == "backend":
		name = b.Addr.Host
	case s.visit == nil || s.pool.epochHeader == "":
		return
	}
	head := c.appendHead(make([]byte, 0, c.body+64), name)
	c.out = slices.Replace(c.out, 0, c.body, head...)
	c.body = len(head)
}

// atOnce is how much of a request any kernel takes at once, in bytes.
const atOnce = 16 << 10

// send writes the head and what of the body is at hand, and has the rest
// follow.
func (s *Stream) send(l *wire.Link, b *backend.Backend) error {
	c := s.client
	s.address(b)
	s.client.conn.Watch(!c.up.Ended())
	var err error
	if c.up.Ended() && len(c.out) > atOnce && c.req.Upgrade == nil {
		s.pour(l)
	} else {
		err = l.Send(c.out, c.up.Ended(), s.pool.cfg.Timeouts.StreamIdle)
	}
	if err != nil {
		if !l.Reused && !errors.Is(err, wire.ErrIdle) && !errors.Is(err, wire.ErrInterrupted) {
			s.upErr = err
			return nil // an answer may have been sent before the backend closed; the read will tell
		}
		return s.failed(l, err)
	}
	if s.attempts == 1 {
		c.server.metrics.added.Observe((time.Since(s.started) - s.connecting - s.queued - c.bodyWait).Seconds())
	}
	if !c.up.Ended() {
		s.upload(l)
	}
	return nil
}

// awaitAnswer reads heads until the final one; interim ones are passed on.
func (s *Stream) awaitAnswer(l *wire.Link) error {
	c := s.client
	for interim := 0; ; interim++ {
		s.answers = interim > 0
		err := s.readHead(l)
		if unsent := l.Unsent(); unsent != nil {
			s.upErr = unsent // the link is not kept
		}
		switch {
		case err != nil:
			return s.failed(l, err)
		case c.resp.Status == 101 && (c.req.Upgrade == nil || !c.up.Ended() || l.Unsent() != nil):
			return badResponse(errors.New("101 without a request to change protocols"))
		case !c.resp.Interim():
			return nil
		case interim == wire.MaxInterim:
			return badResponse(errors.New("too many interim answers"))
		case c.req.HTTP10, c.resp.Status == 100 && (!c.req.Expect || s.continued):
			continue // HTTP/1.0 knows none, and who did not ask for a 100, or had it, need not see it
		}
		s.continued = s.continued || c.resp.Status == 100
		if err := c.conn.Write(c.resp.AppendAnswer(nil, wire.Answering{}), c.gate.timeouts.WriteIdle); err != nil {
			return sinkFailure(err)
		}
	}
}

// tookNothing is a backend that does not read the request.
func tookNothing(err error) *failure {
	return &failure{code: backend.CodeTimeout, reason: backend.BackendTimeout, message: "the backend took no byte of the request in time", timeout: "stream_idle", blame: true, err: err}
}

// proofWait is how long it may take to learn that a request which may not be
// sent twice never arrived: a round trip, as far as a backend may be away.
const proofWait = 200 * time.Millisecond

// failed says what an error before the head of the answer means.
func (s *Stream) failed(l *wire.Link, err error) error {
	s.mu.Lock()
	cut := s.cutError()
	s.mu.Unlock()
	stale := l.Stale(err)
	switch {
	case cut != nil:
		return cut
	case errors.Is(err, wire.ErrHeadTimeout):
		f := noHead(err)
		f.repeat = !s.answers
		return f
	case errors.Is(err, wire.ErrIdle):
		return tookNothing(err)
	case errors.Is(err, wire.ErrTooLarge), errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrFraming),
		errors.Is(err, wire.ErrCoding), errors.Is(err, wire.ErrVersion):
		return badResponse(err)
	}
	return &failure{
		code: backend.CodeBroke, reason: backend.BackendBroke, message: "the backend ended the connection before its answer", err: err,
		stale: stale && !s.answers && (s.client.req.Idempotent() || l.Unseen(err, proofWait)), blame: !stale, repeat: !s.answers && len(l.Buffered()) == 0,
	}
}
