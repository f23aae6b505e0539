package backend

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// capped makes a pool of n backends that take room streams each; waiting may
// wait, for a second.
func capped(t testing.TB, n, room, waiting int) *Pool {
	t.Helper()
	p := pool(t, n, ejecting(3, 100), nil)
	for _, b := range p.Backends() {
		b.terms.Store(&Terms{Weight: 1, Cap: room, CapSource: CapConfig})
	}
	p.adopt(p.Backends(), Rules{Outlier: ejecting(3, 100), MaxWaiting: waiting, MaxWait: time.Second})
	return p
}

// waitAtMost changes how long a stream may wait; 0: no limit.
func (p *Pool) waitAtMost(d time.Duration) {
	next := *p.now.Load()
	next.rules.MaxWait = d
	p.now.Store(&next)
}

// fill takes every place there is.
func fill(t testing.TB, p *Pool) (leases []*Lease) {
	t.Helper()
	for {
		l, err := p.Pick(time.Now(), Ask{})
		if errors.Is(err, ErrFull) {
			return leases
		}
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, &l)
	}
}

// turn is one stream that waits.
type turn struct {
	name  string
	lease Lease
	err   error
	done  bool
	leave context.CancelFunc
}

// wait has a stream wait, in a bubble of synctest; what came of it is there
// after synctest.Wait.
func wait(p *Pool, name string, ask Ask) *turn {
	ctx, cancel := context.WithCancel(context.Background())
	w := &turn{name: name, leave: cancel}
	go func() {
		w.lease, w.err = p.Wait(ctx, ask)
		w.done = true
		cancel()
	}()
	synctest.Wait()
	return w
}

