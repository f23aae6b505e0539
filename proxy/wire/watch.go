package wire

import (
	"sync"
	"time"
)

// ticket names a watched connection: the slot in the low half, the slot's
// generation in the high one, so that an event that was under way when a
// connection closed does not hit the next that gets its descriptor. 0 is none.
type ticket uint64

// watched is told that its peer has closed.
type watched interface{ left() }

// breaks is told before that the peer's close is a reset. A FIN and a reset may
// come one after the other; so may what is told.
type breaks interface{ broke() }

// listens is told when bytes come, where Watcher.hear asked for it. It must not
// block.
type listens interface{ arrived() }

// slots is who is watched.
type slots struct {
	mu   sync.Mutex
	all  []slot
	free []uint32
	late []latecomer
}

// latecomer is a connection that is watched from the next round on.
type latecomer struct {
	ticket ticket
	fd     int32
}

type slot struct {
	generation uint32
	who        watched
	relay      *Relay // what goes on by the events of this connection; nil: none
}

// enroll has the watcher tell who when the peer closes, which makes waiting by
// edges sound; both or none.
func (e *End) enroll(w *Watcher, who watched) {
	if w == nil {
		return
	}
	e.watcher = w
	e.own = edgeFD(e.nc)
	e.byEdges = e.own >= 0 // before: who may be told at once
	if e.ticket = w.add(e.nc, who); e.ticket == 0 {
		e.byEdges = false
	}
}

func (s *slots) put(c watched) ticket {
	s.mu.Lock()
	defer s.mu.Unlock()
	var i uint32
	if n := len(s.free); n > 0 {
		i = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		i = uint32(len(s.all))
		s.all = append(s.all, slot{})
	}
	s.all[i].generation++
	s.all[i].who = c
	return ticket(s.all[i].generation)<<32 | ticket(i)
}

// take finds who is meant by a ticket; the zero slot where nobody is any more.
func (s *slots) take(t ticket) slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := int(uint32(t)); i < len(s.all) && s.all[i].generation == uint32(t>>32) {
		return s.all[i]
	}
	return slot{}
}

// hand sets what goes on by the events of a connection, and returns what did.
func (s *slots) hand(t ticket, r *Relay) *Relay {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.all[uint32(t)].relay
	s.all[uint32(t)].relay = r
	return before
}

// silent are the relays that moved nothing since their time.
func (s *slots) silent(now time.Time) (list []*Relay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if r := s.all[i].relay; r != nil && r.ReadIdle > 0 && now.Sub(r.moved) > r.ReadIdle {
			list = append(list, r)
		}
	}
	return list
}

func (s *slots) drop(t ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := uint32(t)
	s.all[i].who = nil
	s.all[i].generation++
	s.free = append(s.free, i)
}
