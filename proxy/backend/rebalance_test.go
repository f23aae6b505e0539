package backend

import (
	"math"
	"testing"
	"time"
)

// TestPace is what comes here, over five seconds: it follows a spike and its end, counts
// the same requests once, however they come, and is nothing after a while of silence.
// What others say is not added.
func TestPace(t *testing.T) {
	p := inheriting(t)
	now := p.made
	run := func(lasts time.Duration, each int) {
		t.Helper()
		for end := now.Add(lasts); now.Before(end); {
			for range each {
				l, err := p.Pick(now, Ask{})
				if err != nil {
					t.Fatal(err)
				}
				l.Release(now)
			}
			now = now.Add(100 * time.Millisecond)
			p.Sample(now)
		}
	}
	near := func(what string, want float64) {
		t.Helper()
		if got := p.Pace(); math.Abs(got-want) > want/50 {
			t.Errorf("%s: %.2f requests/s, want %.2f", what, got, want)
		}
	}
	if p.Pace() != 0 {
		t.Error("a pace before the first request")
	}
	run(time.Minute, 2)
	p.HearPace(1000)
	near("20 a second", 20)
	run(5*time.Second, 20)
	near("five seconds of 200 a second", 20+180*(1-1/math.E))
	run(5*time.Second, 2)
	near("five seconds later", 20+180*(1-1/math.E)/math.E)
	run(time.Minute, 0)
	if got := p.Pace(); got != 0 || p.PaceElsewhere() != 1000 {
		t.Errorf("after a minute of silence %v, and elsewhere %v", got, p.PaceElsewhere())
	}
	run(100*time.Millisecond, 1)
	near("one request", 1.0/5)
}
