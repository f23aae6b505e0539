package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Slot is one replica's log and votes. All methods may be called at once, but
// as raft does it: one goroutine appends.
type Slot struct {
	store *Store
	lane  *lane
	gone  chan struct{} // closed by Close
}

var (
	_ raft.LogStore          = (*Slot)(nil)
	_ raft.StableStore       = (*Slot)(nil)
	_ raft.MonotonicLogStore = (*Slot)(nil)
)

// Close gives the slot back: parked calls end with their goroutine, waiting
// appends return ErrClosed, what has not begun is not written. Idempotent. Open
// refuses the key while a write that had begun is still at the disk.
func (s *Slot) Close() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	if s.lane.holder == s {
		s.lane.holder = nil
		close(s.gone)
	}
}

func (s *Slot) isClosed() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// IsMonotonic makes raft remove the old log once it has installed a snapshot.
func (s *Slot) IsMonotonic() bool { return true }

// FirstIndex is 0 if the log is empty.
func (s *Slot) FirstIndex() (uint64, error) {
	first, _ := s.lane.span()
	return first, nil
}

// LastIndex is 0 if the log is empty.
func (s *Slot) LastIndex() (uint64, error) {
	_, last := s.lane.span()
	return last, nil
}

// Pending says for how long the oldest write that raft waits for has been
// waiting; 0 if there is none. Once the store has failed it counts from then,
// for ever.
func (s *Slot) Pending() time.Duration {
	now := time.Now()
	return max(s.lane.age(now), s.store.failedFor(now))
}

// GetLog parks when the entry cannot be read: see the package.
func (s *Slot) GetLog(index uint64, entry *raft.Log) error {
	err := s.read(index, entry)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrLogNotFound) && s.store.Failed() == nil:
		return raft.ErrLogNotFound
	case errors.Is(err, raft.ErrLogNotFound): // raft may count on an append that was not done
	case !s.isClosed():
		_ = s.store.fail(err)
	}
	s.park()
	return err
}

// read returns raft.ErrLogNotFound, as it is, for an index outside the log.
func (s *Slot) read(index uint64, entry *raft.Log) error {
	if first, last := s.lane.span(); index < first || index > last || last == 0 {
		return raft.ErrLogNotFound
	}
	at := place(s.lane.slot, index)
	err := s.store.read(at, entry)
	if first, last := s.lane.span(); errors.Is(err, raft.ErrLogNotFound) && (index < first || index > last) {
		return raft.ErrLogNotFound // removed while we looked
	}
	switch {
	case errors.Is(err, raft.ErrLogNotFound):
		return &HoleError{Key: s.lane.key, Missing: index}
	case err != nil:
		return fmt.Errorf("read of entry %d of replica %s: %w", index, s.lane.key, err)
	}
	return nil
}

// Each calls f for the entries of the log in order: for hints before raft runs.
// Unlike GetLog it returns what is wrong.
func (s *Slot) Each(f func(*raft.Log) error) error {
	first, last := s.lane.span()
	for i := first; i <= last && i != 0; i++ {
		var entry raft.Log
		if err := s.read(i, &entry); err != nil {
			return err
		}
		if err := f(&entry); err != nil {
			return err
		}
	}
	return nil
}

// Align makes the log follow on the newest snapshot (0: none); to be called
// before raft starts. A log that ends before the snapshot is removed: raft was
// about to, when it was interrupted, and would be stuck between the two.
func (s *Slot) Align(snapshot uint64) error {
	first, last := s.lane.span()
	switch {
	case last == 0:
		return nil
	case last < snapshot:
		return s.DeleteRange(first, last)
	case first > snapshot+1:
		return &HoleError{Key: s.lane.key, Missing: snapshot + 1}
	}
	return nil
}

// StoreLog is StoreLogs of one.
func (s *Slot) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

// StoreLogs returns once the entries are on the disk. It returns an error where
// others park: a leader steps down on it at once.
func (s *Slot) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	for i, e := range entries {
		if e.Index == 0 || e.Index >= reserved || e.Index != entries[0].Index+uint64(i) {
			return fmt.Errorf("append to the log of replica %s: entry %d at position %d after %d; nothing was written", s.lane.key, e.Index, i, entries[0].Index)
		}
	}
	o := newOp(s.lane, s, put)
	o.append(entries)
	return s.do(o)
}

// DeleteRange removes a beginning or an end of the log, or all of it.
func (s *Slot) DeleteRange(min, max uint64) error {
	first, last := s.lane.span()
	if last == 0 || max < first || min > last || min > max {
		return nil
	}
	if min > first && max < last {
		return fmt.Errorf("removal of entries %d to %d from the log of replica %s, which has %d to %d: it would leave a hole", min, max, s.lane.key, first, last)
	}
	o := newOp(s.lane, s, cut)
	o.min, o.max, o.fromTop = min, max, max >= last
	return s.do(o)
}

// StageCommit has the index written with the next write of this slot: what is
// committed needs no fsync of its own.
func (s *Slot) StageCommit(index uint64) {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	s.lane.staged = max(s.lane.staged, index)
}

// Commit is the commit index that is on the disk; the true one may be higher.
func (s *Slot) Commit() uint64 {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	return s.lane.commit()
}

func (l *lane) commit() uint64 {
	if b := l.kept[keepCommit]; len(b) == 8 {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// Set saves a term or a vote, and parks if it cannot: see the package.
func (s *Slot) Set(key, value []byte) error {
	what, err := keepOf(key)
	if err != nil {
		return err
	}
	o := newOp(s.lane, s, put)
	o.keep(what, append([]byte{}, value...))
	if err := s.do(o); err != nil {
		s.park()
	}
	return nil
}

// SetUint64 is Set of eight bytes.
func (s *Slot) SetUint64(key []byte, value uint64) error { return s.Set(key, encodeUint(value)) }

// Get answers from memory. What was never set is an error with the text "not found".
func (s *Slot) Get(key []byte) ([]byte, error) {
	what, err := keepOf(key)
	if err != nil {
		return nil, errNotFound
	}
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	if v := s.lane.kept[what]; v != nil {
		return slices.Clone(v), nil
	}
	return nil, errNotFound
}

// GetUint64 is Get of what SetUint64 has set.
func (s *Slot) GetUint64(key []byte) (uint64, error) {
	v, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("value %q of replica %s has %d bytes, want 8", key, s.lane.key, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

func encodeUint(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }

// do queues the op and waits for it, or for the end of the slot; then it may
// still be done or not.
func (s *Slot) do(o *op) error {
	if s.isClosed() {
		return ErrClosed
	}
	if err := s.store.submit(o); err != nil {
		return err
	}
	select {
	case err := <-o.done:
		return err
	case <-s.gone:
		return ErrClosed
	}
}

// park never returns: it waits for Close, and ends the goroutine.
func (s *Slot) park() {
	s.store.parked.Add(1)
	<-s.gone
	runtime.Goexit()
}
