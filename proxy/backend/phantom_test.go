package backend

import (
	"testing"
	"time"
)

// A failure counts as a stream for twice the mean of one, doubled with each in
// a row, and for a minute at most.
func TestPhantoms(t *testing.T) {
	p := pool(t, 2, ejecting(0, 50), nil)
	b, from := p.Backends()[0], time.Unix(1000, 0)
	for range 500 {
		p.Finished(b, 4*time.Second)
	}
	count := func(after time.Duration, want float64) {
		t.Helper()
		if got := b.Phantoms(from.Add(after)); got != want {
			t.Errorf("after %v: %v phantoms, want %v", after, got, want)
		}
	}
	count(0, 0)
	p.Failed(at(b, from), from, FailedBroke, "reset") // 8 s
	count(0, 1)
	count(8*time.Second-1, 1)
	count(8*time.Second, 0)
	for range 5 { // 16, 32, 60, 60, 60 s
		p.Failed(at(b, from), from, FailedBroke, "reset")
	}
	for after, want := range map[time.Duration]float64{1: 6, 9: 5, 17: 4, 33: 3, 59: 3, 60: 0} {
		count(after*time.Second, want)
	}
	for range 1000 {
		p.Failed(at(b, from), from, FailedBroke, "reset")
	}
	count(time.Second, maxPhantoms)
	p.Succeeded(at(b, from.Add(time.Second)), from.Add(time.Second), 0)
	count(time.Second, 0)
}

func TestPhantomsBeforeAnyStreamEnded(t *testing.T) {
	p := pool(t, 2, ejecting(0, 50), nil)
	b, from := p.Backends()[0], time.Unix(1000, 0)
	p.Failed(at(b, from), from, FailedConnect, "refused")
	if b.Phantoms(from.Add(2*time.Second-1)) != 1 || b.Phantoms(from.Add(2*time.Second)) != 0 {
		t.Error("the first is not 2 s long")
	}
}

// A passed check disproves that the backend cannot be reached, and nothing else.
func TestWhatAPassedCheckTakesBack(t *testing.T) {
	for _, c := range []struct {
		kinds []FailureKind
		found Finding
		want  float64
	}{
		{[]FailureKind{FailedConnect, FailedConnect}, LookOK, 0},
		{[]FailureKind{FailedConnect}, LookSlow, 0},
		{[]FailureKind{FailedConnect, FailedConnect}, LookFail, 2},
		{[]FailureKind{FailedConnect, FailedTimeout}, LookOK, 2},
		{[]FailureKind{FailedTimeout, FailedConnect}, LookOK, 2},
		{[]FailureKind{FailedGateway}, LookOK, 1},
		{[]FailureKind{FailedBroke}, LookOK, 1},
	} {
		p, _ := watched(t, 2, ejecting(5, 50))
		b, now := p.Backends()[0], time.Now()
		for _, k := range c.kinds {
			p.Failed(at(b, now), now, k, string(k))
		}
		p.Looked(b, Look{At: now, Finding: c.found})
		if got := b.Phantoms(now); got != c.want {
			t.Errorf("%v, then a check that is %s: %v phantoms, want %v", c.kinds, c.found, got, c.want)
		}
	}
}

// The black-hole trap: a backend that fails at once is always free. What it
// would draw as the idlest of all is what it must not get, though nothing ejects
// it here.
func TestFailingFastLooksExpensive(t *testing.T) {
	p := pool(t, 4, ejecting(0, 50), nil)
	bad, now := p.Backends()[0], time.Now()
	tries := 0
	type running struct {
		lease Lease
		began time.Time
	}
	var streams []running
	for range 4000 { // 200 a second, each of 0.5 s
		now = now.Add(5 * time.Millisecond)
		for len(streams) > 0 && now.Sub(streams[0].began) >= 500*time.Millisecond {
			p.Finished(streams[0].lease.Backend(), 500*time.Millisecond)
			streams[0].lease.Release(now)
			streams = streams[1:]
		}
		l, err := p.Pick(now, Ask{})
		if err != nil {
			t.Fatal(err)
		}
		if l.Backend() == bad {
			tries++
			p.Failed(&l, now, FailedConnect, "refused")
			l.Release(now)
			continue
		}
		p.Succeeded(&l, now, time.Millisecond)
		streams = append(streams, running{l, now})
	}
	if tries == 0 || tries > 200 {
		t.Errorf("%d of 4000 streams went to the backend that refuses; a fair share is 1000", tries)
	}
	for _, s := range streams {
		s.lease.Release(now)
	}
}

// The same trap for a backend that answers, and soon since it does nothing: 500,
// 429, 404. It is not ejected for it, and draws no more than a small part of what it
// would get for being idle and quick.
func TestErringFastLooksExpensive(t *testing.T) {
	for _, policy := range []string{StepTime, LeastConnections, PeakEWMA, LeastResponseTime} {
		t.Run(policy, func(t *testing.T) {
			p := placed(t, Placement{Policy: policy}, 1, 1, 1, 1)
			now := time.Unix(1000, 0)
			p.made, p.sampled = now, now
			bad, errors := p.Backends()[0], 0
			var streams []Lease // in the order of their ends, 500 ms after their beginning
			for i := range 4000 {
				now = now.Add(5 * time.Millisecond)
				if len(streams) >= 100 {
					l := streams[0]
					streams = streams[1:]
					l.Answered(now)
					p.Succeeded(&l, now, 500*time.Millisecond)
					p.Finished(l.Backend(), 500*time.Millisecond)
					l.Release(now)
				}
				if i%20 == 0 {
					p.Sample(now)
				}
				l, err := p.Pick(now, Ask{})
				if err != nil {
					t.Fatal(err)
				}
				if l.Backend() != bad {
					streams = append(streams, l)
					continue
				}
				errors++
				p.Erred(&l, now)
				l.Release(now)
			}
			if s := bad.Standing(); s.State != Active || errors == 0 || errors > 200 {
				t.Errorf("%d of 4000 streams went to the backend that errs, a fair share is 1000; %+v", errors, s)
			}
			for _, l := range streams {
				l.Release(now)
			}
		})
	}
}
