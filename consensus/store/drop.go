package store

import (
	"errors"
	"fmt"
)

// Keys lists the replicas that the file has data of, in no order.
func (s *Store) Keys() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]Key, 0, len(s.lanes))
	for k := range s.lanes {
		keys = append(keys, k)
	}
	return keys
}

// Open hands out the slot of a replica, a new and empty one if the file has
// none. Who gets it closes it.
func (s *Store) Open(key Key) (*Slot, error) {
	l, fresh, err := s.lane(key)
	if err != nil {
		return nil, err
	}
	if fresh {
		// The slot must be known as this replica's before anything is in it.
		if err := s.rename(l, false); err != nil {
			s.forget(l)
			return nil, fmt.Errorf("open replica %s: %w", key, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.missing != 0:
		return nil, &HoleError{Key: key, Missing: l.missing}
	case l.holder != nil, l.leaving, len(l.pending) > 0:
		return nil, fmt.Errorf("open replica %s: %w", key, ErrInUse)
	}
	l.holder = &Slot{store: s, lane: l, gone: make(chan struct{})}
	return l.holder, nil
}

// lane finds the replica's lane or takes the lowest free number for it.
func (s *Store) lane(key Key) (l *lane, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return nil, false, ErrClosed
	}
	if s.failure != nil {
		return nil, false, s.failure
	}
	if l = s.lanes[key]; l != nil {
		return l, false, nil
	}
	for n := formatSlot + 1; n <= maxSlot; n++ {
		if slot := uint16(n); s.slots[slot] == nil {
			l = &lane{slot: slot, key: key}
			s.lanes[key], s.slots[slot] = l, l
			return l, true, nil
		}
	}
	return nil, false, fmt.Errorf("open replica %s: all %d slots of the store are taken; drop old replicas", key, maxSlot)
}

func (s *Store) forget(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lanes, l.key)
	delete(s.slots, l.slot)
}

// Drop removes all data of a replica that nobody has open. Once it has
// returned, or if the node stops before, nobody can open what is left of it.
func (s *Store) Drop(key Key) error {
	s.mu.Lock()
	l := s.lanes[key]
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	l.mu.Lock()
	busy := l.holder != nil || l.leaving || len(l.pending) > 0
	l.leaving = !busy || l.leaving
	l.mu.Unlock()
	if busy {
		return fmt.Errorf("drop replica %s: %w", key, ErrInUse)
	}
	if err := errors.Join(s.rename(l, true), s.wipe(l)); err != nil {
		return fmt.Errorf("drop replica %s: %w", key, err)
	}
	return nil
}

// finishDrops goes on where a Drop was interrupted.
func (s *Store) finishDrops() error {
	var left []*lane
	s.mu.Lock()
	for _, l := range s.lanes {
		if l.leaving {
			left = append(left, l)
		}
	}
	s.mu.Unlock()
	for _, l := range left {
		if err := s.wipe(l); err != nil {
			return fmt.Errorf("drop replica %s: %w", l.key, err)
		}
	}
	return nil
}

// wipe removes the log, then what is kept beside it, the name last of all: then
// the number is free again.
func (s *Store) wipe(l *lane) error {
	first, last := l.span()
	log := newOp(l, nil, cut)
	log.min, log.max, log.fromTop = first, last, true
	if err := s.do(log); err != nil {
		return err
	}
	if err := s.do(newOp(l, nil, erase)); err != nil {
		return err
	}
	s.forget(l)
	return nil
}

func (s *Store) rename(l *lane, leaving bool) error {
	o := newOp(l, nil, put)
	o.keep(keepName, encodeName(l.key, leaving))
	return s.do(o)
}

func (s *Store) do(o *op) error {
	if err := s.submit(o); err != nil {
		return err
	}
	return <-o.done
}
