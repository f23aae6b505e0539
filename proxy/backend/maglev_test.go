package backend

import (
	"slices"
	"testing"
	"time"
)

// keyed are the backends that n keys go to, none of them busy.
func keyed(t *testing.T, p *Pool, n int) []string {
	t.Helper()
	ids := make([]string, n)
	for i := range ids {
		l, err := p.Pick(time.Now(), Ask{Hash: mix(uint64(i) + 1)})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = l.Backend().ID
		l.Release(time.Now())
	}
	return ids
}

func moved(a, b []string) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// When one of n joins, about 1 of n+1 keys moves, and no key between those who
// were there; by the remainder of a division nearly all would.
func TestHashMovesFew(t *testing.T) {
	const keys = 10_000
	for _, policy := range []string{ConsistentHash, IPHash} {
		for _, n := range []int{4, 10, 50} {
			p := placed(t, Placement{Policy: policy}, slices.Repeat([]int{1}, n)...)
			before := keyed(t, p, keys)
			if again := keyed(t, p, keys); moved(before, again) != 0 {
				t.Fatalf("%s: %d keys went elsewhere for no reason", policy, moved(before, again))
			}
			rules := p.now.Load().rules
			if err := p.Update(weighted(slices.Repeat([]int{1}, n+1)...), rules, time.Now()); err != nil {
				t.Fatal(err)
			}
			after := keyed(t, p, keys)
			naive := 0
			for i := range keys {
				if h := mix(uint64(i) + 1); h%uint64(n) != h%uint64(n+1) {
					naive++
				}
			}
			got, fair := moved(before, after), keys/(n+1)
			if got < fair*8/10 || got > fair*13/10+keys/100 {
				t.Errorf("%s: %d of %d keys moved as one joined %d, want about %d", policy, got, keys, n, fair)
			}
			if naive < keys*7/10 || got*2 > naive {
				t.Errorf("by remainder %d would have moved, by %s %d did", naive, policy, got)
			}
		}
	}
}

// Keys of one that is out go to all others; the others' keys stay.
func TestHashOfOneThatIsOut(t *testing.T) {
	p := placed(t, Placement{Policy: ConsistentHash}, 1, 1, 1, 1, 1)
	before := keyed(t, p, 5000)
	p.Backends()[0].standing.Store(&Standing{State: Unhealthy})
	after := keyed(t, p, 5000)
	to := map[string]int{}
	for i := range before {
		switch {
		case before[i] == "b0":
			to[after[i]]++
		case before[i] != after[i]:
			t.Fatalf("key %d moved from %s, which is well", i, before[i])
		}
	}
	for _, b := range p.Backends()[1:] {
		if to[b.ID] < 150 || to[b.ID] > 350 {
			t.Errorf("%s got %d of the keys of b0: %v", b.ID, to[b.ID], to)
		}
	}
}

func TestHashByWeight(t *testing.T) {
	p := placed(t, Placement{Policy: ConsistentHash}, 3, 1)
	n := 0
	for _, id := range keyed(t, p, 8000) {
		if id == "b0" {
			n++
		}
	}
	if n < 5600 || n > 6400 {
		t.Errorf("weight 3 of 4 has %d of 8000 keys", n)
	}
}

// One hot key fills its backend to the bound, and no further.
func TestHashIsBounded(t *testing.T) {
	p := placed(t, Placement{Policy: ConsistentHash, BoundedLoad: 125}, 1, 1, 1, 1)
	for range 400 {
		if _, err := p.Pick(time.Now(), Ask{Hash: 7}); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range p.Backends() {
		if n := b.InFlight(); n > 126 {
			t.Errorf("%s has %d of 400 streams of one key", b.ID, n)
		}
	}
	free := placed(t, Placement{Policy: ConsistentHash}, 1, 1, 1, 1)
	for range 40 {
		if _, err := free.Pick(time.Now(), Ask{Hash: 7}); err != nil {
			t.Fatal(err)
		}
	}
	if n := slices.MaxFunc(free.Backends(), func(a, b *Backend) int { return int(a.InFlight() - b.InFlight()) }).InFlight(); n != 40 {
		t.Errorf("without a bound one key's 40 streams are split: %d", n)
	}
}

func TestHashWithoutKey(t *testing.T) {
	p := placed(t, Placement{Policy: ConsistentHash, BoundedLoad: 125}, 1, 1, 1)
	for _, n := range counts(sequence(t, p, 3000), 3) {
		if n < 850 || n > 1150 {
			t.Errorf("%d of 3000 streams without a key at one of 3", n)
		}
	}
}

// Where some are out, the others' bound is of what they have to do then: keys
// stay where they went at first.
func TestBoundOfThoseWhoAreLeft(t *testing.T) {
	p := placed(t, Placement{Policy: ConsistentHash, BoundedLoad: 125}, slices.Repeat([]int{1}, 10)...)
	now := time.Now()
	for _, b := range p.Backends()[:4] {
		p.Drain(b, now, time.Time{})
	}
	first, moved := map[uint64]*Backend{}, 0
	var run []Lease
	for i := range uint64(10_000) {
		key := mix(i%1000 + 1)
		l, err := p.Pick(now, Ask{Hash: key})
		if err != nil {
			t.Fatal(err)
		}
		if was := first[key]; was == nil {
			first[key] = l.Backend()
		} else if was != l.Backend() {
			moved++
		}
		if run = append(run, l); len(run) > 200 {
			run[0].Release(now)
			run = run[1:]
		}
	}
	if moved > 900 {
		t.Errorf("%d of 9000 turns went elsewhere than the first of their key", moved)
	}
}
