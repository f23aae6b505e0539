package shards

import (
	"container/heap"
	"sync"
	"time"
)

// Uses is when the sessions of one shard and pool were last used, in the memory of
// the shard's leader: no log has it, it dies with the term, and a new leader begins
// afresh. A session takes 30 to 45 bytes. Times are those of the caller's clock
// since any moment, not negative, and kept to 4 ns: the two bits below are how often
// a session was used that was born under this leader.
//
// There are no lists and no timers. What is old is found by a look at all, about
// 5 ns per session, so ask now and then and for many at a time.
type Uses struct {
	mu   sync.Mutex // guards last
	last dense[int64]
}

const (
	countBits = 3
	settled   = 3 // uses: its first turn, the report of it, and what came later
)

func stamp(at time.Duration) int64 { return (int64(at) + countBits + 1) &^ countBits } // 0 is no use
func when(v int64) int64           { return v&^countBits - countBits - 1 }

// Begin notes a session that was there before the leader led. It is none that is new.
func (u *Uses) Begin(k Key, at time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last.put(k, stamp(at))
}

// Touch notes a use; an older one than is known changes nothing.
func (u *Uses) Touch(k Key, at time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	was, t := u.last.get(k), stamp(at)
	switch count := was & countBits; {
	case t <= was&^countBits:
		return
	case was == 0:
		t |= 1
	case count > 0:
		t |= min(settled, count+1)
	}
	u.last.put(k, t)
}

// Last is when a session was last used, and whether it is new: nothing is known but
// its first turn, which was told once more by a report.
func (u *Uses) Last(k Key) (at time.Duration, fresh, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	v := u.last.get(k)
	if v == 0 {
		return 0, false, false
	}
	count := v & countBits
	return time.Duration(when(v)), count > 0 && count < settled, true
}

// Drop forgets a session.
func (u *Uses) Drop(k Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last.drop(k)
}

// Len is how many sessions are known.
func (u *Uses) Len() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last.n
}

// Before returns up to n sessions that were last used before a time: those of a
// TTL ago may be let go.
func (u *Uses) Before(t time.Duration, n int) (all []Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for k, last := range u.last.all() {
		if len(all) == n {
			break
		}
		if when(last) < int64(t) {
			all = append(all, k)
		}
	}
	return all
}

// Oldest returns the n sessions that were not used for longest, in no order: for a
// full shard. Ask for a hundredth of it or so; whoever finds one of them busy
// touches it.
func (u *Uses) Oldest(n int) []Key {
	u.mu.Lock()
	defer u.mu.Unlock()
	return oldest(&u.last, n, when)
}

// oldest finds the n keys with the least times.
func oldest[V comparable](d *dense[V], n int, time func(V) int64) []Key {
	if n <= 0 {
		return nil
	}
	var h ages
	for k, v := range d.all() {
		switch t := time(v); {
		case len(h) < n:
			if h = append(h, aged{k, t}); len(h) == n {
				heap.Init(&h)
			}
		case t < h[0].at:
			h[0] = aged{k, t}
			heap.Fix(&h, 0)
		}
	}
	keys := make([]Key, len(h))
	for i, a := range h {
		keys[i] = a.key
	}
	return keys
}

// ages has the youngest on top.
type ages []aged

type aged struct {
	key Key
	at  int64
}

func (h ages) Len() int           { return len(h) }
func (h ages) Less(i, j int) bool { return h[i].at > h[j].at }
func (h ages) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *ages) Push(any)          { panic("BUG: it never grows") }
func (h *ages) Pop() any          { panic("BUG: it never shrinks") }
