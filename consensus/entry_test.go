package consensus

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/starling-lb/starling/consensus/transport"
)

func TestEntries(t *testing.T) {
	for _, commands := range [][][]byte{{}, {{}}, {[]byte("a")}, {[]byte("a"), {}, bytes.Repeat([]byte("b"), 300)}, slices.Repeat([][]byte{[]byte("x")}, maxCommands)} {
		b := encodeEntry(commands)
		got, err := decodeEntry(b)
		if err != nil || !slices.EqualFunc(commands, got, bytes.Equal) {
			t.Errorf("%d commands came back as %d, %v", len(commands), len(got), err)
		}
		if _, err := decodeEntry(append(b, 0)); !errors.Is(err, errEntry) {
			t.Errorf("a byte too many: %v", err)
		}
		if _, err := decodeEntry(b[:len(b)-1]); !errors.Is(err, errEntry) {
			t.Errorf("a byte too few: %v", err)
		}
	}
	if _, err := decodeEntry([]byte{entryVersion + 1, 0}); !errors.Is(err, errEntry) {
		t.Errorf("a version that is not known: %v", err)
	}
}

func FuzzEntry(f *testing.F) {
	f.Add(encodeEntry([][]byte{[]byte("a"), {}, []byte("bc")}))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		commands, err := decodeEntry(b)
		if err != nil {
			return
		}
		again, err := decodeEntry(encodeEntry(commands)) // a length may have been written longer than need be
		if err != nil || !slices.EqualFunc(commands, again, bytes.Equal) {
			t.Errorf("%q is %q and then %q, %v", b, commands, again, err)
		}
	})
}

func FuzzRenew(f *testing.F) {
	f.Add(encodeRenew(transport.GroupID{Shard: 7, Incarnation: 2}, 9))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, term, err := decodeRenew(b)
		if err == nil && !bytes.Equal(encodeRenew(id, term), b) {
			t.Errorf("%x was read as %v, term %d", b, id, term)
		}
	})
}
