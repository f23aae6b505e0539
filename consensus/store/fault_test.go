package store

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// sick starts a store with one slot that has entries 1 to 5 and term 3.
func sick(t *testing.T) (st *Store, s *Slot, f *faults, told *atomic.Int64) {
	f, told = &faults{}, &atomic.Int64{}
	st = begin(t, Options{Path: path(t), Wrap: f.wrap, Failed: func(error) { told.Add(1) }})
	s = open(t, st, key(1))
	must(t, s.StoreLogs(entries(3, 1, 5)))
	must(t, s.SetUint64([]byte("CurrentTerm"), 3))
	return st, s, f, told
}

// parks runs f as raft would and waits until it hangs. It must not return, not
// even once the slot is closed; its goroutine must end then.
func parks(t *testing.T, s *Slot, what string, f func()) {
	t.Helper()
	before := s.store.parked.Load()
	ended, returned := make(chan struct{}), atomic.Bool{}
	go func() {
		defer close(ended)
		f()
		returned.Store(true)
	}()
	eventually(t, what+" parks", func() bool { return s.store.parked.Load() > before })
	t.Cleanup(func() {
		s.Close()
		<-ended
		if returned.Load() {
			t.Errorf("%s returned: raft would have gone on, or panicked", what)
		}
	})
}

func TestErrorsPark(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cause error
	}{{"I/O error", syscall.EIO}, {"full disk", syscall.ENOSPC}, {"read-only", syscall.EROFS}} {
		t.Run(tt.name, func(t *testing.T) {
			st, s, f, told := sick(t)
			f.write.Store(ptr(tt.cause))
			err := s.StoreLogs(entries(3, 6, 7))
			if !errors.Is(err, ErrFailed) || !errors.Is(err, tt.cause) {
				t.Errorf("StoreLogs: %v", err)
			}
			f.write.Store(nil) // too late: what the disk has is not known
			if err := s.StoreLogs(entries(3, 6, 7)); !errors.Is(err, ErrFailed) {
				t.Errorf("StoreLogs after the failure: %v", err)
			}
			if err := s.DeleteRange(1, 2); !errors.Is(err, ErrFailed) {
				t.Errorf("DeleteRange after the failure: %v", err)
			}
			if _, err := st.Open(key(2)); !errors.Is(err, ErrFailed) {
				t.Errorf("Open after the failure: %v", err)
			}
			parks(t, s, "SetUint64", func() { _ = s.SetUint64([]byte("CurrentTerm"), 4) })
			parks(t, s, "Set", func() { _ = s.Set([]byte("LastVoteCand"), []byte("x")) })
			// raft may believe in entries of an append that failed after a removal.
			parks(t, s, "GetLog past the end", func() { _ = s.GetLog(6, new(raft.Log)) })
			must(t, s.GetLog(5, new(raft.Log))) // what can be read is read
			if term, err := s.GetUint64([]byte("CurrentTerm")); term != 3 || err != nil {
				t.Errorf("term %d, %v: nothing else was saved", term, err)
			}
			eventually(t, "Pending grows", func() bool { return s.Pending() > time.Millisecond })
			if n := told.Load(); n != 1 {
				t.Errorf("the owner was told %d times", n)
			}
		})
	}
}

func TestVoteThatCannotBeSavedParks(t *testing.T) {
	_, s, f, told := sick(t)
	f.write.Store(ptr(errInjected))
	parks(t, s, "SetUint64", func() { _ = s.SetUint64([]byte("CurrentTerm"), 4) })
	if told.Load() != 1 {
		t.Error("the owner was not told")
	}
}

func TestUnreadableEntryParks(t *testing.T) {
	st, s, f, told := sick(t)
	f.read.Store(ptr(errInjected))
	if err := s.Each(func(*raft.Log) error { return nil }); !errors.Is(err, errInjected) {
		t.Errorf("Each: %v", err) // before raft runs, an error is what the caller can use
	}
	must(t, st.Failed())
	parks(t, s, "GetLog", func() { _ = s.GetLog(3, new(raft.Log)) })
	if !errors.Is(st.Failed(), errInjected) || told.Load() != 1 {
		t.Errorf("failed: %v, told %d times", st.Failed(), told.Load())
	}
}