// served are the names of those whose wait ended with a place.
func served(turns ...*turn) (names []string) {
	synctest.Wait()
	for _, w := range turns {
		if w.done && w.err == nil {
			names = append(names, w.name)
		}
	}
	return names
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestCaps(t *testing.T) {
	configs := []Config{{ID: "own", URL: "http://a", Weight: 1, MaxStreams: 3}, {ID: "pool's", URL: "http://b", Weight: 1}}
	for _, c := range []struct {
		pool   int
		caps   [2]int
		source CapSource // of the second
	}{{0, [2]int{3, 0}, CapNone}, {7, [2]int{3, 7}, CapConfig}} {
		p, err := NewPool("llm", configs, Rules{MaxStreams: c.pool}, Hooks{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range p.Backends() {
			expect(t, b.ID+"'s cap", b.Terms().Cap, c.caps[i])
		}
		expect(t, "source", p.Backends()[0].Terms().CapSource, CapConfig)
		expect(t, "source", p.Backends()[1].Terms().CapSource, c.source)
	}
}

func TestPickTellsFullFromNone(t *testing.T) {
	p := capped(t, 3, 2, 0)
	leases := fill(t, p)
	if len(leases) != 6 {
		t.Fatalf("%d streams fit in 3 × 2", len(leases))
	}
	a, b := p.Backends()[0], p.Backends()[1]
	for _, c := range []struct {
		name string
		ask  Ask
		want error
	}{
		{"any", Ask{}, ErrFull},
		{"one", Ask{Only: a}, ErrFull},
		{"others than one", Ask{Tried: []*Backend{a}}, ErrFull},
		{"one that was tried", Ask{Only: a, Tried: []*Backend{a}}, ErrNone},
		{"none", Ask{Tried: p.Backends()}, ErrNone},
	} {
		if _, err := p.Pick(time.Now(), c.ask); err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if _, err := p.Wait(context.Background(), c.ask); err != map[error]error{ErrFull: ErrSaturated, ErrNone: ErrNone}[c.want] {
			t.Errorf("%s, in the queue: %v", c.name, err)
		}
	}
	for _, x := range []*Backend{a, b, p.Backends()[2]} {
		x.standing.Store(&Standing{State: Unhealthy})
	}
	if _, err := p.Pick(time.Now(), Ask{}); err != ErrNone {
		t.Errorf("full and unhealthy: %v", err)
	}
	expect(t, "waiting", p.Waiting(), int64(0))
}

// However many pick and release at once, no backend is over its cap, and the
// last place is taken by one.
func TestNeverOverTheCap(t *testing.T) {
	const cap = 3
	p := capped(t, 2, cap, 0)
	counted := make([]atomic.Int64, 2)
	var all sync.WaitGroup
	var full atomic.Int64
	for range 8 {
		all.Go(func() {
			for range 3000 {
				l, err := p.Pick(time.Now(), Ask{})
				if err == ErrFull {
					full.Add(1)
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				b := l.Backend()
				if n := counted[p.slot(b)].Add(1); n > cap || b.InFlight() > cap {
					t.Errorf("%d streams at %s, which counts %d", n, b.ID, b.InFlight())
				}
				runtime.Gosched()
				counted[p.slot(b)].Add(-1)
				l.Release(time.Now())
			}
		})
	}
	all.Wait()
	if full.Load() == 0 {
		t.Error("the cap was never met")
	}
	for _, b := range p.Backends() {
		expect(t, b.ID+"'s streams at the end", b.InFlight(), int64(0))
	}
}

func TestFirstInFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := capped(t, 1, 2, 3)
		leases := fill(t, p)
		a, b, c := wait(p, "a", Ask{}), wait(p, "b", Ask{}), wait(p, "c", Ask{})
		expect(t, "waiting", p.Waiting(), int64(3))
		expect(t, "at the backend", p.Backends()[0].InFlight(), int64(2))
		if _, err := p.Wait(t.Context(), Ask{}); err != ErrSaturated {
			t.Errorf("a fourth: %v", err)
		}
		leases[0].Release(time.Now())
		if got := served(a, b, c); !slices.Equal(got, []string{"a"}) {
			t.Fatalf("one place was given back, and %q have one", got)
		}
		if _, err := p.Pick(time.Now(), Ask{}); err != ErrFull {
			t.Errorf("a newcomer: %v", err)
		}
		d := wait(p, "d", Ask{})
		b.leave() // its place in the queue is d's, but not before c
		synctest.Wait()
		expect(t, "b", b.err, context.Canceled)
		leases[1].Release(time.Now())
		if got := served(a, b, c, d); !slices.Equal(got, []string{"a", "c"}) {
			t.Fatalf("%q have a place", got)
		}
		a.lease.Release(time.Now())
		c.lease.Release(time.Now())
		if got := served(d); !slices.Equal(got, []string{"d"}) {
			t.Fatalf("%q has a place", got)
		}
		d.lease.Release(time.Now())
		expect(t, "at the backend", p.Backends()[0].InFlight(), int64(0))
		expect(t, "waiting", p.Waiting(), int64(0))
	})
}

func TestWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := capped(t, 1, 1, 2)
		held := fill(t, p)[0]
		begin := time.Now()
		_, err := p.Wait(t.Context(), Ask{})
		expect(t, "error", err, ErrWaited)
		expect(t, "wait", time.Since(begin), time.Second)
		p.waitAtMost(0) // no limit
		w := wait(p, "patient", Ask{})
		<-time.After(time.Hour)
		expect(t, "done", w.done, false)
		held.Release(time.Now())
		if got := served(w); len(got) != 1 {
			t.Error("the patient one was not served")
		}
		w.lease.Release(time.Now())
	})
}

