package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
)

// TestMain also plays the processes that tests kill: see crash_test.go.
func TestMain(m *testing.M) {
	if role := os.Getenv("STORE_TEST_ROLE"); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

const patience = 60 * time.Second

// begin starts a store on path and stops it at the end of the test.
func begin(t testing.TB, opts Options) *Store {
	t.Helper()
	st, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, st) })
	return st
}

func stop(t testing.TB, st *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := st.Stop(ctx); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

func path(t testing.TB) string { return filepath.Join(t.TempDir(), "raft.db") }

// ramDir is a directory in memory, if there is one: for what asks nothing of the disk.
func ramDir(t testing.TB) string {
	t.Helper()
	if info, err := os.Stat("/dev/shm"); err != nil || !info.IsDir() {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/dev/shm", "starling-test")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func key(shard uint64) Key { return Key{Shard: shard, Incarnation: 1, Life: 1} }

func open(t testing.TB, st *Store, k Key) *Slot {
	t.Helper()
	s, err := st.Open(k)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// entries makes raft entries from first to last of one term.
func entries(term, first, last uint64) (es []*raft.Log) {
	for i := first; i <= last; i++ {
		es = append(es, &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: fmt.Appendf(nil, "%d@%d", i, term)})
	}
	return es
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantSpan(t testing.TB, s *Slot, first, last uint64) {
	t.Helper()
	f, _ := s.FirstIndex()
	l, _ := s.LastIndex()
	if f != first || l != last {
		t.Fatalf("log is %d to %d, want %d to %d", f, l, first, last)
	}
	next := first
	must(t, s.Each(func(e *raft.Log) error {
		if e.Index != next {
			return fmt.Errorf("entry %d comes at %d", e.Index, next)
		}
		next++
		return nil
	}))
	if last != 0 && next != last+1 {
		t.Fatalf("Each ended before %d, want %d", next, last+1)
	}
}

// eventually polls: what it waits for is done by another goroutine that tells nobody.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func TestSlotsDoNotMix(t *testing.T) {
	p := path(t)
	st := begin(t, Options{Path: p})
	a, b := open(t, st, key(1)), open(t, st, Key{Shard: 1, Incarnation: 1, Life: 2})
	must(t, a.StoreLogs(entries(1, 1, 10)))
	must(t, b.StoreLogs(entries(9, 100, 120)))
	must(t, a.SetUint64([]byte("CurrentTerm"), 7))
	must(t, b.Set([]byte("LastVoteCand"), []byte("node-b")))
	must(t, a.DeleteRange(1, 3))
	check := func(a, b *Slot) {
		t.Helper()
		wantSpan(t, a, 4, 10)
		wantSpan(t, b, 100, 120)
		e := raft.Log{Data: []byte("left by an earlier read"), Extensions: []byte("x"), Type: raft.LogNoop, AppendedAt: time.Now()}
		must(t, b.GetLog(120, &e))
		if string(e.Data) != "120@9" || e.Term != 9 || e.Index != 120 || e.Type != raft.LogCommand || len(e.Extensions) != 0 || !e.AppendedAt.IsZero() {
			t.Errorf("entry is %+v", e)
		}
		if term, err := a.GetUint64([]byte("CurrentTerm")); term != 7 || err != nil {
			t.Errorf("term %d, %v", term, err)
		}
		if v, err := b.Get([]byte("LastVoteCand")); string(v) != "node-b" || err != nil {
			t.Errorf("vote %q, %v", v, err)
		}
		if err := b.GetLog(99, &e); err != raft.ErrLogNotFound {
			t.Errorf("before the log: %v", err)
		}
		if err := b.GetLog(121, &e); err != raft.ErrLogNotFound {
			t.Errorf("after the log: %v", err)
		}
	}
	check(a, b)
	stop(t, st)
	st = begin(t, Options{Path: p})
	if n := len(st.Keys()); n != 2 {
		t.Errorf("%d replicas after the restart, want 2", n)
	}
	check(open(t, st, key(1)), open(t, st, Key{Shard: 1, Incarnation: 1, Life: 2}))
}

// raft compares the text.
func TestNotFoundText(t *testing.T) {
	s := open(t, begin(t, Options{Path: path(t)}), key(1))
	for _, name := range []string{"CurrentTerm", "LastVoteTerm", "LastVoteCand", "anything"} {
		if _, err := s.Get([]byte(name)); err == nil || err.Error() != "not found" {
			t.Errorf("Get(%s): %v", name, err)
		}
		if _, err := s.GetUint64([]byte(name)); err == nil || err.Error() != "not found" {
			t.Errorf("GetUint64(%s): %v", name, err)
		}
	}
	if err := s.Set([]byte("anything"), nil); err == nil {
		t.Error("a value without a place was taken")
	}
	wantSpan(t, s, 0, 0)
}

// raft hands the entries it stores to the replication of others as well.
func TestEntriesAreNotTouched(t *testing.T) {
	s := open(t, begin(t, Options{Path: path(t)}), key(1))
	room := make([]byte, 3, 64)
	copy(room, "abc")
	e := &raft.Log{Index: 1, Term: 1, Data: room, Extensions: []byte("x")}
	must(t, s.StoreLog(e))
	if e.Index != 1 || string(e.Data) != "abc" || string(room[:7]) != "abc\x00\x00\x00\x00" {
		t.Errorf("entry became %+v, its room %q", e, room[:7])
	}
}

func TestHolesAreRefused(t *testing.T) {
	s := open(t, begin(t, Options{Path: path(t)}), key(1))
	must(t, s.StoreLogs(entries(1, 5, 9)))
	gap := entries(1, 10, 12)
	gap[2].Index = 13
	for name, err := range map[string]error{
		"after a gap":   s.StoreLogs(entries(1, 11, 12)),
		"again":         s.StoreLogs(entries(1, 9, 9)),
		"before":        s.StoreLogs(entries(1, 4, 4)),
		"gap within":    s.StoreLogs(gap),
		"index 0":       s.StoreLogs(entries(1, 0, 0)),
		"reserved":      s.StoreLogs(entries(1, reserved, reserved)),
		"a hole cut in": s.DeleteRange(6, 7),
	} {
		if err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	wantSpan(t, s, 5, 9)
	must(t, s.StoreLogs(entries(2, 10, 10)))
	wantSpan(t, s, 5, 10)
	must(t, s.store.Failed())
}

func TestDeleteRange(t *testing.T) {
	const n = 3*cutChunk + 7
	for _, tt := range []struct {
		name        string
		min, max    uint64
		first, last uint64
	}{
		{"nothing before", 1, 9, 10, n},
		{"nothing after", n + 1, n + 5, 10, n},
		{"prefix", 1, 2*cutChunk + 3, 2*cutChunk + 4, n},
		{"suffix", cutChunk, n, 10, cutChunk - 1},
		{"suffix and beyond", cutChunk, n + 1000, 10, cutChunk - 1},
		{"last", n, n, 10, n - 1},
		{"all", 10, n, 0, 0},
		{"all and more", 0, 1 << 40, 0, 0},
		{"reversed", 20, 15, 10, n},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := path(t)
			st := begin(t, Options{Path: p})
			s, other := open(t, st, key(1)), open(t, st, key(2))
			must(t, s.StoreLogs(entries(1, 10, n)))
			must(t, other.StoreLogs(entries(1, 10, 20)))
			must(t, s.DeleteRange(tt.min, tt.max))
			wantSpan(t, s, tt.first, tt.last)
			stop(t, st)
			st = begin(t, Options{Path: p})
			wantSpan(t, open(t, st, key(1)), tt.first, tt.last)
			wantSpan(t, open(t, st, key(2)), 10, 20)
		})
	}
}

// A crash may come between two chunks: whatever is left is in one piece.
func TestRemovalInPieces(t *testing.T) {
	const n = 5 * cutChunk
	for _, tt := range []struct {
		name        string
		min, max    uint64
		first, last uint64 // after two chunks
	}{
		{"prefix", 1, n - 10, 2*cutChunk + 1, n},
		{"suffix", 10, n, 1, n - 2*cutChunk},
		{"all", 1, n, 1, n - 2*cutChunk},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := path(t)
			f := &faults{}
			st := begin(t, Options{Path: p, Wrap: f.wrap})
			s := open(t, st, key(1))
			must(t, s.StoreLogs(entries(1, 1, n)))
			f.deletes.Store(2)
			if err := s.DeleteRange(tt.min, tt.max); !errors.Is(err, ErrFailed) {
				t.Errorf("DeleteRange: %v", err)
			}
			stop(t, st)
			wantSpan(t, open(t, begin(t, Options{Path: p}), key(1)), tt.first, tt.last)
		})
	}
}

