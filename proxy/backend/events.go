package backend

import (
	"context"
	"sync"
	"time"
)

// Event is a change of a backend's state, or of a whole pool's: then Backend is
// empty, and Panic says whether a panic began or ended. Without a pool it is of the
// node's configuration.
type Event struct {
	At       time.Time
	Pool     string
	Backend  string
	From, To State // equal where an ejection went on, or a drain was over
	Panic    bool
	Reason   string
}

// tell hands an event to whom it may concern; mu is held.
func (p *Pool) tell(e Event) {
	if p.hooks.Told != nil {
		p.hooks.Told(e)
	}
}

// maxUnread bounds the events that wait for one subscriber.
const maxUnread = 256

// Events passes events on to those who subscribed. Whoever publishes never
// waits: a subscriber that is slow loses the oldest, and is told how many. The
// zero Events is ready.
type Events struct {
	mu   sync.Mutex
	subs map[*Subscription]struct{}
}

// Subscription is one reader's queue of events. One goroutine reads it.
type Subscription struct {
	events *Events
	ready  chan struct{} // holds a token while unread is not empty

	unread []Event // guarded by events.mu, as what follows
	lost   int
}

// Subscribe begins a subscription, which its owner closes. It sees the events
// that are published from now on.
func (e *Events) Subscribe() *Subscription {
	s := &Subscription{events: e, ready: make(chan struct{}, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.subs == nil {
		e.subs = map[*Subscription]struct{}{}
	}
	e.subs[s] = struct{}{}
	return s
}

// Publish hands an event to every subscription.
func (e *Events) Publish(v Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.subs {
		if len(s.unread) == maxUnread {
			s.unread = append(s.unread[:0], s.unread[1:]...)
			s.lost++
		}
		s.unread = append(s.unread, v)
		select {
		case s.ready <- struct{}{}:
		default:
		}
	}
}

// Next waits for the next events, oldest first, and tells how many were lost
// before them. It fails when ctx ends.
func (s *Subscription) Next(ctx context.Context) (list []Event, lost int, err error) {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	list, lost = s.unread, s.lost
	s.unread, s.lost = nil, 0
	return list, lost, nil
}

// Close ends the subscription; a second call does nothing.
func (s *Subscription) Close() {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	delete(s.events.subs, s)
}
