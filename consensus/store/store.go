package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

var (
	ErrClosed = errors.New("store: closed; whether the write was done is not known")
	ErrFailed = errors.New("store has failed")
	ErrInUse  = errors.New("store: replica is open, or a write of its last holder is still at the disk; try again")
)

// Options of a Store.
type Options struct {
	Path string // of the file; its directory exists and is locked by the node
	Log  *slog.Logger

	// Failed is called once, when the first write or read has failed: all that
	// is left is to fence the groups and to close their slots. It returns soon.
	Failed func(error)

	// Wrap stands between the store and its file: faults, slow disks. Nil: nothing does.
	Wrap func(Disk) Disk

	// OpenFile opens the file, as os.OpenFile, which nil means.
	OpenFile func(name string, flag int, mode os.FileMode) (*os.File, error)
}

// Store is the one file of a node. See the package.
type Store struct {
	opts   Options
	bolt   *raftboltdb.BoltStore // for its figures
	disk   Disk
	wake   chan struct{} // has room for one
	closed chan error    // what closing the file gave; has room for one
	parked atomic.Int64

	mu       sync.Mutex // guards what follows
	running  bool
	queue    []*op
	failure  error
	failedAt time.Time
	lanes    map[Key]*lane
	slots    map[uint16]*lane
}

// New checks the options.
func New(opts Options) (*Store, error) {
	if opts.Path == "" {
		return nil, errors.New("store: no path")
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Failed == nil {
		opts.Failed = func(error) {}
	}
	if opts.Wrap == nil {
		opts.Wrap = func(d Disk) Disk { return d }
	}
	return &Store{
		opts: opts, wake: make(chan struct{}, 1), closed: make(chan error, 1),
		lanes: map[Key]*lane{}, slots: map[uint16]*lane{},
	}, nil
}

// Start opens the file, made smaller first if it pays, and finds out what is in
// it. A store is started once.
func (s *Store) Start(context.Context) error {
	begin := time.Now()
	var found map[uint16]*extent
	err := guard(func() (err error) {
		if found, err = scan(s.opts.Path); err != nil || len(found) == 0 {
			return err
		}
		before, after, err := compact(s.opts.Path)
		if err != nil {
			s.opts.Log.Warn("the store could not be compacted; it goes on as it is", "err", err)
		} else if after < before {
			s.opts.Log.Info("the store was compacted", "before", before, "after", after)
		}
		return nil
	})
	if err == nil {
		err = guard(s.open)
	}
	if err != nil {
		return fmt.Errorf("store %s: %w; if the file cannot be mended, empty the data directory: the node then joins as a new one", s.opts.Path, err)
	}
	if err := guard(func() error { return s.load(found) }); err != nil {
		err = errors.Join(fmt.Errorf("store %s: %w", s.opts.Path, err), guard(s.disk.Close))
		s.disk = nil
		return err
	}
	s.running = true
	go s.commitLoop()
	if err := s.finishDrops(); err != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return errors.Join(err, s.Stop(ctx))
	}
	s.opts.Log.Debug("the store is open", "replicas", len(s.lanes), "took", time.Since(begin))
	return nil
}

func (s *Store) open() (err error) {
	if s.bolt, err = openFile(s.opts.Path, s.opts.OpenFile); err != nil {
		return err
	}
	s.disk = s.opts.Wrap(s.bolt)
	return nil
}

// load makes the lanes from what the scan has found.
func (s *Store) load(found map[uint16]*extent) error {
	var f raft.Log
	if err := s.read(place(formatSlot, formatIndex), &f); err != nil {
		return fmt.Errorf("format: %w", err)
	}
	if string(f.Data) != format {
		return fmt.Errorf("format %q, and this program knows only %q: use the program that wrote it", f.Data, format)
	}
	for slot, e := range found {
		if slot == formatSlot {
			continue
		}
		l := &lane{slot: slot, first: e.first, last: e.last, tail: e.last, missing: e.missing}
		if err := s.loadLane(l, e.kept); err != nil {
			return fmt.Errorf("slot %d: %w", slot, err)
		}
	}
	return nil
}

func (s *Store) loadLane(l *lane, kept []int) error {
	for _, what := range kept {
		if what >= keeps {
			return fmt.Errorf("value %d beside the log is not known: use the program that wrote it", what)
		}
		var e raft.Log
		if err := s.read(place(l.slot, reserved+uint64(what)), &e); err != nil {
			return err
		}
		l.kept[what] = e.Data
	}
	key, leaving, err := decodeName(l.kept[keepName])
	if err != nil {
		return err
	}
	if s.lanes[key] != nil {
		return fmt.Errorf("replica %s has two slots", key)
	}
	l.key, l.leaving = key, leaving
	s.lanes[key], s.slots[l.slot] = l, l
	return nil
}

func (s *Store) read(at uint64, entry *raft.Log) error {
	return guard(func() error {
		if err := s.disk.GetLog(at, entry); err != nil {
			return err
		}
		return unseal(at, entry)
	})
}

// Stop writes what is queued, until ctx ends, and closes the file. Slots still
// open are closed. Idempotent. If the disk does not come back from a write, the
// file stays open and locked, and the error says so.
func (s *Store) Stop(ctx context.Context) error {
	s.mu.Lock()
	started := s.disk != nil
	s.running = false
	s.nudge()
	s.mu.Unlock()
	if !started {
		return nil
	}
	var err error
	select {
	case err = <-s.closed:
		s.closed <- nil // for the next Stop
	case <-ctx.Done():
		err = fmt.Errorf("store %s: a write has not come back from the disk: %w", s.opts.Path, ctx.Err())
	}
	s.release()
	return err
}

// release closes all slots: before the file is closed, so that no reader takes
// its absence for a sick disk.
func (s *Store) release() {
	var open []*Slot
	s.mu.Lock()
	for _, l := range s.lanes {
		l.mu.Lock()
		if l.holder != nil {
			open = append(open, l.holder)
		}
		l.mu.Unlock()
	}
	s.mu.Unlock()
	for _, slot := range open {
		slot.Close()
	}
}

// Failed is nil, or why the store does not write any more.
func (s *Store) Failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

func (s *Store) failedFor(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		return 0
	}
	return now.Sub(s.failedAt)
}

// Usage says how large the file is, and how much of that is free, in bytes.
func (s *Store) Usage() (size, free int64, err error) {
	if size, err = fileBytes(s.opts.Path); err != nil {
		return 0, 0, err
	}
	return size, int64(s.bolt.Stats().FreePageN) * int64(os.Getpagesize()), nil
}
