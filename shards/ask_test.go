package shards

import (
	"bytes"
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
