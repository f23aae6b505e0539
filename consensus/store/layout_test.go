package store

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"
)

func FuzzName(f *testing.F) {
	f.Add(encodeName(Key{Shard: 7, Incarnation: 2, Life: 9}, false))
	f.Add(encodeName(Key{}, true))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, leaving, err := decodeName(b)
		if err != nil {
			return
		}
		if out := encodeName(k, leaving); !bytes.Equal(out, b) {
			t.Errorf("%q was read as %v, %v, which is written as %q", b, k, leaving, out)
		}
	})
}

// FuzzUnseal: what a page holds is raft's entry, whole and from that very place,
// or an error; and an entry that was sealed comes back as it was.
func FuzzUnseal(f *testing.F) {
	good := seal(3, &raft.Log{Index: 5, Term: 2, Type: raft.LogCommand, Data: []byte("bind"), Extensions: []byte("x")})
	f.Add(good.Index, good.Index, good.Term, byte(good.Type), good.Data, good.Extensions)
	f.Add(good.Index+1, good.Index, good.Term, byte(good.Type), good.Data, good.Extensions)
	f.Add(uint64(1), uint64(1), uint64(1), byte(0), []byte{1, 2, 3}, []byte(nil))
	f.Fuzz(func(t *testing.T, at, index, term uint64, kind byte, data, more []byte) {
		read := raft.Log{Index: index, Term: term, Type: raft.LogType(kind), Data: bytes.Clone(data), Extensions: bytes.Clone(more)}
		slot, own := parts(at)
		if err := unseal(at, &read); err == nil {
			again := seal(slot, &read)
			if again.Index != at || !bytes.Equal(again.Data, data) {
				t.Errorf("%q at %d was read as %+v, which is written as %q at %d", data, at, read, again.Data, again.Index)
			}
		}
		entry := raft.Log{Index: own, Term: term, Type: raft.LogType(kind), Data: data, Extensions: more}
		back := *seal(slot, &entry)
		if err := unseal(at, &back); err != nil || back.Index != own || !bytes.Equal(back.Data, data) {
			t.Errorf("%+v came back as %+v, %v", entry, back, err)
		}
		back = *seal(slot, &entry)
		back.Data[len(back.Data)-1] ^= 1
		if unseal(at, &back) == nil {
			t.Error("a flipped bit went unseen")
		}
	})
}
