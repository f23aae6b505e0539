package backend

import (
	"math/rand/v2"
	"testing"
	"time"
)

// ward is a pool by p2c whose streams are played in virtual time: each gets its
// head, then an event every 20 ms; where they come whole, nothing more.
type ward struct {
	*Pool
	now     time.Time
	ill     *Backend // gives no head while it hangs
	hangs   bool
	streams []*visit
	failed  int
}

// visit is one stream.
type visit struct {
	lease  Lease
	began  time.Time
	headed bool
}

const (
	tick    = 20 * time.Millisecond
	headMax = time.Second // response_header
)

// step plays one tick.
func (w *ward) step(head, took time.Duration, events bool) {
	w.now = w.now.Add(tick)
	rest := w.streams[:0]
	for _, v := range w.streams {
		age := w.now.Sub(v.began)
		b := v.lease.Backend()
		silent := w.hangs && b == w.ill
		switch {
		case !v.headed && silent && age >= headMax:
			w.failed++
			w.Failed(&v.lease, w.now, FailedTimeout, "no answer in time")
			v.lease.Release(w.now)
			continue
		case !silent && !v.headed && age >= head:
			v.headed = true
			w.Succeeded(&v.lease, w.now, age)
			v.lease.Answered(w.now)
			if events {
				v.lease.Began(w.now)
			}
		case !silent && v.headed && events:
			v.lease.Progress(1, 200)
		}
		if age >= took && (!silent || v.headed && age >= took+20*time.Second) { // then a client gives up
			if !silent {
				w.Finished(b, age)
			}
			v.lease.Release(w.now)
			continue
		}
		rest = append(rest, v)
	}
	w.streams = rest
	if w.now.UnixNano()%(100*int64(time.Millisecond)) == 0 {
		w.Sample(w.now)
	}
}

func (w *ward) arrive(t *testing.T) {
	t.Helper()
	l, err := w.Pick(w.now, Ask{})
	if err != nil {
		t.Fatal(err)
	}
	w.streams = append(w.streams, &visit{lease: l, began: w.now})
}

// A backend that hangs before its answers is out after three failures under p2c
// too, whatever streams there are, and few as they may be: it is not just left
// alone, to be found by nobody. Once it is well, one trial brings it back.
func TestHangingIsEjected(t *testing.T) {
	for _, c := range []struct {
		name       string
		backends   int
		every      time.Duration // between two streams
		head, took time.Duration
		events     bool
		within     time.Duration
	}{
		{"short answers, one at a time", 3, 100 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond, false, 20 * time.Second},
		{"short answers, one a second", 8, time.Second, 40 * time.Millisecond, 40 * time.Millisecond, false, 45 * time.Second},
		{"short answers, many", 11, tick, 20 * time.Millisecond, 20 * time.Millisecond, false, 20 * time.Second},
		{"streams of tokens, few", 4, 2 * time.Second, 300 * time.Millisecond, 3 * time.Second, true, time.Minute},
		{"streams of tokens", 8, 200 * time.Millisecond, 300 * time.Millisecond, 10 * time.Second, true, 90 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			p, err := NewPool("llm", weighted(make([]int, c.backends)...), Rules{Outlier: ejecting(3, 50)}, Hooks{}, now)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range p.Backends() {
				b.terms.Store(&Terms{Weight: 1})
			}
			p.Random = rand.New(rand.NewPCG(3, 4)).Uint64
			w := &ward{Pool: p, now: now, ill: p.Backends()[1]}
			play := func(d time.Duration, until func() bool) (took time.Duration) {
				from := w.now
				for w.now.Sub(from) < d && !until() {
					if w.now.Sub(now)%c.every == 0 {
						w.arrive(t)
					}
					w.step(c.head, c.took, c.events)
				}
				return w.now.Sub(from)
			}
			never := func() bool { return false }
			play(time.Minute, never)
			w.hangs = true
			took := play(c.within, func() bool { return w.ill.Standing().State == Ejected })
			if s := w.ill.Standing(); s.State != Ejected || w.failed != 3 {
				t.Fatalf("after %v and %d failures: %+v, speed %v", took, w.failed, s, w.ill.Speed())
			}
			w.hangs = false
			until := w.ill.Standing().Until
			play(time.Minute, func() bool { return w.ill.Standing().State == Active })
			if late := w.now.Sub(until); w.ill.Standing().State != Active || late > c.every+c.head+2*tick {
				t.Errorf("%v after the end of its ejection: %+v", late, w.ill.Standing())
			}
		})
	}
}
