package backend

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ejecting ejects for 10 s at first and 1 min at most.
func ejecting(failures, percent int) OutlierConfig {
	return OutlierConfig{ConsecutiveFailures: failures, BaseEjection: 10 * time.Second, MaxEjection: time.Minute, MaxEjectedPercent: percent}
}

func fail(p *Pool, i, times int) {
	for range times {
		p.Failed(p.Backends()[i], "connection refused")
	}
}

func out(p *Pool) (n int) {
	for _, b := range p.Backends() {
		if b.Standing().State == Ejected {
			n++
		}
	}
	return n
}

func TestFailuresInARowEject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []change
		p := pool(t, 3, ejecting(3, 50), func(c change) { told = append(told, c) })
		fail(p, 1, 2)
		p.Succeeded(p.Backends()[1]) // breaks the row
		fail(p, 1, 2)
		fail(p, 0, 2) // another's do not count
		if len(told) > 0 {
			t.Fatalf("two failures in a row: %+v", told)
		}
		fail(p, 1, 1)
		want := Standing{State: Ejected, Reason: "3 failures in a row, the last: connection refused", Since: time.Now(), Until: time.Now().Add(10 * time.Second), Times: 1}
		if len(told) != 1 || told[0] != (change{"b1", want}) || p.Backends()[1].Standing() != want {
			t.Fatalf("told %+v, want %+v", told, want)
		}
		if p.Usable() != 2 {
			t.Errorf("%d are usable", p.Usable())
		}
		fail(p, 1, 5) // streams that were under way
		if len(told) != 1 {
			t.Errorf("failures while ejected: %+v", told[1:])
		}
	})
}

func TestNoFailureEjectsWhereSwitchedOff(t *testing.T) {
	p := pool(t, 3, ejecting(0, 100), nil)
	fail(p, 0, 100)
	if out(p) != 0 {
		t.Error("ejected all the same")
	}
}

// The limit is judged by the share after the ejection.
func TestMaxEjectedPercent(t *testing.T) {
	for _, c := range []struct{ backends, percent, want int }{
		{3, 50, 1}, {1, 10, 0}, {1, 100, 0}, {2, 50, 1}, {2, 49, 0}, {2, 100, 1}, {10, 30, 3}, {10, 39, 3}, {10, 9, 0}, {10, 0, 0}, {5, 100, 4},
	} {
		p := pool(t, c.backends, ejecting(3, c.percent), nil)
		for i := range p.Backends() {
			fail(p, i, 20)
		}
		if got := out(p); got != c.want {
			t.Errorf("%d of %d at %d%%: want %d", got, c.backends, c.percent, c.want)
		}
		if l := pick(t, p); l.Backend().Standing().State != Active {
			t.Errorf("an ejected backend was picked")
		}
	}
}

// A backend that the limit kept in goes as soon as another comes back.
func TestEjectedOnceThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(t, 3, ejecting(3, 50), nil)
		fail(p, 0, 3)
		fail(p, 1, 7)
		<-time.After(11 * time.Second)
		p.Succeeded(p.Backends()[0])
		fail(p, 1, 1)
		if a, b := p.Backends()[0].Standing().State, p.Backends()[1].Standing().State; a != Active || b != Ejected {
			t.Errorf("b0 is %s, b1 is %s", a, b)
		}
	})
}

// trial takes the one trial stream that an ejected backend gets.
func trial(t *testing.T, p *Pool, i int) Lease {
	t.Helper()
	for range 1000 {
		l := pick(t, p)
		if l.Backend() == p.Backends()[i] {
			return l
		}
		l.Release()
	}
	t.Fatalf("no trial stream for backend %d", i)
	panic("unreachable")
}

func TestEjectionsDouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(t, 2, ejecting(3, 50), nil)
		b := p.Backends()[0]
		fail(p, 0, 3)
		for times, want := range []time.Duration{10, 20, 40, 60, 60, 60} {
			s := b.Standing()
			if s.Times != times+1 || s.Until.Sub(s.Since) != want*time.Second {
				t.Fatalf("ejection %d: %+v lasts %v, want %vs", times+1, s, s.Until.Sub(s.Since), int(want))
			}
			<-time.After(time.Until(s.Until))
			if got := shares(t, p, 200); got[0] != 0 {
				t.Fatalf("picked before its ejection was over")
			}
			<-time.After(time.Nanosecond)
			l := trial(t, p, 0)
			p.Failed(b, "reset")
			l.Release()
			if s := b.Standing(); !strings.Contains(s.Reason, "trial") || !strings.Contains(s.Reason, "reset") {
				t.Errorf("reason %q", s.Reason)
			}
		}
		<-time.After(2 * time.Minute)
		l := trial(t, p, 0)
		p.Succeeded(b)
		l.Release()
		if s := b.Standing(); s.State != Active || s.Times != 0 || !s.Until.IsZero() || s.Reason == "" || s.Since != time.Now() {
			t.Errorf("after a good trial: %+v", s)
		}
		fail(p, 0, 2)
		if b.Standing().State != Active {
			t.Error("failures before the ejection still count")
		}
		fail(p, 0, 1)
		if s := b.Standing(); s.Times != 1 || s.Until.Sub(s.Since) != 10*time.Second {
			t.Errorf("a later ejection begins at %+v", s)
		}
	})
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
		l.Release()
		l = trial(t, p, 0)
		if s := p.Backends()[0].Standing(); s.State != Ejected {
			t.Errorf("a trial without result made it %s", s.State)
		}
		p.Succeeded(p.Backends()[0])
		l.Release()
		if got := shares(t, p, 500); got[0] == 0 || got[1] == 0 {
			t.Errorf("after a good trial, shares are %v", got)
		}
	})
}

// The last resort: where only an ejected backend is left, its trial is taken,
// and only one.
func TestTrialOfTheOnlyOneLeft(t *testing.T) {
	p := pool(t, 2, DefaultOutlier(), nil)
	p.Backends()[0].standing.Store(&Standing{State: Ejected, Until: time.Now().Add(-time.Second), Times: 1})
	l := pick(t, p, p.Backends()[1])
	if l.Backend() != p.Backends()[0] {
		t.Fatal("the tried one was taken")
	}
	if _, err := p.Pick(time.Now(), Ask{Tried: p.Backends()[1:]}); err != ErrNone {
		t.Errorf("beside the trial: %v", err)
	}
	l.Release()
}

func TestSuccessDuringAnEjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(t, 2, ejecting(3, 50), nil)
		fail(p, 0, 3)
		p.Succeeded(p.Backends()[0]) // a stream from before
		if p.Backends()[0].Standing().State != Ejected {
			t.Error("an older stream's success ended the ejection")
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
		b.standing.Store(&Standing{State: Ejected, Until: time.Now().Add(-time.Second), Times: 1})
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
						p.Failed(b, "reset")
						mu.Lock()
						trials++
						mu.Unlock()
					}
					l.Release()
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

// Failures of many streams at once eject once, and the limit holds.
func TestFailuresAtOnce(t *testing.T) {
	var mu sync.Mutex
	told := map[string]int{}
	p := pool(t, 10, ejecting(3, 30), func(c change) {
		mu.Lock()
		defer mu.Unlock()
		told[c.id]++
	})
	var all sync.WaitGroup
	for range 4 {
		for i := range p.Backends() {
			all.Go(func() { fail(p, i, 10) })
		}
	}
	all.Wait()
	if out(p) != 3 || len(told) != 3 {
		t.Errorf("%d are out, told of %v", out(p), told)
	}
	for id, times := range told {
		if times != 1 {
			t.Errorf("%s was ejected %d times", id, times)
		}
	}
}
