package shards

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

const tick = 1 << cacheTick // ns

// TestCacheNeverGoesBack: by no way is a session known by a lower epoch than before.
func TestCacheNeverGoesBack(t *testing.T) {
	c := NewCache(1000)
	k := Key{1}
	if _, ok := c.Use(k, 0); ok {
		t.Fatal("it knows what nobody told")
	}
	put := func(b Binding, section uint32, want bool) {
		t.Helper()
		if c.Put(k, b, section, 0) != want {
			t.Errorf("put of %+v: %v", b, !want)
		}
	}
	put(Binding{"b1", 5}, 1, true)
	put(Binding{"b2", 4}, 2, false)
	put(Binding{"b2", 6}, 2, true)
	put(Binding{"b1", 5}, 3, false)
	if c.Drop(k, 5) {
		t.Error("an older epoch dropped it")
	}
	if got, ok := c.Peek(k, 0); !ok || got != (Cached{Binding{"b2", 6}, 2, 0}) {
		t.Errorf("known is %+v, %v", got, ok)
	}
	if !c.Drop(k, 6) || c.Len() != 0 {
		t.Error("it was not dropped")
	}
}

// TestCacheNotesNoUseBack: whoever read the clock before another's use, and looks after
// it, finds a session in use, and not one that was idle for years.
func TestCacheNotesNoUseBack(t *testing.T) {
	c := NewCache(1000)
	k := Key{1}
	c.Put(k, Binding{"b1", 1}, 1, 9*tick)
	for name, look := range map[string]func(now time.Duration) Cached{
		"use":  func(now time.Duration) Cached { got, _ := c.Use(k, now); return got },
		"peek": func(now time.Duration) Cached { got, _ := c.Peek(k, now); return got },
		"take": func(now time.Duration) Cached { got, _ := c.Take(k, 1, now, time.Hour); return got },
		"each": func(now time.Duration) (got Cached) {
			c.Each(now, func(_ Key, one Cached) { got = one })
			return got
		},
	} {
		if got := look(8 * tick); got.Idle != 0 {
			t.Errorf("%s: used a tick later, it is idle for %v", name, got.Idle)
		}
		if got := look(10 * tick); got.Idle > tick {
			t.Errorf("%s: a tick after its use it is idle for %v", name, got.Idle)
		}
		c.Put(k, Binding{"b1", 1}, 1, 9*tick)
	}
}

// TestCacheTakesWhatStands: a use is noted only where the section is the one and the
// session did not rest for long.
func TestCacheTakesWhatStands(t *testing.T) {
	c := NewCache(1000)
	k := Key{1}
	c.Put(k, Binding{"b1", 1}, 7, 0)
	for _, step := range []struct {
		section uint32
		rest    time.Duration
		used    bool
		want    time.Duration
	}{{8, time.Hour, false, 5 * tick}, {7, 5 * tick, false, 5 * tick}, {7, 6 * tick, true, 5 * tick}, {7, tick, true, 0}} {
		if got, used := c.Take(k, step.section, 5*tick, step.rest); used != step.used || got != (Cached{Binding{"b1", 1}, 7, step.want}) {
			t.Errorf("%+v: %+v, used %v", step, got, used)
		}
	}
	if got, used := c.Take(Key{2}, 7, 0, time.Hour); used || got != (Cached{}) {
		t.Errorf("of another session: %+v, used %v", got, used)
	}
}

// TestCacheKnowsWhatIsIdle.
func TestCacheKnowsWhatIsIdle(t *testing.T) {
	c := NewCache(1000)
	k := Key{1}
	c.Put(k, Binding{"b1", 1}, 1, 5*tick)
	for _, step := range []struct {
		now  time.Duration
		use  bool
		want time.Duration
	}{{8 * tick, false, 3 * tick}, {10 * tick, true, 5 * tick}, {10 * tick, false, 0}, {11 * tick, true, tick}} {
		got, _ := c.look(k, step.now, step.use)
		if got.Idle != step.want {
			t.Errorf("at %v it was idle for %v, want %v", step.now, got.Idle, step.want)
		}
	}
	late := time.Duration(1<<32-1) * tick // the count of ticks begins anew
	c.Put(Key{2}, Binding{"b1", 1}, 1, late-tick)
	c.Use(Key{2}, late)
	if got, _ := c.Use(Key{2}, late+2*tick); got.Idle != 2*tick {
		t.Errorf("after the count began anew it was idle for %v", got.Idle)
	}
}