// Who waits for a full backend delays nobody whom another could serve, whether
// that one comes later or stands behind it.
func TestWaitForOneDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := capped(t, 2, 1, 8)
		b0, b1 := p.Backends()[0], p.Backends()[1]
		leases := fill(t, p)
		if leases[0].Backend() != b0 {
			slices.Reverse(leases)
		}
		bound := wait(p, "bound", Ask{Only: b0})
		any := wait(p, "any", Ask{})
		last := wait(p, "last", Ask{Only: b1})
		expect(t, "bound to b0", b0.Waiting(), int64(1))
		expect(t, "bound to b1", b1.Waiting(), int64(1))
		leases[1].Release(time.Now())
		if got := served(bound, any, last); !slices.Equal(got, []string{"any"}) {
			t.Fatalf("b1 is free, and %q have a place", got)
		}
		any.lease.Release(time.Now())
		if got := served(bound, any, last); !slices.Equal(got, []string{"any", "last"}) {
			t.Fatalf("b1 is free again, and %q have a place", got)
		}
		last.lease.Release(time.Now()) // now only the bound one waits
		l, err := p.Pick(time.Now(), Ask{})
		if err != nil || l.Backend() != b1 {
			t.Fatalf("a newcomer does not wait behind it: %v", err)
		}
		if _, err := p.Pick(time.Now(), Ask{Only: b0}); err != ErrFull {
			t.Errorf("a newcomer for b0: %v", err)
		}
		leases[0].Release(time.Now())
		if got := served(bound); len(got) != 1 || bound.lease.Backend() != b0 {
			t.Errorf("the bound one has %v", bound.lease.Backend())
		}
		bound.lease.Release(time.Now())
		l.Release(time.Now())
		expect(t, "b0", b0.InFlight()+b0.Waiting(), int64(0))
		expect(t, "b1", b1.InFlight()+b1.Waiting(), int64(0))
	})
}

// Who has tried one backend waits for another, and those behind it do not wait
// with it.
func TestWaitPassesOverTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := capped(t, 2, 1, 8)
		leases := fill(t, p)
		again := wait(p, "again", Ask{Tried: []*Backend{leases[0].Backend()}})
		leases[0].Release(time.Now())
		first := wait(p, "first", Ask{})
		if got := served(again, first); !slices.Equal(got, []string{"first"}) {
			t.Fatalf("%q have a place", got)
		}
		leases[1].Release(time.Now())
		if got := served(again); len(got) != 1 {
			t.Error("the other backend is free, and goes to nobody")
		}
	})
}

// A change of state serves those who wait: a backend that comes back has room,
// and where none is left nobody waits any longer.
func TestWaitSeesStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := capped(t, 2, 1, 8)
		b0, b1 := p.Backends()[0], p.Backends()[1]
		set := func(b *Backend, s State) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.publishState(b, time.Now(), Standing{State: s})
		}
		set(b1, Unhealthy)
		fill(t, p)
		a, bound := wait(p, "a", Ask{}), wait(p, "bound", Ask{Only: b0})
		set(b1, Active)
		if got := served(a, bound); !slices.Equal(got, []string{"a"}) {
			t.Fatalf("b1 came back, and %q have a place", got)
		}
		c := wait(p, "c", Ask{})
		set(b0, Unhealthy)
		synctest.Wait()
		expect(t, "bound to a backend that went", bound.err, ErrNone)
		expect(t, "c waits on", c.done, false)
		set(b1, Unhealthy)
		synctest.Wait()
		expect(t, "c where none is left", c.err, ErrNone)
	})
}

// A place of a backend that takes no more goes to nobody.
func TestNoPlaceOfAnEjectedBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := capped(t, 2, 1, 8)
		leases := fill(t, p)
		w := wait(p, "w", Ask{})
		b := leases[0].Backend()
		fail(p, p.slot(b), 3)
		leases[0].Release(time.Now())
		synctest.Wait()
		expect(t, "served", w.done, false)
		expect(t, "streams at the ejected one", b.InFlight(), int64(0))
		leases[1].Release(time.Now())
		if got := served(w); len(got) != 1 {
			t.Error("the other one's place went to nobody")
		}
	})
}

// An ejection's end wakes the first who waits, though nothing else happens;
// whether it began before the wait or within it.
func TestEjectionsEndServesTheFirst(t *testing.T) {
	for _, first := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := capped(t, 2, 1, 8)
			p.waitAtMost(0)
			if first {
				fail(p, 0, 3)
			}
			leases := fill(t, p)
			a, b := wait(p, "a", Ask{}), wait(p, "b", Ask{})
			if !first {
				i := p.slot(leases[0].Backend())
				fail(p, i, 3)
				leases[0].Release(time.Now())
			}
			<-time.After(time.Until(p.nextTrial(time.Now())) - 1)
			expect(t, "waiting before the end", p.Waiting(), int64(2))
			<-time.After(2)
			if got := served(a, b); !slices.Equal(got, []string{"a"}) {
				t.Fatalf("ejected before the wait %v: %q have a place", first, got)
			}
			p.Failed(&a.lease, time.Now(), FailedBroke, "reset") // ejected again
			a.lease.Release(time.Now())
			<-time.After(time.Until(p.nextTrial(time.Now())) + 2)
			expect(t, "served at the second end", len(served(b)), 1)
			b.lease.Release(time.Now())
			if p.queue.again != nil {
				t.Error("a timer is left though nobody waits")
			}
		})
	}
}

