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

// at is a stream that a backend got at a moment.
func at(b *Backend, now time.Time) *Lease {
	l := newLease(b, b.pool.micros(now), false)
	return &l
}

func fail(p *Pool, i, times int) {
	for range times {
		p.Failed(at(p.Backends()[i], time.Now()), time.Now(), FailedBroke, "connection refused")
	}
}

// lasts tells whether an ejection takes as long as it should, and no more than a
// tenth longer.
func lasts(s Standing, want time.Duration) bool {
	length := s.Until.Sub(s.Since)
	return length >= want && length <= want+want/10
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
		p.Succeeded(at(p.Backends()[1], time.Now()), time.Now(), 0) // breaks the row
		fail(p, 1, 2)
		fail(p, 0, 2) // another's do not count
		if len(told) > 0 {
			t.Fatalf("two failures in a row: %+v", told)
		}
		fail(p, 1, 1)
		s := p.Backends()[1].Standing()
		want := Standing{State: Ejected, Reason: "3 failures in a row, the last: connection refused", Since: time.Now(), Until: s.Until, Times: 1}
		if len(told) != 1 || told[0] != (change{"b1", want}) || s != want || !lasts(s, 10*time.Second) {
			t.Fatalf("told %+v, stands %+v, want %+v", told, s, want)
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
		l := trial(t, p, 0)
		p.Succeeded(&l, time.Now(), 0)
		fail(p, 1, 1)
		if a, b := p.Backends()[0].Standing().State, p.Backends()[1].Standing().State; a != Active || b != Ejected {
			t.Errorf("b0 is %s, b1 is %s", a, b)
		}
	})
}

func TestEjectionsDouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(t, 2, ejecting(3, 50), nil)
		b := p.Backends()[0]
		fail(p, 0, 3)
		for times, want := range []time.Duration{10, 20, 40, 60, 60, 60} {
			s := b.Standing()
			if s.Times != times+1 || !lasts(s, want*time.Second) {
				t.Fatalf("ejection %d: %+v lasts %v, want %vs", times+1, s, s.Until.Sub(s.Since), int(want))
			}
			<-time.After(time.Until(s.Until))
			if got := shares(t, p, 200); got[0] != 0 {
				t.Fatalf("picked before its ejection was over")
			}
			<-time.After(time.Nanosecond)
			l := trial(t, p, 0)
			p.Failed(&l, time.Now(), FailedBroke, "reset")
			l.Release(time.Now())
			if s := b.Standing(); !strings.Contains(s.Reason, "trial") || !strings.Contains(s.Reason, "reset") {
				t.Errorf("reason %q", s.Reason)
			}
		}
		<-time.After(2 * time.Minute)
		l := trial(t, p, 0)
		p.Succeeded(&l, time.Now(), 0)
		l.Release(time.Now())
		if s := b.Standing(); s.State != Active || s.Times != 0 || !s.Until.IsZero() || s.Reason == "" || s.Since != time.Now() {
			t.Errorf("after a good trial: %+v", s)
		}
		fail(p, 0, 2)
		if b.Standing().State != Active {
			t.Error("failures before the ejection still count")
		}
		fail(p, 0, 1)
		if s := b.Standing(); s.Times != 8 || !lasts(s, time.Minute) {
			t.Errorf("one that fails as soon as it is back: %+v", s)
		}
	})
}

func TestSuccessDuringAnEjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(t, 2, ejecting(3, 50), nil)
		fail(p, 0, 3)
		p.Succeeded(at(p.Backends()[0], time.Now()), time.Now(), 0) // a stream from before
		if p.Backends()[0].Standing().State != Ejected {
			t.Error("an older stream's success ended the ejection")
		}
	})
}

