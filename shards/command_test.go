package shards

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
)

// some is one command of each kind.
func some() []Command {
	targets := []Target{{Key{1}, 3, "b2"}, {Key{2}, 1, ""}, {Key{3}, 9, "b1"}, {Key{4}, 1, "b2"}}
	return []Command{
		{Op: OpBind, Session: Key{1, 2}, Backend: "b1", Seen: 3},
		{Op: OpRebind, Session: Key{1, 2}, Backend: "b1", Seen: 3},
		{Op: OpMove, Term: 7, Targets: targets},
		{Op: OpDown, Pool: "llm", Revision: 8, Backend: "b1", Targets: targets},
		{Op: OpHolder, Node: "n1", Boot: 1 << 40},
		{Op: OpUnholder, Node: "n1", Boot: 3},
		{Op: OpSet, Pool: "llm", Revision: 4, Backends: []Backend{{"b1", 1}, {"b2", 1000}}},
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
	many := Command{Op: OpMove, Targets: make([]Target, maxTargets+1)}
	for i := range many.Targets {
		many.Targets[i].Seen = 1
	}
	bad := [][]byte{newer, other, {}, many.encode()}
	for _, c := range some() {
		whole := c.encode()
		for cut := range whole {
			bad = append(bad, whole[:cut])
		}
		bad = append(bad, append(bytes.Clone(whole), 0))
	}
	for _, c := range []Command{
		{Op: OpBind, Session: Key{1}}, {Op: OpRebind, Session: Key{1}, Backend: "b"}, {Op: OpHolder}, {Op: OpSet},
		{Op: OpDown, Pool: "llm"}, {Op: OpMove, Targets: []Target{{Session: Key{1}}}},
		{Op: OpSet, Pool: "llm", Backends: []Backend{{"b", 1}, {"b", 2}}},
	} {
		bad = append(bad, c.encode())
	}
	for _, b := range bad {
		if _, err := m.Apply(1, 1, [][]byte{good, b}); !errors.Is(err, errCode) {
			t.Errorf("%x: %v", b, err)
		}
	}
	if m.Len() != 0 {
		t.Error("half of an entry was done")
	}
}

// TestTheLargestCommandFits in a log's entry, which takes a megabyte, with 256
// backends of long names.
func TestTheLargestCommandFits(t *testing.T) {
	c := Command{Op: OpMove}
	for i := range maxTargets {
		var k Key
		binary.BigEndian.PutUint32(k[:], uint32(i))
		c.Targets = append(c.Targets, Target{k, 1, fmt.Sprintf("%0255d", i%256)})
	}
	b := c.encode()
	if back, err := decodeCommand(b); len(b) > 1<<20 || err != nil || len(back.Targets) != maxTargets {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func FuzzCommand(f *testing.F) {
	for _, c := range some() {
		f.Add(c.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := decodeCommand(b); err == nil && !bytes.Equal(c.encode(), b) {
			t.Errorf("%x was read as %+v", b, c)
		}
	})
}
