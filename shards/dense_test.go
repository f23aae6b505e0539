package shards

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// TestDense does at random what a map does, with keys that are all alike, that
// crowd at one home, and at the last one.
func TestDense(t *testing.T) {
	last := Key{}
	for k := (Key{}); binary.BigEndian.Uint32(k[12:]) < 1<<14; binary.BigEndian.PutUint32(k[12:], binary.BigEndian.Uint32(k[12:])+1) {
		if place(&k) > place(&last) {
			last = k
		}
	}
	crowd := func(n int) Key { // another key with the place of the last: both halves change, their difference does not
		k := last
		binary.BigEndian.PutUint32(k[4:], binary.BigEndian.Uint32(k[4:])^uint32(n))
		binary.BigEndian.PutUint32(k[8:], binary.BigEndian.Uint32(k[8:])^uint32(n))
		return k
	}
	if a, b := crowd(1), crowd(2); place(&a) != place(&b) || a == b {
		t.Fatalf("%v and %v do not crowd", a, b)
	}
	for name, key := range map[string]func(n int) Key{
		"few bits": func(n int) Key { return Key{byte(n), byte(n >> 8)} },
		"low bits": func(n int) Key { return Key{14: byte(n >> 8), 15: byte(n)} },
		"crowd":    crowd,
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			var d dense[spot]
			want := make(map[Key]spot)
			for i := range 20000 {
				k := key(r.IntN(1 + i/10%600)) // grows and shrinks
				if r.IntN(3) == 0 {
					_, there := want[k]
					if d.drop(k) != there {
						t.Fatalf("step %d: drop of %v, which was there: %v", i, k, there)
					}
					delete(want, k)
					continue
				}
				s := spot{uint32(r.IntN(9)), Epoch(1 + r.IntN(9))}
				d.put(k, s)
				want[k] = s
				if i%500 == 0 {
					same(t, &d, want)
				}
			}
			same(t, &d, want)
			for k := range want {
				if !d.drop(k) {
					t.Fatal("a key is lost")
				}
			}
			if same(t, &d, nil); d.room > 4*denseLeast {
				t.Errorf("an empty one has room for %d", d.room)
			}
		})
	}
}

func same(t *testing.T, d *dense[spot], want map[Key]spot) {
	t.Helper()
	if d.n != len(want) {
		t.Fatalf("it has %d keys, want %d", d.n, len(want))
	}
	seen := 0
	var before Key
	for k, s := range d.all() {
		if want[k] != s || d.get(k) != s || seen > 0 && !follows(&k, &before) {
			t.Fatalf("%v: %v, found as %v, want %v; it comes after %v", k, s, d.get(k), want[k], before)
		}
		before = k
		seen++
	}
	if seen != len(want) {
		t.Fatalf("%d of %d keys were met", seen, len(want))
	}
}