// A stream that froze midway was broken off where streams bring tokens, and only
// there.
func TestFrozenAnswersEject(t *testing.T) {
	for _, tokens := range []bool{true, false} {
		p := pool(t, 3, ejecting(3, 50), nil)
		p.usual.streaming = tokens
		b, now := p.Backends()[0], time.Now()
		for range 3 {
			p.Froze(b, now, "nothing for 5m")
		}
		if s := b.Standing(); (s.State == Ejected) != tokens {
			t.Errorf("tokens %v: %+v", tokens, s)
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

// Answers that break off have a row of their own: their heads, which came well,
// do not end it.
func TestBrokenAnswersEject(t *testing.T) {
	p := pool(t, 3, ejecting(3, 50), nil)
	b, now := p.Backends()[0], time.Now()
	for range 2 {
		p.Succeeded(at(b, now), now, 0)
		p.Broke(b, now, "reset")
	}
	p.Finished(b, time.Second)
	for range 2 {
		p.Succeeded(at(b, now), now, 0)
		p.Broke(b, now, "reset")
	}
	if b.Standing().State != Active {
		t.Fatalf("a whole answer between: %+v", b.Standing())
	}
	p.Broke(b, now, "reset")
	if s := b.Standing(); s.State != Ejected || !strings.Contains(s.Reason, "reset") || b.Phantoms(now) != 0 {
		t.Errorf("three in a row: %+v, %v phantoms", s, b.Phantoms(now))
	}
}

// Late heads are failures only where somebody asked for it.
func TestLatencyEjectsOnRequest(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Second} {
		o := ejecting(3, 50)
		o.Latency = limit
		p := pool(t, 3, o, nil)
		b, now := p.Backends()[0], time.Now()
		late := func(n int) {
			for range n {
				p.Succeeded(at(b, now), now, 1500*time.Millisecond)
			}
		}
		late(2)
		p.Succeeded(at(b, now), now, 900*time.Millisecond)
		late(2)
		if b.Standing().State != Active {
			t.Errorf("limit %v, two late heads: %+v", limit, b.Standing())
		}
		late(1)
		if out := b.Standing().State == Ejected; out != (limit > 0) || b.Phantoms(now) != 0 {
			t.Errorf("limit %v, three: %+v", limit, b.Standing())
		}
	}
}

// A backend that works for a while and fails again is out longer each time, and
// a long time in service is forgiven step by step.
func TestFlapping(t *testing.T) {
	p := pool(t, 3, ejecting(3, 50), nil)
	b, now := p.Backends()[0], time.Now()
	round := func(up time.Duration) Standing {
		now = now.Add(up)
		for range 3 {
			p.Failed(at(b, now), now, FailedBroke, "reset")
		}
		s := b.Standing()
		if s.State != Ejected {
			t.Fatalf("after %v in service: %+v", up, s)
		}
		now = s.Until.Add(time.Nanosecond)
		l, err := p.Pick(now, Ask{Only: b})
		if err != nil {
			t.Fatal(err)
		}
		p.Succeeded(&l, now, 0)
		l.Release(now)
		return s
	}
	for i, c := range []struct {
		up   time.Duration
		want time.Duration
	}{
		{0, 10 * time.Second}, {5 * time.Second, 20 * time.Second}, {15 * time.Second, 40 * time.Second},
		{30 * time.Second, time.Minute}, {time.Minute, time.Minute}, // five in a row
		{5 * time.Minute, time.Minute}, // two forgotten, and one more: four
		{7 * time.Minute, 20 * time.Second}, {time.Hour, 10 * time.Second},
	} {
		if s := round(c.up); !lasts(s, c.want) {
			t.Errorf("round %d, after %v in service: out for %v, want %v (%d in a row)", i, c.up, s.Until.Sub(s.Since), c.want, s.Times)
		}
	}
}

// The last backend that takes streams stays, whoever put the others out.
func TestTheLastStays(t *testing.T) {
	p, _ := watched(t, 3, ejecting(3, 100))
	looks(p, 0, LookFail, LookFail, LookFail)
	p.Drain(p.Backends()[1], time.Now(), time.Time{})
	fail(p, 2, 20)
	if s := p.Backends()[2].Standing(); s.State != Active {
		t.Errorf("%+v", s)
	}
}

// An operator's word counts whatever the limits say.
func TestOperatorsEjection(t *testing.T) {
	p := pool(t, 2, ejecting(3, 0), nil)
	b, now := p.Backends()[0], time.Now()
	p.Eject(b, now, time.Hour)
	if s := b.Standing(); s.State != Ejected || s.Until.Sub(now) != time.Hour || !strings.Contains(s.Reason, "operator") {
		t.Fatalf("%+v", s)
	}
	p.Admit(b, now)
	if s := b.Standing(); s.State != Active || !strings.Contains(s.Reason, "operator") {
		t.Errorf("%+v", s)
	}
	p.Admit(b, now)
	if got := shares(t, p, 500); got[0] == 0 {
		t.Errorf("shares %v", got)
	}
}

// An operator's ejection makes none shorter, and is taken back without those of
// streams.
func TestOperatorsEjectionBesideStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(t, 3, ejecting(3, 100), nil)
		a, b := p.Backends()[0], p.Backends()[1]
		fail(p, 0, 3)
		until := a.Standing().Until
		p.Eject(a, time.Now(), time.Second)
		if s := a.Standing(); s.State != Ejected || !s.Until.Equal(until) {
			t.Errorf("an operator's ejection ended that of streams: %+v, it was until %v", s, until)
		}
		p.Recall(a, time.Now())
		if s := a.Standing(); s.State != Ejected || !s.Until.Equal(until) || !strings.Contains(s.Reason, "failures") {
			t.Errorf("an ejection by streams was made the operator's, and taken back: %+v, it was until %v", s, until)
		}
		p.Eject(a, time.Now(), time.Hour)
		if s := a.Standing(); !s.Until.Equal(time.Now().Add(time.Hour)) {
			t.Errorf("out until %v", s.Until)
		}
		p.Recall(a, time.Now())
		if s := a.Standing(); s.State != Active || s.Reason != "the operator's word was taken back" {
			t.Errorf("after the operator has taken it back: %+v", s)
		}
		fail(p, 1, 3)
		p.Recall(b, time.Now())
		if s := b.Standing(); s.State != Ejected {
			t.Errorf("what streams have found was taken back: %+v", s)
		}
	})
}

// What a backend did before it was out does not keep streams from it when it is
// back: nothing would run there that could show its speed anew.
func TestReadmittedWithoutItsPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(t, 3, ejecting(3, 50), nil)
		b := p.Backends()[0]
		b.speed.Store(slowest)
		b.answers = reading{amount: 1, things: 1, time: 60}
		fail(p, 0, 3)
		<-time.After(11 * time.Second)
		l := trial(t, p, 0)
		p.Succeeded(&l, time.Now(), time.Millisecond)
		l.Release(time.Now())
		if got := shares(t, p, 3000); b.Speed() != 1 || got[0] < 600 {
			t.Errorf("speed %v, shares %v", b.Speed(), got)
		}
	})
}