// A stream that comes at an ejection's end does not take the trial of the one
// who is first.
func TestTrialGoesToTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := capped(t, 2, 1, 8)
		p.waitAtMost(0)
		fail(p, 0, 3)
		fill(t, p)
		a := wait(p, "a", Ask{})
		<-time.After(11 * time.Second)
		b := wait(p, "b", Ask{})
		if got := served(a, b); !slices.Equal(got, []string{"a"}) || a.lease.Backend() != p.Backends()[0] {
			t.Fatalf("%q have a place", got)
		}
		p.Failed(&a.lease, time.Now(), FailedBroke, "reset")
		a.lease.Release(time.Now())
		synctest.Wait()
		expect(t, "b has the place of a failed trial", b.done, false)
		b.leave()
		synctest.Wait()
	})
}

// Everybody who may wait is served in the end, whatever the order of picks,
// waits, leaves and releases.
func TestNobodyIsForgotten(t *testing.T) {
	p := capped(t, 3, 2, 64)
	p.waitAtMost(time.Minute)
	var all sync.WaitGroup
	var got, left atomic.Int64
	for w := range 16 {
		all.Go(func() {
			for i := range 300 {
				ask := Ask{}
				if i%3 == 0 {
					ask.Only = p.Backends()[(w+i)%3]
				}
				l, err := p.Pick(time.Now(), ask)
				if err == ErrFull {
					ctx, cancel := context.WithCancel(context.Background())
					if i%7 == 0 {
						cancel() // it may be served all the same
					}
					l, err = p.Wait(ctx, ask)
					cancel()
				}
				switch {
				case err == nil:
					got.Add(1)
				case errors.Is(err, context.Canceled) && i%7 == 0:
					left.Add(1)
				default:
					t.Error(err)
				}
				if b := l.Backend(); b != nil && b.InFlight() > int64(b.Terms().Cap) {
					t.Errorf("%s is over its cap", b.ID)
				}
				l.Release(time.Now())
			}
		})
	}
	all.Wait()
	expect(t, "turns", got.Load()+left.Load(), int64(16*300))
	expect(t, "waiting", p.Waiting(), int64(0))
	expect(t, "any waiting", p.queue.open.Load(), int64(0))
	for _, b := range p.Backends() {
		expect(t, b.ID, b.InFlight()+b.Waiting(), int64(0))
	}
}

// BenchmarkHandOver is a place that goes from one to the next while others
// wait.
func BenchmarkHandOver(b *testing.B) {
	p := capped(b, 2, 1, 64)
	p.waitAtMost(0)
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l, err := p.Pick(time.Now(), Ask{})
			if err == ErrFull {
				l, err = p.Wait(context.Background(), Ask{})
			}
			if err != nil {
				b.Error(err)
				return
			}
			l.Release(time.Now())
		}
	})
}

// A cap that is lowered while streams wait is kept as soon as enough have ended:
// no place beyond it is handed on.
func TestLoweredCapIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := capped(t, 1, 3, 10)
		held := fill(t, p)
		b := p.Backends()[0]
		first, second := wait(p, "first", Ask{}), wait(p, "second", Ask{})
		b.terms.Store(&Terms{Weight: 1, Cap: 1, CapSource: CapConfig})
		for _, left := range []int64{2, 1, 1} {
			held[0].Release(time.Now())
			held = held[1:]
			expect(t, "streams at a backend that may have one", b.InFlight(), left)
		}
		expect(t, "served", strings.Join(served(first, second), " "), "first")
		second.leave()
		first.lease.Release(time.Now())
		synctest.Wait()
	})
}
