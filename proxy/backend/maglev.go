package backend

import (
	"hash/fnv"
	"math"
	"slices"
)

// maglev sends a key to the same backend each time, by a table in which every
// backend has filled a part that is its weight's, in an order that only its own
// id decides (Eisenbud et al., NSDI 2016). Who joins or leaves moves about its
// own part of the keys. A backend that may not be used, or that has more than
// its bound, passes its keys on to others, each key to another.
type maglev struct {
	table []uint16  // indexes of the list
	bound float64   // of its part of the load, that a backend has at most; 0: none
	parts []float64 // of all weights, by backend
}

// The tables' sizes: primes, a hundred times the backends at least, up to 650
// of them.
const (
	smallTable = 4099
	largeTable = 65537
)

func newMaglev(list []*Backend, bound float64) maglev {
	m := maglev{bound: bound, parts: make([]float64, len(list))}
	if len(list) == 0 {
		return m
	}
	sum := 0.0
	for i, b := range list {
		m.parts[i] = float64(b.terms.Load().Weight)
		sum += m.parts[i]
	}
	for i := range m.parts {
		m.parts[i] /= sum
	}
	size := smallTable
	if len(list) > smallTable/100 {
		size = largeTable
	}
	m.fill(list, size)
	return m
}

// free is a place of the table that nobody has taken yet.
const free = math.MaxUint16

// fill has the backends take free places in turn, a lighter one more rarely.
func (m *maglev) fill(list []*Backend, size int) {
	m.table = slices.Repeat([]uint16{free}, size)
	most := slices.Max(m.parts)
	at, skip, credit := make([]int, len(list)), make([]int, len(list)), make([]float64, len(list))
	for i, b := range list {
		h := fnv.New64a()
		_, _ = h.Write([]byte(b.ID))
		x := mix(h.Sum64())
		at[i], skip[i] = int(x%uint64(size)), int(mix(x)%uint64(size-1))+1
	}
	for left := size; ; {
		for i := range list {
			if credit[i] += m.parts[i] / most; credit[i] < 1 {
				continue
			}
			credit[i]--
			for m.table[at[i]] != free {
				at[i] = (at[i] + skip[i]) % size
			}
			m.table[at[i]] = uint16(i)
			if left--; left == 0 {
				return
			}
		}
	}
}

// mix spreads what differs in a few bits over all: the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// probes is how many places of the table a key tries before it goes to the
// emptiest of all.
const probes = 16

func (m maglev) choose(c choice) *Backend {
	key, all := c.ask.Hash, 0.0
	if key == 0 {
		key = c.pool.random() // no key: anywhere
	}
	if m.bound > 0 {
		all = c.pool.inFlight() + 1
		if part := c.pool.part.Load(); part > 0 {
			all /= part // those who are left have more to do, each in proportion
		}
	}
	for i := range uint64(probes) {
		x := mix(key + i*0x9e3779b97f4a7c15)
		at := m.table[x%uint64(len(m.table))]
		b := c.list[at]
		if !c.fits(b) || c.set.rules.Placement.SlowStart > 0 && float64(x>>11)/(1<<53) >= c.warm(b) {
			continue
		}
		if m.bound == 0 || c.load(b)*c.share(b) <= math.Ceil(m.bound*all*m.parts[at]) {
			return b
		}
	}
	return c.least(byLoad)
}

// inFlight is the number of streams at the pool's backends, the whole cluster's.
func (p *Pool) inFlight() float64 {
	return float64(p.flights.Load()&countMask) + p.elsewhere.Load()
}