func TestFailedRemovalIsAnError(t *testing.T) {
	_, s, f, told := sick(t)
	f.deletes.Store(0)
	if err := s.DeleteRange(4, 5); !errors.Is(err, ErrFailed) {
		t.Errorf("DeleteRange: %v", err)
	}
	if told.Load() != 1 {
		t.Error("the owner was not told")
	}
}

func TestStallIsSeenAndLeft(t *testing.T) {
	st, s, f, _ := sick(t)
	quiet := open(t, st, key(2))
	ch := make(chan struct{})
	f.stall.Store(&ch)
	appended := make(chan error, 1)
	go func() { appended <- s.StoreLogs(entries(3, 6, 6)) }()
	eventually(t, "the write hangs and Pending grows", func() bool { return f.stalled.Load() == 1 && s.Pending() > 5*time.Millisecond })
	if p := quiet.Pending(); p != 0 {
		t.Errorf("a group that writes nothing has waited %s", p)
	}
	must(t, st.Failed()) // slow is not broken
	s.Close()
	if err := <-appended; !errors.Is(err, ErrClosed) {
		t.Errorf("the append ended with %v", err)
	}
	if _, err := st.Open(key(1)); !errors.Is(err, ErrInUse) {
		t.Errorf("Open during the write of the last holder: %v", err)
	}
	f.stall.Store(nil)
	close(ch)
	var again *Slot
	eventually(t, "the replica can be opened again", func() bool {
		var err error
		again, err = st.Open(key(1))
		return err == nil
	})
	wantSpan(t, again, 1, 6) // begun before the end: done
	if p := again.Pending(); p != 0 {
		t.Errorf("nothing is pending, and has been for %s", p)
	}
}

// What the last holder had queued, but not begun, must not come after the new
// holder's writes.
func TestQueuedWritesDieWithTheirHolder(t *testing.T) {
	st, s, f, _ := sick(t)
	other := open(t, st, key(2))
	ch := make(chan struct{})
	f.stall.Store(&ch)
	busy, queued := make(chan error, 1), make(chan error, 1)
	go func() { busy <- other.StoreLogs(entries(1, 1, 1)) }()
	eventually(t, "the disk is busy", func() bool { return f.stalled.Load() == 1 })
	go func() { queued <- s.StoreLogs(entries(3, 6, 6)) }()
	eventually(t, "an append is queued", func() bool { return s.Pending() > 0 })
	s.Close()
	f.stall.Store(nil)
	close(ch)
	must(t, <-busy)
	if err := <-queued; !errors.Is(err, ErrClosed) {
		t.Errorf("the queued append ended with %v", err)
	}
	eventually(t, "the queue is empty", func() bool { return s.Pending() == 0 })
	wantSpan(t, open(t, st, key(1)), 1, 5)
}

// Appends of many groups share transactions; the removal of a long log lets them pass.
func TestWritesShareTransactions(t *testing.T) {
	st, s, f, _ := sick(t)
	must(t, s.StoreLogs(entries(3, 6, 20*cutChunk)))
	ch := make(chan struct{})
	f.stall.Store(&ch)
	before := f.writes.Load()
	done := make(chan error, 101)
	go func() { done <- s.StoreLogs(entries(3, 20*cutChunk+1, 20*cutChunk+1)) }()
	eventually(t, "the disk is busy", func() bool { return f.stalled.Load() == 1 })
	for i := range uint64(100) {
		other := open2(t, st, 100+i)
		go func() { done <- other.StoreLogs(entries(1, 1, 1)) }()
	}
	eventually(t, "all are queued", func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return len(st.queue) == 100
	})
	f.stall.Store(nil)
	close(ch)
	for range 101 {
		must(t, <-done)
	}
	if n := f.writes.Load() - before; n != 2 {
		t.Errorf("101 appends took %d transactions, want 2", n)
	}
}

// open2 makes a slot without the disk, which is busy.
func open2(t *testing.T, st *Store, shard uint64) *Slot {
	t.Helper()
	l, fresh, err := st.lane(key(shard))
	if err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	s := &Slot{store: st, lane: l, gone: make(chan struct{})}
	l.holder = s
	return s
}

