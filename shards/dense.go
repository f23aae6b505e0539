package shards

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"
)

// dense maps keys to small values without a pointer, so that a million sessions
// are one block of memory that the garbage collector need not look at. The zero
// value of V is no value.
//
// Slots stand in the order of their keys' places, each at its home or as near
// behind it as there is room (linear probing, kept sorted). So the same content is
// always read in the same order, and a copy is a copy of bytes: a snapshot sorts
// nothing. It takes 1.25 to 1.9 slots per key.
type dense[V comparable] struct {
	slots []slot[V] // room, and what ran over its end
	room  int
	n     int
}

type slot[V comparable] struct {
	key   Key
	value V
}

const denseLeast = 16 // slots

// place orders keys. All bits count: the keys of a shard have their first ones in
// common, and those of tests have but a few.
func place(k *Key) uint64 {
	a, b := binary.BigEndian.Uint64(k[:8]), binary.BigEndian.Uint64(k[8:])
	x := (a ^ bits.RotateLeft64(b, 32)) * 0x9e3779b97f4a7c15
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return x ^ x>>32
}

// home grows with the place, so the order of homes is the order of places.
func (d *dense[V]) home(place uint64) int {
	hi, _ := bits.Mul64(place, uint64(d.room))
	return int(hi)
}

// find returns the key's slot, or the one before which it belongs.
func (d *dense[V]) find(k *Key) (int, bool) {
	var none V
	at := place(k)
	i := d.home(at)
	for ; i < len(d.slots) && d.slots[i].value != none; i++ {
		s := &d.slots[i]
		if s.key == *k {
			return i, true
		}
		if p := place(&s.key); p > at || p == at && bytes.Compare(s.key[:], k[:]) > 0 {
			break
		}
	}
	return i, false
}

// get returns the zero value for a key that is not there.
func (d *dense[V]) get(k Key) (v V) {
	if i, ok := d.find(&k); ok {
		v = d.slots[i].value
	}
	return v
}

// at is where the key's value is, for a change in place; nil: nowhere.
func (d *dense[V]) at(k Key) *V {
	if i, ok := d.find(&k); ok {
		return &d.slots[i].value
	}
	return nil
}

// put sets a key's value, which must not be zero.
func (d *dense[V]) put(k Key, v V) {
	i, ok := d.find(&k)
	if ok {
		d.slots[i].value = v
		return
	}
	if d.n >= d.room/5*4 {
		d.resize(max(denseLeast, d.room/2*3))
		i, _ = d.find(&k)
	}
	var none V
	j := i
	for j < len(d.slots) && d.slots[j].value != none {
		j++
	}
	if j == len(d.slots) {
		d.slots = append(d.slots, slot[V]{})
	}
	copy(d.slots[i+1:j+1], d.slots[i:j])
	d.slots[i] = slot[V]{k, v}
	d.n++
}

// drop takes a key out, and says whether it was there.
func (d *dense[V]) drop(k Key) bool {
	i, ok := d.find(&k)
	if !ok {
		return false
	}
	var none V
	j := i + 1
	for j < len(d.slots) && d.slots[j].value != none && d.home(place(&d.slots[j].key)) < j {
		j++ // away from home: it moves up
	}
	copy(d.slots[i:], d.slots[i+1:j])
	d.slots[j-1] = slot[V]{}
	if d.n--; d.n < d.room/4 && d.room > 4*denseLeast {
		d.resize(d.room / 2)
	}
	return true
}

// resize moves all into a new block, from the first to the last.
func (d *dense[V]) resize(room int) {
	var none V
	old := d.slots
	d.room, d.slots = room, make([]slot[V], room, room+room/64+8) // what runs over the end rarely needs a new block
	next := 0
	for i := range old {
		if old[i].value == none {
			continue
		}
		at := max(next, d.home(place(&old[i].key)))
		for at >= len(d.slots) {
			d.slots = append(d.slots, slot[V]{})
		}
		d.slots[at], next = old[i], at+1
	}
}

// load puts keys into an empty one that come in the order of their places. One by
// one, put would crowd them at the front. Until loaded nothing else may be called.
func (d *dense[V]) load(k Key, v V) {
	d.slots = append(d.slots, slot[V]{k, v})
	d.n++
}

func (d *dense[V]) loaded() { d.resize(max(denseLeast, d.n/2*3)) }

// all goes through the keys in the order of their places; nothing may be put or
// dropped meanwhile.
func (d *dense[V]) all() iter.Seq2[Key, V] {
	var none V
	return func(yield func(Key, V) bool) {
		for i := range d.slots {
			if s := &d.slots[i]; s.value != none && !yield(s.key, s.value) {
				return
			}
		}
	}
}

func (d *dense[V]) clone() dense[V] {
	return dense[V]{slots: slices.Clone(d.slots), room: d.room, n: d.n}
}

// follows says whether a key may come after another in the order of places.
func follows(k, before *Key) bool {
	p, q := place(k), place(before)
	return p > q || p == q && bytes.Compare(k[:], before[:]) > 0
}
