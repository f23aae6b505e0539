package proxy

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

// partTime is what a WebSocket gets when its node's drain is over, to end
// between two frames and to hear why.
const partTime = time.Second

// ends counts how streams ended, by why.
type ends struct {
	ever map[backend.Reason]*atomic.Int64 // since the start; no key comes or goes

	mu sync.Mutex
	by map[backend.Reason]int64 // since the drain began
}

func (e *ends) begin() {
	e.ever = map[backend.Reason]*atomic.Int64{}
	for _, why := range backend.Reasons() {
		e.ever[why] = new(atomic.Int64)
	}
}

// Ended counts the streams that have ended since the start, by why; a reason that
// none ended for is there, too.
func (s *Server) Ended() map[backend.Reason]int64 {
	all := map[backend.Reason]int64{}
	for why, n := range s.ends.ever {
		all[why] = n.Load()
	}
	return all
}

func (e *ends) add(why backend.Reason) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.by == nil {
		e.by = map[backend.Reason]int64{}
	}
	e.by[why]++
}

// Ends counts the streams that ended since the drain began, by why: those that were
// cut are backend.Drained.
func (s *Server) Ends() map[backend.Reason]int64 {
	if by := s.bequest.reasons(); by != nil {
		return by
	}
	s.ends.mu.Lock()
	defer s.ends.mu.Unlock()
	return maps.Clone(s.ends.by)
}

// Report counts what ended since the drain began.
func (s *Server) Report() Report {
	cut, ended := s.cutCount.Load(), s.finished.Load()
	if by := s.bequest.reasons(); by != nil {
		ended = 0
		for _, n := range by {
			ended += n
		}
	}
	return Report{Finished: max(0, ended-cut), Cut: cut}
}

const goingAway = 1001 // RFC 6455 section 7.4.1

// cut ends what still runs when a drain is over, and returns when all of it
// has ended.
func (s *Server) cut() {
	s.stopping.Store(true) // before each: whoever comes later looks at it
	s.each(func(c *client) {
		if c.stream.giveUp(backend.Drained, "") {
			s.cutCount.Add(1)
		}
		if _, parts := c.stream.parting(); !parts {
			c.conn.Interrupt()
		}
	})
	s.cancel()
	ended := make(chan struct{})
	go func() {
		s.tasks.Wait()
		close(ended)
	}()
	moment := time.NewTimer(s.partTime)
	defer moment.Stop()
	select {
	case <-ended:
	case <-moment.C:
		s.each(func(c *client) { c.stream.cutShort() })
		<-ended
	}
}

// part has both directions of a WebSocket look up from their reading, to end
// between two frames; mu is held.
func (s *Stream) part() {
	s.partBy = time.Now().Add(s.client.server.partTime)
	s.link.StopReading()
	s.client.conn.StopReading()
}

// parting tells whether the tunnel is to end between two frames, and by when.
func (s *Stream) parting() (by time.Time, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.partBy, !s.partBy.IsZero()
}

// partFailure is how a stream that parted has ended.
func (s *Stream) partFailure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cutError()
}

// cutShort ends a stream whose last moment is over.
func (s *Stream) cutShort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil {
		s.link.Interrupt()
	}
	s.client.conn.Interrupt()
}

// part ends one direction of a WebSocket: what is missing of the frame under
// way still passes, and then a close frame, unless this direction has had one.
// What else comes from there is dropped, until it ends too. The close frame may wait
// for so long.
func part(r *wire.Relay, by time.Time, wait time.Duration, masked bool) error {
	if err := r.Finish(by); err != nil {
		return err
	}
	if !r.Frames.Closed() {
		if err := r.To.Write(wire.CloseFrame(goingAway, masked), wait); err != nil {
			return err
		}
	}
	if err := r.To.CloseWrite(); err != nil {
		return err
	}
	r.From.Drop(by)
	return nil
}
