package shards

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// TestDigest: replicas that applied the same are alike, also one that began from a
// snapshot in the middle; one that left a single command out is like none of them.
func TestDigest(t *testing.T) {
	all := commands(7, 2000)
	a, b, restored := NewMachine(), NewMachine(), NewMachine()
	apply := func(m *Machine, i int) {
		t.Helper()
		if _, err := m.Apply(3, uint64(i+1), [][]byte{all[i].encode()}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range all {
		apply(a, i)
		if i == 1000 {
			if err := restored.Restore(bytes.NewReader(written(t, a))); err != nil {
				t.Fatal(err)
			}
			now, marks := restored.Digests()
			if whole, _ := a.Digests(); now.Digest != whole.Digest || now.Index != 0 || len(marks) != 0 {
				t.Fatalf("restored: %+v, %v; the original: %+v", now, marks, whole)
			}
		}
		if i > 1000 {
			apply(restored, i)
		}
		if i < 1100 {
			apply(b, i)
		}
	}
	now, marks := a.Digests()
	if now.Index != 2000 || len(marks) != maxMarks || marks[maxMarks-1].Index != 2000/markEvery*markEvery {
		t.Fatalf("%+v, %+v", now, marks)
	}
	if other, same := restored.Digests(); other != now || !slices.Equal(marks[1:], same[len(same)-maxMarks+1:]) {
		t.Errorf("restored: %+v %v\nwant      %+v %v", other, same, now, marks)
	}
	if _, err := b.Apply(3, 1101, [][]byte{Command{Op: OpBind, Session: Key{0xee}, Backend: "b1"}.encode()}); err != nil {
		t.Fatal(err)
	}
	left, _ := b.Digests()
	for i := 1100; i < len(all); i++ { // whatever comes of the same commands, one session is too many
		apply(b, i)
	}
	if other, _ := b.Digests(); other.Digest == now.Digest || left.Digest == other.Digest {
		t.Errorf("with a session more: %+v, as without it", other)
	}
}

// TestMarksPassHoles: entries that are not for the machine leave holes in its indices,
// and a mark is what there was before it all the same.
func TestMarksPassHoles(t *testing.T) {
	bind := func(m *Machine, index uint64, k byte) {
		t.Helper()
		if _, err := m.Apply(1, index, [][]byte{Command{Op: OpBind, Session: Key{k}, Backend: "b"}.encode()}); err != nil {
			t.Fatal(err)
		}
	}
	m := NewMachine()
	bind(m, 60, 1)
	before, _ := m.Digests()
	bind(m, 3*markEvery+5, 2)
	if _, marks := m.Digests(); !slices.Equal(marks, []Mark{{3 * markEvery, before.Digest}}) {
		t.Errorf("marks: %+v, before: %+v", marks, before)
	}
}

// TestDigestForm: what a table comes to stays what it is, or the form has another
// number: nodes of two versions are compared.
func TestDigestForm(t *testing.T) {
	m := NewMachine()
	for i, c := range commands(7, 200) {
		if _, err := m.Apply(3, uint64(i+1), [][]byte{c.encode()}); err != nil {
			t.Fatal(err)
		}
	}
	now, _ := m.Digests()
	if got := fmt.Sprintf("%d-%016x", DigestForm, now.Digest); got != "1-f43e4a3f44d68937" {
		t.Errorf("the table comes to %s, want 1-f43e4a3f44d68937: where that is meant raise DigestForm, and write here what it is by now", got)
	}
}
