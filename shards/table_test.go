package shards

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// commands is a random history of few sessions, so that they meet.
func commands(seed uint64, n int) (all []Command) {
	r := rand.New(rand.NewPCG(seed, 0))
	for range n {
		all = append(all, Command{Op: OpBind, Session: Key{byte(r.IntN(20))}, Backend: fmt.Sprint("b", r.IntN(5)), Seen: Epoch(r.IntN(4))})
	}
	return all
}

func written(t *testing.T, m *Machine) []byte {
	t.Helper()
	w, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if n, err := w.WriteTo(&b); err != nil || n != int64(b.Len()) {
		t.Fatalf("wrote %d of %d bytes: %v", n, b.Len(), err)
	}
	return b.Bytes()
}

// TestSameCommandsSameBytes on replicas that get them in other entries, and from a
// snapshot on.
func TestSameCommandsSameBytes(t *testing.T) {
	for seed := range uint64(20) {
		a, b := NewMachine(), NewMachine()
		all := commands(seed, 300)
		var entry [][]byte
		for i, c := range all {
			if _, err := a.Apply(1, uint64(i), [][]byte{c.encode()}); err != nil {
				t.Fatal(err)
			}
			if entry = append(entry, c.encode()); len(entry) < 7 && i < len(all)-1 {
				continue
			}
			if _, err := b.Apply(2, uint64(i), entry); err != nil {
				t.Fatal(err)
			}
			entry = nil
			if i%3 == 0 { // b comes back from its snapshot
				again := NewMachine()
				if err := again.Restore(bytes.NewReader(written(t, b))); err != nil {
					t.Fatal(err)
				}
				b = again
			}
		}
		if x, y := written(t, a), written(t, b); !bytes.Equal(x, y) {
			t.Fatalf("seed %d: the replicas differ:\n%x\n%x", seed, x, y)
		}
	}
}

// TestEpochsOnlyGrow, and there is one backend for each.
func TestEpochsOnlyGrow(t *testing.T) {
	table := NewTable()
	type at struct {
		k Key
		e Epoch
	}
	was, last := make(map[at]string), make(map[Key]Epoch)
	for _, c := range commands(1, 5000) {
		b := table.Apply(c).Binding
		if b.Epoch == 0 {
			continue
		}
		if b.Epoch < last[c.Session] {
			t.Fatalf("session %v went from epoch %d to %d", c.Session, last[c.Session], b.Epoch)
		}
		last[c.Session] = b.Epoch
		if old, ok := was[at{c.Session, b.Epoch}]; ok && old != b.Backend {
			t.Fatalf("session %v epoch %d was on %s and is on %s", c.Session, b.Epoch, old, b.Backend)
		}
		was[at{c.Session, b.Epoch}] = b.Backend
	}
}

// TestNewBindingsStartAboveTheFloor: what was let go is not to be met again.
func TestNewBindingsStartAboveTheFloor(t *testing.T) {
	table := NewTable()
	table.floor = 7
	if b := table.Apply(Command{Op: OpBind, Session: Key{1}, Backend: "b"}).Binding; b.Epoch != 8 {
		t.Errorf("it began at epoch %d", b.Epoch)
	}
}

// TestNothingOfAnEntryThatIsNotUnderstood is done.
func TestNothingOfAnEntryThatIsNotUnderstood(t *testing.T) {
	m := NewMachine()
	good := Command{Op: OpBind, Session: Key{1}, Backend: "b"}.encode()
	newer := bytes.Clone(good)
	newer[0]++
	other := bytes.Clone(good)
	other[1] = 99
	for _, bad := range [][]byte{newer, other, good[:5], append(bytes.Clone(good), 0), {}} {
		if _, err := m.Apply(1, 1, [][]byte{good, bad}); !errors.Is(err, errCode) {
			t.Errorf("%x: %v", bad, err)
		}
	}
	if m.Len() != 0 {
		t.Error("half of an entry was done")
	}
}

func TestKeysFillShardsEvenly(t *testing.T) {
	h, err := NewHasher(bytes.Repeat([]byte{7}, 32), 16)
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[uint32]int)
	seen := make(map[Key]bool)
	for i := range 16000 {
		k, shard := h.Key("llm", fmt.Sprint("session-", i))
		n[shard]++
		seen[k] = true
	}
	for shard := uint32(1); shard <= 16; shard++ {
		if n[shard] < 800 || n[shard] > 1200 {
			t.Errorf("shard %d has %d of 16000 sessions", shard, n[shard])
		}
	}
	if len(seen) != 16000 || len(n) != 16 {
		t.Errorf("%d keys in %d shards", len(seen), len(n))
	}
	a, _ := h.Key("ab", "c")
	b, _ := h.Key("a", "bc")
	other, _ := NewHasher(bytes.Repeat([]byte{8}, 32), 16)
	c, _ := other.Key("ab", "c")
	if a == b || a == c {
		t.Error("pool, name and secret do not all count")
	}
	if _, err := NewHasher([]byte("short"), 16); err == nil {
		t.Error("a secret that can be guessed was taken")
	}
}

func FuzzCommand(f *testing.F) {
	f.Add(Command{Op: OpBind, Session: Key{1, 2}, Backend: "b1", Seen: 3}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := decodeCommand(b); err == nil && !bytes.Equal(c.encode(), b) {
			t.Errorf("%x was read as %+v", b, c)
		}
	})
}

func FuzzQuestion(f *testing.F) {
	f.Add(question{ask: askBind, shard: 3, session: Key{1}, backend: "b1"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if q, err := decodeQuestion(b); err == nil && !bytes.Equal(q.encode(), b) {
			t.Errorf("%x was read as %+v", b, q)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(answer{verdict: bound, binding: Binding{"b1", 3}, leader: "n1"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := decodeAnswer(b); err == nil && !bytes.Equal(a.encode(), b) {
			t.Errorf("%x was read as %+v", b, a)
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	table := NewTable()
	for _, c := range commands(1, 50) {
		table.Apply(c)
	}
	var b bytes.Buffer
	if _, err := table.WriteTo(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := readTable(bytes.NewReader(b))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if _, err := table.WriteTo(&out); err != nil || !bytes.Equal(out.Bytes(), b) {
			t.Errorf("%x was read, and written as %x: %v", b, out.Bytes(), err)
		}
	})
}

// BenchmarkSnapshot is what a shard of 60,000 sessions (a million over 16) costs
// while commands wait.
func BenchmarkSnapshot(b *testing.B) {
	m := NewMachine()
	for i := range 60000 {
		m.table.Apply(Command{Op: OpBind, Session: Key{byte(i), byte(i >> 8), byte(i >> 16)}, Backend: fmt.Sprint("b", i%64)})
	}
	for b.Loop() {
		if _, err := m.Snapshot(); err != nil {
			b.Fatal(err)
		}
	}
}