// A follower that is behind is sent entries while the log is compacted: it gets
// each, or hears that it is gone, and nobody takes that for a sick disk.
func TestReadDuringRemoval(t *testing.T) {
	const n = 6 * cutChunk
	st := begin(t, Options{Path: path(t)})
	s := open(t, st, key(1))
	must(t, s.StoreLogs(entries(1, 1, n)))
	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan int)
	for range 2 {
		go func() {
			hits := 0
			for i := uint64(0); ctx.Err() == nil; i = (i + 7) % n {
				var e raft.Log
				switch err := s.GetLog(1+i, &e); {
				case err == nil && e.Index == 1+i:
					hits++
				case err != raft.ErrLogNotFound:
					t.Errorf("entry %d: %d, %v", 1+i, e.Index, err)
				}
			}
			read <- hits
		}()
	}
	must(t, s.DeleteRange(1, n-1))
	cancel()
	if hits := <-read + <-read; hits == 0 {
		t.Error("nothing was read: the test is of no use")
	}
	must(t, st.Failed())
	wantSpan(t, s, n, n)
}

// After a snapshot was installed, raft removes the log it replaces and goes on
// behind the snapshot; a crash may come between the two.
func TestAlign(t *testing.T) {
	for _, tt := range []struct {
		name            string
		first, last     uint64
		snapshot        uint64
		wantFirst, want uint64
		hole            bool
	}{
		{"empty log", 0, 0, 50, 0, 0, false},
		{"no snapshot", 1, 9, 0, 1, 9, false},
		{"log before the snapshot", 1, 9, 50, 0, 0, false},
		{"snapshot within", 1, 90, 50, 1, 90, false},
		{"snapshot at the end", 1, 50, 50, 1, 50, false},
		{"log follows", 51, 60, 50, 51, 60, false},
		{"hole", 52, 60, 50, 52, 60, true},
		{"hole, no snapshot", 2, 60, 0, 2, 60, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, begin(t, Options{Path: path(t)}), key(1))
			if tt.first != 0 {
				must(t, s.StoreLogs(entries(1, tt.first, tt.last)))
			}
			err := s.Align(tt.snapshot)
			var hole *HoleError
			if errors.As(err, &hole) != tt.hole || !tt.hole && err != nil {
				t.Errorf("Align: %v", err)
			}
			wantSpan(t, s, tt.wantFirst, tt.want)
		})
	}
}