func TestStopDuringAStall(t *testing.T) {
	f := &faults{}
	p := path(t)
	st, err := New(Options{Path: p, Wrap: f.wrap})
	must(t, err)
	must(t, st.Start(t.Context()))
	s := open(t, st, key(1))
	ch := make(chan struct{})
	f.stall.Store(&ch)
	appended := make(chan error, 1)
	go func() { appended <- s.StoreLogs(entries(1, 1, 1)) }()
	eventually(t, "the disk is busy", func() bool { return f.stalled.Load() == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := st.Stop(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), p) {
		t.Errorf("Stop: %v", err)
	}
	if err := <-appended; !errors.Is(err, ErrClosed) {
		t.Errorf("the append ended with %v", err)
	}
	if _, err := st.Open(key(2)); !errors.Is(err, ErrClosed) {
		t.Errorf("Open after Stop: %v", err)
	}
	f.stall.Store(nil)
	close(ch)
	stop(t, st) // now it gets through
}

func damage(t *testing.T, p string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(p)
	must(t, err)
	must(t, os.WriteFile(p, change(b), 0o600))
}

func filled(t *testing.T, data string) string {
	p := path(t)
	st := begin(t, Options{Path: p})
	es := entries(1, 1, 300)
	for _, e := range es {
		e.Data = append(e.Data, data...)
	}
	must(t, open(t, st, key(1)).StoreLogs(es))
	stop(t, st)
	return p
}

func TestTornTail(t *testing.T) {
	for _, keep := range []float64{0.9, 0.5, 0.1} {
		p := filled(t, strings.Repeat("x", 300))
		damage(t, p, func(b []byte) []byte { return b[:int(float64(used(t, p))*keep)] })
		st, err := New(Options{Path: p})
		must(t, err)
		if err := st.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "cut short") || !strings.Contains(err.Error(), "empty the data directory") {
			t.Errorf("%.0f %% of the file: %v", keep*100, err)
		}
	}
}

// used is how far the file's pages reach; behind it is only reserve.
func used(t *testing.T, p string) (n int64) {
	db, err := bbolt.Open(p, 0o600, boltOptions(true))
	must(t, err)
	defer db.Close()
	must(t, db.View(func(tx *bbolt.Tx) error {
		n = tx.Size()
		return nil
	}))
	return n
}

// A crash in the last write of a transaction: its meta page is torn, and the one
// before counts.
func TestTornMeta(t *testing.T) {
	p := path(t)
	st := begin(t, Options{Path: p})
	s := open(t, st, key(1))
	must(t, s.StoreLogs(entries(1, 1, 10)))
	must(t, s.StoreLogs(entries(1, 11, 12)))
	stop(t, st)
	newest := func(b []byte) []byte {
		ps := os.Getpagesize()
		at := 0
		if number := binary.NativeEndian.Uint64; number(b[ps+16+48:]) > number(b[16+48:]) { // of the transaction
			at = ps
		}
		b[at+16+48+3] ^= 0xff
		return b
	}
	damage(t, p, newest)
	wantSpan(t, open(t, begin(t, Options{Path: p}), key(1)), 1, 10)
}

func TestFlippedBit(t *testing.T) {
	p := filled(t, "needle")
	damage(t, p, func(b []byte) []byte {
		i := strings.Index(string(b), "77@1needle")
		b[i+5] ^= 1
		return b
	})
	st := begin(t, Options{Path: p})
	s := open(t, st, key(1))
	if err := s.Each(func(*raft.Log) error { return nil }); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "entry 77") {
		t.Errorf("Each: %v", err)
	}
	must(t, s.GetLog(76, new(raft.Log)))
	parks(t, s, "GetLog", func() { _ = s.GetLog(77, new(raft.Log)) })
}

func TestHoleInTheFile(t *testing.T) {
	p := filled(t, "")
	db, err := bbolt.Open(p, 0o600, boltOptions(false))
	must(t, err)
	must(t, db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("logs")).Delete(encodeUint(place(1, 150)))
	}))
	must(t, db.Close())
	st := begin(t, Options{Path: p})
	var hole *HoleError
	if _, err := st.Open(key(1)); !errors.As(err, &hole) || hole.Missing != 150 {
		t.Errorf("Open: %v", err)
	}
	open(t, st, key(2)) // the others go on
	must(t, st.Drop(key(1)))
	wantSpan(t, open(t, st, key(1)), 0, 0)
}
