package shards

import (
	"bytes"
	"slices"
	"testing"
)

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

func FuzzItems(f *testing.F) {
	all := []item{
		{kind: itemBegin, shard: 1, incarnation: 2, term: 3, index: 4},
		{kind: itemHold, shard: 1, number: 5, idle: 6, keys: []Key{{7}, {8}}},
		{kind: itemRelease, shard: 1, number: 5, keys: []Key{{7}}},
		{kind: itemChange, shard: 1, index: 9, session: Key{7}, binding: Binding{"b1", 2}},
		{kind: itemChange, shard: 1, index: 10, session: Key{7}, binding: Binding{"", 2}},
		{kind: itemGrant, shard: 1, number: 11},
	}
	for _, i := range all {
		f.Add(encodeItems([]item{i})[0])
	}
	f.Add(encodeItems(all)[0])
	f.Add(encodeItems(nil)[0])
	f.Fuzz(func(t *testing.T, b []byte) {
		items, err := decodeItems(b)
		if err != nil {
			return
		}
		again := []byte{codeVersion}
		for _, i := range items {
			again = i.append(again)
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x was read as %+v", b, items)
		}
	})
}

// TestMessagesAreCut, so that each fits in a feed, however many changes there are.
func TestMessagesAreCut(t *testing.T) {
	var all []item
	for i := range 20000 {
		all = append(all, item{kind: itemChange, shard: 1, session: Key{byte(i), byte(i >> 8)}, binding: Binding{string(bytes.Repeat([]byte{'b'}, maxName)), 2}})
	}
	n := 0
	for _, m := range encodeItems(all) {
		if len(m) > maxMessage+16*maxKeys+512 {
			t.Errorf("a message of %d bytes", len(m))
		}
		items, err := decodeItems(m)
		if err != nil {
			t.Fatal(err)
		}
		n += len(items)
	}
	if n != len(all) {
		t.Errorf("%d items of %d", n, len(all))
	}
}

// TestLivesInARenewal: a renewal names each older life, and the oldest for who knows no
// more; of very many, and in any other question, it is the oldest alone.
func TestLivesInARenewal(t *testing.T) {
	many := make([]uint64, maxElders+1)
	for i := range many {
		many[i] = uint64(i) + 3
	}
	for _, tt := range []struct {
		ask    ask
		living []uint64
		elder  uint64
		named  int
	}{
		{askRenew, nil, 0, 0},
		{askRenew, []uint64{9, 4, 7}, 4, 3},
		{askBind, []uint64{9, 4, 7}, 4, 0},
		{askRenew, many[:maxElders], 3, maxElders},
		{askRenew, many, 3, 0},
	} {
		q := question{ask: tt.ask, shard: 1}
		q.live(tt.living)
		got, err := decodeQuestion(q.encode())
		if err != nil || got.elder != tt.elder || len(got.living()) != tt.named || tt.named > 0 && !slices.Equal(got.living(), tt.living) {
			t.Errorf("%d of %v: elder %d, named %v, %v", tt.ask, tt.living, got.elder, got.living(), err)
		}
	}
}