func TestCommitGoesAlong(t *testing.T) {
	p := path(t)
	st := begin(t, Options{Path: p})
	s := open(t, st, key(1))
	must(t, s.StoreLogs(entries(1, 1, 5)))
	s.StageCommit(4)
	s.StageCommit(3)
	if c := s.Commit(); c != 0 {
		t.Errorf("commit index %d before anything was written", c)
	}
	must(t, s.SetUint64([]byte("CurrentTerm"), 2))
	if c := s.Commit(); c != 4 {
		t.Errorf("commit index %d, want 4", c)
	}
	s.StageCommit(5) // lost: nothing is written after it
	stop(t, st)
	if c := open(t, begin(t, Options{Path: p}), key(1)).Commit(); c != 4 {
		t.Errorf("commit index %d after the restart, want 4", c)
	}
}

func TestOpenIsExclusive(t *testing.T) {
	st := begin(t, Options{Path: path(t)})
	a := open(t, st, key(1))
	if _, err := st.Open(key(1)); !errors.Is(err, ErrInUse) {
		t.Errorf("second Open: %v", err)
	}
	if err := st.Drop(key(1)); !errors.Is(err, ErrInUse) {
		t.Errorf("Drop of an open one: %v", err)
	}
	a.Close()
	a.Close()
	b := open(t, st, key(1))
	a.Close() // the old holder must not close the new one's
	must(t, b.StoreLogs(entries(1, 1, 1)))
	if err := a.StoreLogs(entries(1, 2, 2)); !errors.Is(err, ErrClosed) {
		t.Errorf("append by the old holder: %v", err)
	}
}

