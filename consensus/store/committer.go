package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Limits of one transaction. More: fewer fsyncs under load, and the last in the
// queue waits longer for the first.
const (
	putEntries = 4096
	putBytes   = 4 << 20
	cutChunk   = 512 // entries; a removal lets the appends pass after so many
)

// submit queues an op. The queue is as long as there are callers: each waits.
func (s *Store) submit(o *op) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return ErrClosed
	}
	o.lane.begun(o)
	s.queue = append(s.queue, o)
	s.nudge()
	return nil
}

func (s *Store) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// commitLoop is the only one that writes. It ends once Stop was called and
// nothing is queued, and closes the file.
func (s *Store) commitLoop() {
	var cuts []*op
	for {
		puts, more, stop := s.take()
		cuts = append(cuts, more...)
		if stop {
			break
		}
		s.write(puts)
		if len(cuts) > 0 && s.remove(cuts[0]) {
			cuts = cuts[1:]
		}
		if len(cuts) == 0 {
			<-s.wake
		}
	}
	for _, o := range cuts { // a log that is removed in part is in one piece
		s.settle(o, ErrClosed)
	}
	s.release()
	s.closed <- guard(s.disk.Close)
}

// take gives one transaction's worth of puts, and all removals.
func (s *Store) take() (puts, cuts []*op, stop bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, bytes, n := 0, 0, 0
	for _, o := range s.queue {
		if len(puts) > 0 && (entries+len(o.entries) > putEntries || bytes+o.bytes > putBytes) {
			s.nudge()
			break
		}
		n++
		if o.kind == put {
			puts = append(puts, o)
			entries, bytes = entries+len(o.entries), bytes+o.bytes
		} else {
			cuts = append(cuts, o)
		}
	}
	s.queue = slices.Delete(s.queue, 0, n)
	if !s.running && len(puts) > 0 {
		s.nudge() // Stop's own may be what has brought us here
	}
	return puts, cuts, !s.running && len(puts) == 0
}

// write puts the ops into one transaction and tells their callers.
func (s *Store) write(ops []*op) {
	var entries []*raft.Log
	good := ops[:0]
	for _, o := range ops {
		if err := s.admit(o); err != nil {
			s.settle(o, err)
			continue
		}
		good, entries = append(good, o), append(entries, o.entries...)
	}
	if len(good) == 0 {
		return
	}
	err := guard(func() error { return s.disk.StoreLogs(entries) })
	if err != nil {
		err = s.fail(fmt.Errorf("write of %d entries: %w", len(entries), err))
	}
	for _, o := range good {
		if err == nil {
			o.lane.written(o)
		}
		s.settle(o, err)
	}
}

// admit is the last look at an op before it becomes part of a transaction.
func (s *Store) admit(o *op) error {
	if err := s.Failed(); err != nil {
		return err
	}
	if o.from != nil && o.from.isClosed() {
		return ErrClosed
	}
	if o.kind == put {
		o.lane.mu.Lock()
		staged, known := o.lane.staged, o.lane.commit()
		o.lane.mu.Unlock()
		if staged > known {
			o.keep(keepCommit, encodeUint(staged))
		}
	}
	return o.admit()
}

// remove takes one chunk out, and says whether the op is done with.
func (s *Store) remove(o *op) (done bool) {
	var lo, hi uint64
	err := s.admit(o)
	switch {
	case err != nil:
	case o.kind == erase:
		lo, hi = reserved, reserved<<1-1
	default:
		lo, hi, err = o.lane.narrow(o)
	}
	if err == nil && hi != 0 {
		err = guard(func() error { return s.disk.DeleteRange(place(o.lane.slot, lo), place(o.lane.slot, hi)) })
		if err != nil {
			err = s.fail(fmt.Errorf("removal of entries %d to %d of replica %s: %w", lo, hi, o.lane.key, err))
		}
	}
	if err == nil && hi != 0 && o.kind == cut {
		return false
	}
	s.settle(o, err)
	return true
}

func (s *Store) settle(o *op, err error) {
	o.lane.ended(o)
	o.done <- err
}

// fail marks the store as failed until the node starts anew: what a failed
// write has left behind is not known. It returns what callers get to see.
func (s *Store) fail(cause error) error {
	s.mu.Lock()
	first := s.failure == nil
	if first {
		s.failure, s.failedAt = fmt.Errorf("%w (%s): %w", ErrFailed, s.opts.Path, cause), time.Now()
	}
	err := s.failure
	s.mu.Unlock()
	if first {
		s.opts.Log.Error("the store has failed: every group of this node is out until it restarts; see to the disk", "err", err)
		s.opts.Failed(err)
	}
	return err
}
