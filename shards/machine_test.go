package shards

import (
	"bytes"
	"slices"
	"testing"
)

// TestTap tells every change once, in order: whoever begins with At and leaves out
// what is not after it has what the machine has.
func TestTap(t *testing.T) {
	m := NewMachine()
	var keys []Key
	for i := range 20 {
		keys = append(keys, Key{byte(i)})
	}
	var heard []Applied
	m.Tap(func(a Applied) { heard = append(heard, a) })
	all := commands(5, 2000)
	var mine []Binding
	var from Position
	for i, c := range all {
		if i == 1000 {
			mine, from = m.At(keys)
		}
		if _, err := m.Apply(3, uint64(i+1), [][]byte{c.encode()}); err != nil {
			t.Fatal(err)
		}
	}
	if len(heard) != len(all) {
		t.Fatalf("told of %d of %d entries", len(heard), len(all))
	}
	if from != (Position{0, 3, 1000}) {
		t.Errorf("At says %+v", from)
	}
	holders, sets := 0, 0
	for _, a := range heard {
		if a.Holders {
			holders++
		}
		if a.Sets {
			sets++
		}
		if a.Index <= from.Index {
			continue
		}
		for _, c := range a.Changes {
			mine[c.Session[0]] = c.Binding
		}
	}
	if now, at := m.At(keys); !slices.Equal(mine, now) || at.Index != uint64(len(all)) {
		t.Errorf("followed: %v\nis:       %v at %+v", mine, now, at)
	}
	if holders == 0 || sets == 0 || sets > 3 {
		t.Errorf("told of %d changes of holders and %d of sets", holders, sets)
	}
}

// TestTapTellsOfAnotherLife: after it nothing is as it was.
func TestTapTellsOfAnotherLife(t *testing.T) {
	m := NewMachine()
	if _, err := m.Apply(1, 1, [][]byte{Command{Op: OpBind, Session: Key{1}, Backend: "b"}.encode()}); err != nil {
		t.Fatal(err)
	}
	saved := written(t, m)
	var heard []Applied
	m.Tap(func(a Applied) {
		if m.Len() > 1 { // it may look, for no lock is held
			t.Error("there are two")
		}
		heard = append(heard, a)
	})
	m.Reset()
	if err := m.Restore(bytes.NewReader(saved)); err != nil {
		t.Fatal(err)
	}
	if len(heard) != 2 || !heard[0].Restored || !heard[1].Restored || heard[0].Life == heard[1].Life || m.Len() != 1 {
		t.Errorf("heard %+v; %d sessions", heard, m.Len())
	}
	if err := m.Restore(bytes.NewReader(saved[:20])); err == nil || m.Len() != 1 || len(heard) != 2 {
		t.Errorf("half a snapshot: %v, %d sessions", err, m.Len())
	}
	m.Tap(nil)
	m.Reset()
	if len(heard) != 2 {
		t.Error("told after the tap was closed")
	}
}
