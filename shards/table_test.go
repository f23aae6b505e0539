package shards

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// commands is a random history of few sessions, backends and nodes, so that they
// meet.
func commands(seed uint64, n int) (all []Command) {
	r := rand.New(rand.NewPCG(seed, 0))
	session := func() Key { return Key{byte(r.IntN(20))} }
	name := func() string { return fmt.Sprint("b", r.IntN(5)) }
	targets := func() (all []Target) {
		for range r.IntN(6) {
			t := Target{Session: session(), Seen: Epoch(1 + r.IntN(12)), Backend: name()}
			if r.IntN(3) == 0 {
				t.Backend = ""
			}
			all = append(all, t)
		}
		return all
	}
	for range n {
		c := Command{Op: OpBind, Session: session(), Backend: name(), Seen: Epoch(r.IntN(4))}
		switch r.IntN(8) {
		case 0:
			c = Command{Op: OpRebind, Session: session(), Backend: name(), Seen: Epoch(1 + r.IntN(12))}
		case 1, 2:
			c = Command{Op: OpMove, Term: uint64(1 + r.IntN(5)/4), Targets: targets()}
		case 3:
			c = Command{Op: OpDown, Pool: "llm", Revision: uint64(r.IntN(3)), Backend: name(), Targets: targets()}
		case 4:
			c = Command{Op: OpHolder + Op(r.IntN(2)), Node: fmt.Sprint("n", r.IntN(3)), Boot: uint64(r.IntN(3))}
		case 5:
			c = Command{Op: OpSet, Pool: "llm", Revision: uint64(r.IntN(3)), Backends: []Backend{{"b1", 1}, {"b3", uint32(r.IntN(5))}}}
		}
		all = append(all, c)
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
		all := commands(seed, 600)
		var entry [][]byte
		for i, c := range all {
			if _, err := a.Apply(1, uint64(i), [][]byte{c.encode()}); err != nil {
				t.Fatal(err)
			}
			if entry = append(entry, c.encode()); len(entry) < 7 && i < len(all)-1 {
				continue
			}
			if _, err := b.Apply(1, uint64(i), entry); err != nil {
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

// TestEpochsOnlyGrow for each session, over letting go and binding again, too; there
// is one backend for each; and what is told as changed is all that changed.
func TestEpochsOnlyGrow(t *testing.T) {
	for seed := range uint64(10) {
		table := NewTable()
		type at struct {
			k Key
			e Epoch
		}
		was, last := make(map[at]string), make(map[Key]Epoch)
		told := make(map[Key]Binding)
		gone, moved := 0, 0
		for i, c := range commands(seed, 3000) {
			if i%2 == 0 { // half of them know what they do
				c.Seen = told[c.Session].Epoch
				for j, to := range c.Targets {
					c.Targets[j].Seen = told[to.Session].Epoch
				}
			}
			for _, change := range table.Apply(1, c).Changes {
				k, b := change.Session, change.Binding
				if told[k].Epoch != change.Was {
					t.Fatalf("session %v was at epoch %d and is told to have been at %d", k, told[k].Epoch, change.Was)
				}
				if told[k] = b; b.Epoch == 0 {
					gone++
					continue
				}
				if b.Epoch <= last[k] {
					t.Fatalf("session %v went from epoch %d to %d", k, last[k], b.Epoch)
				}
				if c.Op == OpMove || c.Op == OpDown {
					moved++
				}
				last[k] = b.Epoch
				was[at{k, b.Epoch}] = b.Backend
			}
			for k, b := range told {
				got, ok := table.Get(k)
				if got != b || ok != (b.Epoch > 0) || ok && was[at{k, b.Epoch}] != b.Backend {
					t.Fatalf("session %v is %+v, told was %+v", k, got, b)
				}
			}
		}
		if gone < 100 || moved < 100 {
			t.Errorf("seed %d: %d were let go and %d moved: the history is too dull to show anything", seed, gone, moved)
		}
	}
}

// TestCounts: sessions are counted by backend, and the numbers of backends that
// have none are used again.
func TestCounts(t *testing.T) {
	m := NewMachine()
	for i, c := range commands(3, 3000) {
		if _, err := m.Apply(1, uint64(i), [][]byte{c.encode()}); err != nil {
			t.Fatal(err)
		}
		sum := 0
		for b := range 5 {
			name := fmt.Sprint("b", b)
			n := m.table.Count(name)
			if on := m.table.On(name); len(on) != n {
				t.Fatalf("%d sessions are on %s, counted are %d", len(on), name, n)
			}
			sum += n
		}
		if sum != m.Len() || len(m.table.backends.text) > 5+1 {
			t.Fatalf("%d of %d sessions are on the backends %q", sum, m.Len(), m.table.backends.text)
		}
	}
}

// TestNewBindingsStartAboveTheFloor: what was let go is not to be met again.
func TestNewBindingsStartAboveTheFloor(t *testing.T) {
	table := NewTable()
	table.floor = 7
	if b := table.Apply(1, Command{Op: OpBind, Session: Key{1}, Backend: "b"}).Binding; b.Epoch != 8 {
		t.Errorf("it began at epoch %d", b.Epoch)
	}
}

// TestNoEpochIsUsedTwice, even where there is none left.
func TestNoEpochIsUsedTwice(t *testing.T) {
	table := NewTable()
	bind := Command{Op: OpBind, Session: Key{1}, Backend: "b"}
	table.Apply(1, bind)
	table.floor = math.MaxUint32
	move := Command{Op: OpMove, Term: 1, Targets: []Target{{Key{1}, 1, "c"}}}
	if r := table.Apply(1, move); len(r.Changes) > 0 {
		t.Errorf("moved: %+v", r)
	}
	bind.Session = Key{2}
	if r := table.Apply(1, bind); !r.Conflict || table.Len() != 1 {
		t.Errorf("bound: %+v", r)
	}
}

func FuzzSnapshot(f *testing.F) {
	table := NewTable()
	for _, c := range commands(1, 50) {
		table.Apply(1, c)
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