func TestDropFreesTheNumber(t *testing.T) {
	p := path(t)
	st := begin(t, Options{Path: p})
	for i := range uint64(3) {
		s := open(t, st, key(i))
		must(t, s.StoreLogs(entries(1, 1, 2*cutChunk)))
		must(t, s.SetUint64([]byte("CurrentTerm"), 3))
		s.Close()
	}
	must(t, st.Drop(key(1)))
	must(t, st.Drop(key(1))) // gone already
	if len(st.Keys()) != 2 || slices.Contains(st.Keys(), key(1)) {
		t.Errorf("left: %v", st.Keys())
	}
	again := open(t, st, Key{Shard: 1, Incarnation: 2, Life: 1})
	if again.lane.slot != 2 {
		t.Errorf("the new replica got slot %d, the free one is 2", again.lane.slot)
	}
	wantSpan(t, again, 0, 0)
	if _, err := again.Get([]byte("CurrentTerm")); err == nil {
		t.Error("the new replica knows the old one's term")
	}
	wantSpan(t, open(t, st, key(2)), 1, 2*cutChunk)
}

func TestInterruptedDrop(t *testing.T) {
	p := path(t)
	f := &faults{}
	st := begin(t, Options{Path: p, Wrap: f.wrap})
	s := open(t, st, key(1))
	must(t, s.StoreLogs(entries(1, 1, 3*cutChunk)))
	s.Close()
	f.deletes.Store(1)
	if err := st.Drop(key(1)); err == nil {
		t.Fatal("Drop did not notice")
	}
	stop(t, st)
	st = begin(t, Options{Path: p})
	if keys := st.Keys(); len(keys) != 0 {
		t.Errorf("left after the restart: %v", keys)
	}
	wantSpan(t, open(t, st, key(1)), 0, 0)
}

func TestEmptyFileIsRefused(t *testing.T) {
	p := path(t)
	must(t, os.WriteFile(p, nil, 0o600))
	st, err := New(Options{Path: p})
	must(t, err)
	if err := st.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "file is empty") {
		t.Errorf("Start: %v", err)
	}
	stop(t, st)
}

func TestNewerFormatIsRefused(t *testing.T) {
	for _, tt := range []struct{ name, want string }{{"format", "use the program that wrote it"}, {"value", "use the program that wrote it"}} {
		t.Run(tt.name, func(t *testing.T) {
			p := path(t)
			st := begin(t, Options{Path: p})
			s := open(t, st, key(1))
			entry := seal(formatSlot, &raft.Log{Index: formatIndex, Data: []byte("starling store 2")})
			if tt.name == "value" {
				entry = keep(s.lane.slot, keeps, []byte("new"))
			}
			must(t, st.disk.StoreLogs([]*raft.Log{entry}))
			stop(t, st)
			st, err := New(Options{Path: p})
			must(t, err)
			if err := st.Start(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Start: %v", err)
			}
			stop(t, st) // nothing is left to stop
		})
	}
}

func TestCompaction(t *testing.T) {
	p := path(t)
	st := begin(t, Options{Path: p})
	s := open(t, st, key(1))
	big := make([]byte, 4<<10)
	for i := uint64(1); i <= 4096; i += 512 {
		es := entries(1, i, i+511)
		for _, e := range es {
			e.Data = big
		}
		must(t, s.StoreLogs(es))
	}
	must(t, s.DeleteRange(1, 4000))
	must(t, s.SetUint64([]byte("CurrentTerm"), 5))
	before, free, err := st.Usage()
	must(t, err)
	if free < before/2 {
		t.Errorf("%d of %d bytes are free: the test is of no use", free, before)
	}
	stop(t, st)
	must(t, os.WriteFile(p+".new", []byte("left by a crash"), 0o600))
	st = begin(t, Options{Path: p})
	after, _, err := st.Usage()
	must(t, err)
	if after > before/4 {
		t.Errorf("the file had %d bytes and has %d", before, after)
	}
	if _, err := os.Stat(p + ".new"); !os.IsNotExist(err) {
		t.Errorf("the copy is still there: %v", err)
	}
	s = open(t, st, key(1))
	wantSpan(t, s, 4001, 4096)
	if term, err := s.GetUint64([]byte("CurrentTerm")); term != 5 || err != nil {
		t.Errorf("term %d, %v", term, err)
	}
}
