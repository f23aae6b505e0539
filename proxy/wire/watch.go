package wire

import "sync"

// ticket names a watched connection: the slot in the low half, the slot's
// generation in the high one, so that an event that was under way when a
// connection closed does not hit the next that gets its descriptor. 0 is none.
type ticket uint64

// watched is told, once, that its peer has closed.
type watched interface{ left() }

// slots is who is watched.
type slots struct {
	mu   sync.Mutex
	all  []slot
	free []uint32
}

type slot struct {
	generation uint32
	who        watched
}

// enroll has the watcher tell who when the peer closes, which makes waiting by
// edges sound; both or none.
func (e *End) enroll(w *Watcher, who watched) ticket {
	if w == nil {
		return 0
	}
	e.edge = newEdge(e) // before: who may be told at once
	t := w.add(e.nc, who)
	if t == 0 {
		e.edge = nil
	}
	return t
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

func (s *slots) take(t ticket) watched {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := int(uint32(t)); i < len(s.all) && s.all[i].generation == uint32(t>>32) {
		return s.all[i].who
	}
	return nil
}

func (s *slots) drop(t ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := uint32(t)
	s.all[i].who = nil
	s.all[i].generation++
	s.free = append(s.free, i)
}
