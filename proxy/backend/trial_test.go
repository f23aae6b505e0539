package backend

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// trial takes the one trial stream that an ejected backend gets.
func trial(t *testing.T, p *Pool, i int) Lease {
	t.Helper()
	for range 1000 {
		l := pick(t, p)
		if l.Backend() == p.Backends()[i] {
			return l
		}
		l.Release(time.Now())
	}
	t.Fatalf("no trial stream for backend %d", i)
	panic("unreachable")
}

// One trial stream at a time, until it is given back; what came of it decides,
// and where nothing came of it (the client left), the next one is a trial.
func TestOneTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(t, 2, ejecting(3, 50), nil)
		fail(p, 0, 3)
		<-time.After(11 * time.Second)
		l := trial(t, p, 0)
		if got := shares(t, p, 500); got[0] != 0 {
			t.Errorf("%d streams beside the trial", got[0])
		}
		if p.Backends()[0].InFlight() != 1 {
			t.Error("the trial stream is not counted")
		}
		l.Release(time.Now())
		l = trial(t, p, 0)
		if s := p.Backends()[0].Standing(); s.State != Ejected {
			t.Errorf("a trial without result made it %s", s.State)
		}
		p.Succeeded(&l, time.Now(), 0)
		l.Release(time.Now())
		if got := shares(t, p, 500); got[0] == 0 || got[1] == 0 {
			t.Errorf("after a good trial, shares are %v", got)
		}
	})
}

// The last resort: where only an ejected backend is left, its trial is taken,
// and only one.
func TestTrialOfTheOnlyOneLeft(t *testing.T) {
	p := pool(t, 2, ejecting(1, 50), nil)
	p.Failed(at(p.Backends()[0], time.Now().Add(-time.Minute)), time.Now().Add(-time.Minute), FailedBroke, "reset")
	l := pick(t, p, p.Backends()[1])
	if l.Backend() != p.Backends()[0] {
		t.Fatal("the tried one was taken")
	}
	if _, err := p.Pick(time.Now(), Ask{Tried: p.Backends()[1:]}); err != ErrNone {
		t.Errorf("beside the trial: %v", err)
	}
	l.Release(time.Now())
}

// Streams that a backend had before it was ejected decide nothing: not while the
// trial runs, not before it is picked, and their late failures do not count once
// the backend is back.
func TestOnlyTheTrialDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(t, 3, ejecting(3, 50), nil)
		b := p.Backends()[0]
		old := at(b, time.Now())
		fail(p, 0, 3)
		<-time.After(time.Until(b.Standing().Until) + 1)
		stands := func(when string, want State, times int) {
			t.Helper()
			p.Succeeded(old, time.Now(), 0)
			p.Failed(old, time.Now(), FailedTimeout, "no answer in time")
			p.Broke(b, time.Now(), "reset")
			if s := b.Standing(); s.State != want || s.Times != times {
				t.Errorf("%s: %s for the %d. time, want %s and %d", when, s.State, s.Times, want, times)
			}
		}
		stands("before the trial", Ejected, 1)
		l := trial(t, p, 0)
		stands("beside the trial", Ejected, 1)
		p.Succeeded(&l, time.Now(), 0)
		for range 3 {
			p.Failed(old, time.Now(), FailedTimeout, "no answer in time")
		}
		if s := b.Standing(); s.State != Active {
			t.Fatalf("after a good trial and old failures: %+v", s)
		}
		fail(p, 0, 3)
		if s := b.Standing(); s.State != Ejected {
			t.Errorf("after new failures: %+v", s)
		}
		<-time.After(time.Until(b.Standing().Until) + 1)
		next := trial(t, p, 0)
		l.Release(time.Now())
		if got := shares(t, p, 300); got[0] != 0 {
			t.Errorf("%d streams beside the second trial: the first one's end made room", got[0])
		}
		next.Release(time.Now())
	})
}

// However many backends there are and however few streams come, the next one
// after an ejection's end is the trial.
func TestTheNextStreamIsTheTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(t, 300, ejecting(3, 50), nil)
		for _, i := range []int{7, 250} {
			fail(p, i, 3)
		}
		<-time.After(12 * time.Second)
		first, second := pick(t, p), pick(t, p)
		if a, b := p.slot(first.Backend()), p.slot(second.Backend()); a != 7 || b != 250 {
			t.Fatalf("the next streams went to %d and %d", a, b)
		}
		if got := shares(t, p, 3000); got[7]+got[250] != 0 {
			t.Errorf("%d streams beside the trials", got[7]+got[250])
		}
		first.Release(time.Now())
		l := pick(t, p)
		if p.slot(l.Backend()) != 7 {
			t.Error("the trial that came to nothing is not repeated")
		}
		p.Failed(&l, time.Now(), FailedBroke, "reset")
		l.Release(time.Now())
		if got := shares(t, p, 3000); got[7] != 0 {
			t.Errorf("%d streams after a failed trial", got[7])
		}
		second.Release(time.Now())
	})
}

// In a panic an ejected backend gets streams, and one of them decides once its
// time is over.
func TestTrialInAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := ejecting(1, 50)
		o.PanicPercent = 60
		p := pool(t, 2, o, nil)
		b := p.Backends()[0]
		fail(p, 0, 1)
		only := func() Lease {
			l, err := p.Pick(time.Now(), Ask{Only: b})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		early := only()
		p.Succeeded(&early, time.Now(), 0)
		if s := b.Standing(); !p.Panic() || s.State != Ejected {
			t.Fatalf("panic %v, %+v", p.Panic(), s)
		}
		<-time.After(time.Until(b.Standing().Until) + 1)
		first, second := only(), only()
		p.Succeeded(&second, time.Now(), 0)
		if s := b.Standing(); s.State != Ejected {
			t.Errorf("a stream beside the trial decided: %+v", s)
		}
		p.Succeeded(&first, time.Now(), 0)
		if s := b.Standing(); p.Panic() || s.State != Active {
			t.Errorf("panic %v, %+v", p.Panic(), s)
		}
		for _, l := range []Lease{early, first, second} {
			l.Release(time.Now())
		}
	})
}

// However many pick at the moment an ejection is over, one stream is the
// trial; where it fails, no other follows.
func TestOneTrialAmongMany(t *testing.T) {
	o := OutlierConfig{ConsecutiveFailures: 1, BaseEjection: time.Hour, MaxEjection: time.Hour, MaxEjectedPercent: 50}
	for range 300 {
		p := pool(t, 2, o, nil)
		b := p.Backends()[0]
		p.Failed(at(b, time.Now().Add(-2*time.Hour)), time.Now().Add(-2*time.Hour), FailedBroke, "reset") // that ejection is over
		var all sync.WaitGroup
		var mu sync.Mutex
		trials := 0
		begin := make(chan struct{})
		for range 8 {
			all.Go(func() {
				<-begin
				for range 20 {
					l, err := p.Pick(time.Now(), Ask{})
					if err != nil {
						t.Error(err)
						return
					}
					if l.Backend() == b {
						p.Failed(&l, time.Now(), FailedBroke, "reset")
						mu.Lock()
						trials++
						mu.Unlock()
					}
					l.Release(time.Now())
				}
			})
		}
		close(begin)
		all.Wait()
		if trials != 1 {
			t.Fatalf("%d trials", trials)
		}
		if b.Standing().Times != 2 || b.InFlight() != 0 || b.trial.Load() {
			t.Fatalf("after the trial: %+v, %d streams, trial %v", b.Standing(), b.InFlight(), b.trial.Load())
		}
	}
}
