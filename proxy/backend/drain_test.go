package backend

import (
	"strings"
	"testing"
	"time"
)

// drains is a pool, and how often and with how many streams left drains ended.
func drains(t *testing.T) (*Pool, *[]int64) {
	p := pool(t, 2, DefaultOutlier(), nil)
	left := &[]int64{}
	p.hooks.Drained = func(_ *Backend, _ time.Duration, n int64) { *left = append(*left, n) }
	return p, left
}

// on takes a stream at backend i.
func on(t *testing.T, p *Pool, i int) Lease {
	t.Helper()
	l, err := p.Pick(time.Now(), Ask{Only: p.Backends()[i]})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestDrainEndsWhenEmpty(t *testing.T) {
	p, left := drains(t)
	b, now := p.Backends()[0], time.Now()
	first, second := on(t, p, 0), on(t, p, 0)
	p.Drain(b, now, now.Add(time.Minute))
	if s := b.Standing(); s.State != Draining || !s.Until.Equal(now.Add(time.Minute)) || s.Reason == "" {
		t.Fatalf("draining: %+v", s)
	}
	if got := shares(t, p, 100); got[0] != 0 {
		t.Errorf("%d new streams at a draining backend", got[0])
	}
	first.Release(now.Add(time.Second))
	if len(*left) != 0 {
		t.Fatal("over with a stream left")
	}
	b.HeldBy(17)
	second.Release(now.Add(3 * time.Second))
	s := b.Standing()
	if len(*left) != 1 || (*left)[0] != 0 || s.State != Draining || !s.Until.IsZero() || s.Reason != "drained in 3s; stream 17 was the last" {
		t.Errorf("ended %v, stands %+v", *left, s)
	}
	if b.Overdue(now.Add(time.Hour)) {
		t.Error("over, and overdue")
	}
	p.Undrain(b, now.Add(4*time.Second))
	if s := b.Standing(); s.State != Active || s.Reason == "" {
		t.Errorf("taken back: %+v", s)
	}
	p.Drain(b, now.Add(5*time.Second), time.Time{})
	if s := b.Standing(); len(*left) != 2 || s.Reason != "drained in 0s" {
		t.Errorf("empty from the start: %v, %+v", *left, s)
	}
}

func TestDrainIsGivenUp(t *testing.T) {
	p, left := drains(t)
	b, now := p.Backends()[0], time.Now()
	l := on(t, p, 0)
	p.Drain(b, now, now.Add(time.Minute))
	p.GiveUpDrain(b, now.Add(time.Minute-1), []string{"17"})
	if b.Overdue(now.Add(time.Minute-1)) || len(*left) != 0 {
		t.Fatal("given up before its deadline")
	}
	p.Drain(b, now.Add(time.Second), now.Add(2*time.Minute)) // a new deadline for the same drain
	if b.Overdue(now.Add(time.Minute)) {
		t.Fatal("the old deadline stands")
	}
	if !b.Overdue(now.Add(2 * time.Minute)) {
		t.Fatal("not overdue at its deadline")
	}
	p.GiveUpDrain(b, now.Add(2*time.Minute), []string{"17"})
	p.GiveUpDrain(b, now.Add(2*time.Minute), []string{"17"})
	s := b.Standing()
	if len(*left) != 1 || (*left)[0] != 1 || s.State != Draining || !strings.Contains(s.Reason, "given up after 2m0s: 1 streams are left (17)") {
		t.Errorf("ended %v, stands %+v", *left, s)
	}
	l.Release(now.Add(3 * time.Minute)) // was not cut, and ends nothing now
	if len(*left) != 1 || b.Standing() != s {
		t.Errorf("ended %v, stands %+v", *left, b.Standing())
	}
}

// Who is no longer configured cannot be drained; who drains can be removed.
func TestDrainAndRemoval(t *testing.T) {
	p, left := drains(t)
	a, b := p.Backends()[0], p.Backends()[1]
	l := on(t, p, 0)
	p.Drain(a, time.Now(), time.Time{})
	if err := p.Update(nil, Rules{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if a.Standing().State != Removed {
		t.Errorf("removed: %+v", a.Standing())
	}
	l.Release(time.Now())
	p.Drain(b, time.Now(), time.Time{})
	if b.Standing().State != Removed || len(*left) != 0 {
		t.Errorf("%+v, drains ended: %v", b.Standing(), *left)
	}
}