// TestCacheIsBounded, and keeps what was used last.
func TestCacheIsBounded(t *testing.T) {
	c := NewCache(cacheParts * 32)
	for i, k := range keys(40000) {
		c.Put(k, Binding{fmt.Sprint("b", i), 1}, 1, time.Duration(i)*tick)
	}
	if n := c.Len(); n > cacheParts*32 || n < cacheParts*24 {
		t.Errorf("it keeps %d", n)
	}
	if n := len(*c.names.text.Load()); n > c.Len()+cacheParts*3 {
		t.Errorf("%d names for %d sessions", n, c.Len())
	}
	c.Each(40000*tick, func(k Key, is Cached) {
		if is.Idle > 3*cacheParts*32*tick {
			t.Errorf("%v, idle for %v, is still there: %+v", k, is.Idle, is)
		}
		c.Drop(k, is.Epoch) // allowed meanwhile
	})
	if c.Len() != 0 || c.names.names.free != len(c.names.names.text) {
		t.Errorf("%d sessions are left, and of %d names %d are free", c.Len(), len(c.names.names.text), c.names.names.free)
	}
}

// TestCacheFromAllSides: whoever uses a session sees a backend that belongs to its
// epoch. The race detector sees the rest.
func TestCacheFromAllSides(t *testing.T) {
	c := NewCache(cacheParts * 16) // so small that it lets go all the time
	all := keys(6000)
	var tasks sync.WaitGroup
	for g := range 4 {
		tasks.Go(func() {
			for i := range 20000 {
				k, e := all[(i*7+g*1009)%len(all)], Epoch(1+i%50)
				now := time.Duration(i) * tick
				switch got, ok := c.Use(k, now); {
				case ok && got.Backend != fmt.Sprint("b", got.Epoch):
					t.Errorf("%+v", got)
				case ok && i%5 == 0:
					c.Drop(k, got.Epoch)
				default:
					c.Put(k, Binding{fmt.Sprint("b", e), e}, uint32(g), now)
				}
			}
		})
	}
	tasks.Wait()
}

// BenchmarkCacheHit, of a million sessions, from as many goroutines as there are
// processors.
func BenchmarkCacheHit(b *testing.B) {
	c := NewCache(2_000_000)
	all := keys(1_000_000)
	for i, k := range all {
		c.Put(k, Binding{backendName(i), 1}, 1, 0)
	}
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		i := int(time.Now().UnixNano()) % len(all)
		for pb.Next() {
			if _, ok := c.Use(all[i], 1); !ok {
				b.Error("a miss")
			}
			if i += 7919; i >= len(all) {
				i -= len(all)
			}
		}
	})
}

// TestCacheHears of what is known alone, and of no use.
func TestCacheHears(t *testing.T) {
	c := NewCache(1000)
	k, b := Key{1}, "b1"
	c.Put(k, Binding{b, 2}, 1, 5*tick)
	for _, step := range []struct {
		key  Key
		b    Binding
		want Cached
	}{
		{Key{2}, Binding{"b2", 9}, Cached{}},
		{k, Binding{"b2", 1}, Cached{Binding{b, 2}, 1, 3 * tick}},
		{k, Binding{"b2", 3}, Cached{Binding{"b2", 3}, 7, 3 * tick}},
		{k, Binding{"b2", 3}, Cached{Binding{"b2", 3}, 7, 3 * tick}},
		{k, Binding{nowhere, 3}, Cached{Binding{nowhere, 3}, 7, 0}},
	} {
		c.Hear(step.key, step.b, 7, 8*tick)
		if got, _ := c.Peek(step.key, 8*tick); got != step.want {
			t.Errorf("after %+v it is %+v, want %+v", step.b, got, step.want)
		}
	}
	if c.Put(k, Binding{"b3", 4}, 7, 6*tick); c.Len() != 1 {
		t.Errorf("it knows of %d sessions", c.Len())
	}
	if got, _ := c.Peek(k, 8*tick); got.Idle != 0 {
		t.Errorf("a use of before another makes it idle for %v", got.Idle)
	}
}
