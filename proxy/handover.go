package proxy

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// What a server does when another process becomes its node: its sockets stay open
// there, and no connection may get lost in between.

// Socket is an open listener, by the address that the configuration has for it.
type Socket struct {
	Address string
	net.Listener
}

// Sockets are those of the listeners.
func (s *Server) Sockets() (all []Socket) {
	for _, l := range s.now.Load().listeners {
		all = append(all, Socket{l.named, l.socket})
	}
	return all
}

// patient is a listener whose Accept can be made to end without dropping anybody.
type patient interface{ SetDeadline(time.Time) error }

// Pause has no more connections taken in, until Resume or the end; who connects
// waits in the socket. When it returns, every connection that was taken in is served.
// Streams that end from now on are counted for whoever has the sockets later.
func (s *Server) Pause() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.closed {
		return ErrStopped
	}
	for _, l := range s.now.Load().listeners {
		if _, ok := l.socket.(patient); !ok {
			return errors.New("listener " + l.named + ": its socket cannot be made to wait")
		}
	}
	s.paused.Store(true)
	s.bequest.begin()
	for _, l := range s.now.Load().listeners {
		_ = l.socket.(patient).SetDeadline(time.Unix(1, 0)) // it fails where it is closed
	}
	s.accepting.Wait()
	return nil
}

// Resume takes connections in again.
func (s *Server) Resume() {
	s.changing.Lock()
	defer s.changing.Unlock()
	if !s.paused.Swap(false) || s.closed {
		return
	}
	s.bequest.end()
	all := s.now.Load().listeners
	for _, l := range all {
		_ = l.socket.(patient).SetDeadline(time.Time{})
	}
	s.accept(all)
}

// isPause tells whether an Accept ended by Pause.
func (s *Server) isPause(err error) bool {
	return s.paused.Load() && errors.Is(err, os.ErrDeadlineExceeded)
}

// Leave is a Stop that begins when another process has the sockets. No connection
// comes any more. On those that are there requests are served on, and each answer that
// begins from now on is the last on its connection; one that brings nothing for a grace
// after its last answer is closed. Only when ctx ends it goes on as Stop does.
func (s *Server) Leave(ctx context.Context, grace time.Duration) Report {
	s.bequest.begin()
	s.Announce()
	s.closeListeners()
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.connected() > 0 && ctx.Err() == nil {
		select {
		case now := <-tick.C:
			if now.Sub(began) >= grace {
				s.hangUpSilent(now.Add(-grace))
			}
		case <-ctx.Done():
		}
	}
	return s.Stop(ctx)
}

// hangUpSilent ends connections that have waited for a request since then, or longer.
func (s *Server) hangUpSilent(since time.Time) {
	s.each(func(c *client) {
		if at := max(c.born, c.rested.Load()); at <= since.UnixNano() {
			c.hangUp()
		}
	})
}

func (s *Server) connected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients)
}

// End is how a stream ended, and where.
type End struct {
	Pool, Backend string // the backend is empty where none was chosen
	Reason        backend.Reason
}

// bequest counts the streams that end once their sockets are handed over, for
// whoever has them to count on.
type bequest struct {
	on atomic.Bool // they are

	mu sync.Mutex
	by map[End]int64 // nil: as long as they were not
}

func (b *bequest) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by == nil {
		b.by = map[End]int64{}
	}
	b.on.Store(true)
}

// end forgets them: nothing was handed over.
func (b *bequest) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.on.Store(false)
	b.by = nil
}

func (b *bequest) add(e End) {
	if !b.on.Load() { // as all the time but once
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by != nil {
		b.by[e]++
	}
}

// reasons counts them by why; nil where nothing was handed over. Who was turned away
// was no stream.
func (b *bequest) reasons() (by map[backend.Reason]int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by == nil {
		return nil
	}
	by = map[backend.Reason]int64{}
	for e, n := range b.by {
		if e.Reason != backend.Shed {
			by[e.Reason] += n
		}
	}
	return by
}

// Bequest is how streams ended since Pause, or Leave if that came first.
func (s *Server) Bequest() map[End]int64 {
	s.bequest.mu.Lock()
	defer s.bequest.mu.Unlock()
	return maps.Clone(s.bequest.by)
}

// Inherit counts streams that ended with a process before this one, of which the
// pools and backends are those of this one.
func (s *Server) Inherit(e End, n int64) {
	s.metrics.streams.WithLabelValues(e.Pool, e.Backend, string(e.Reason)).Add(float64(n))
	if ever := s.ends.ever[e.Reason]; ever != nil {
		ever.Add(n)
	}
}
