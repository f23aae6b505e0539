package backend

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// watched is a pool with health checks, of n backends, and the events that it
// told.
func watched(t testing.TB, n int, o OutlierConfig) (*Pool, *[]Event) {
	t.Helper()
	p := pool(t, n, o, nil)
	told := &[]Event{}
	p.hooks.Told = func(e Event) { *told = append(*told, e) }
	p.adopt(p.Backends(), Rules{Outlier: o, Health: DefaultHealth()})
	return p, told
}

// looks tells the pool of checks of one backend, each a second after the last
// one or, the first, now.
func looks(p *Pool, i int, found ...Finding) {
	at := time.Now()
	for _, f := range found {
		if before := p.Looks(p.Backends()[i]); len(before) > 0 {
			at = before[0].At.Add(time.Second)
		}
		p.Looked(p.Backends()[i], Look{At: at, Took: time.Millisecond, Finding: f, Why: "GET /health answered 500"})
	}
}

func statesOf(p *Pool) (list []State) {
	for _, b := range p.Backends() {
		list = append(list, b.Standing().State)
	}
	return list
}

func TestChecksDecide(t *testing.T) {
	const ok, fail, slow, wait = LookOK, LookFail, LookSlow, LookNotReady
	for _, c := range []struct {
		name  string
		looks []Finding
		want  State
		slow  bool
	}{
		{"none yet", nil, Active, false},
		{"two failures", []Finding{ok, fail, fail}, Active, false},
		{"failures, not in a row", []Finding{fail, fail, ok, fail, fail}, Active, false},
		{"three in a row", []Finding{ok, fail, fail, fail}, Unhealthy, false},
		{"one success", []Finding{fail, fail, fail, ok}, Unhealthy, false},
		{"two successes in a row", []Finding{fail, fail, fail, ok, ok}, Active, false},
		{"two, not in a row", []Finding{fail, fail, fail, ok, fail, ok}, Unhealthy, false},
		{"slow, and alive", []Finding{slow, slow, slow, slow, slow}, Active, true},
		{"slow checks bring back", []Finding{fail, fail, fail, slow, slow}, Active, true},
		{"slow once", []Finding{slow, ok, slow, ok}, Active, false},
		{"more slow than fast", []Finding{slow, ok, slow, slow}, Active, true},
		{"lived down", []Finding{slow, slow, slow, slow, slow, slow, ok, ok, ok}, Active, false},
		{"not ready", []Finding{ok, wait}, Warming, false},
		{"ready once", []Finding{wait, ok}, Warming, false},
		{"ready", []Finding{wait, ok, ok}, Active, false},
		{"from dead to not ready", []Finding{fail, fail, fail, wait, wait}, Warming, false},
		{"not ready, then dead", []Finding{wait, fail, fail, fail}, Unhealthy, false},
	} {
		p, _ := watched(t, 2, DefaultOutlier())
		looks(p, 0, c.looks...)
		if b := p.Backends()[0]; b.Standing().State != c.want || b.Slow() != c.slow {
			t.Errorf("%s: %+v, slow %v; want %s, %v", c.name, b.Standing(), b.Slow(), c.want, c.slow)
		}
	}
}

// The strongest of what speaks against a backend makes its state, and what it
// hides goes on.
func TestStrongestDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := watched(t, 3, ejecting(3, 50))
		b := p.Backends()[0]
		stands := func(what string, want State) {
			t.Helper()
			if got := b.Standing(); got.State != want || got.Reason == "" {
				t.Fatalf("%s: %+v, want %s", what, got, want)
			}
		}
		fail(p, 0, 3)
		stands("failures", Ejected)
		looks(p, 0, LookNotReady)
		stands("its own word", Warming)
		looks(p, 0, LookFail, LookFail, LookFail)
		stands("checks", Unhealthy)
		p.Drain(b, time.Now(), time.Time{})
		stands("an operator", Draining)
		p.Undrain(b, time.Now())
		stands("the operator's second thought", Unhealthy)
		looks(p, 0, LookNotReady, LookNotReady)
		stands("alive", Warming)
		looks(p, 0, LookOK, LookOK)
		stands("ready, and never proved on a stream", Ejected)
		<-time.After(time.Until(b.Standing().Until) + 1)
		l := trial(t, p, 0)
		p.Succeeded(&l, time.Now(), 0)
		l.Release(time.Now())
		stands("proved", Active)
	})
}

// A backend that hangs behind a lively health page stays out as long as its
// ejection says; one whose checks saw it die is tried when they see it well.
func TestChecksDoNotEndAnEjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := watched(t, 3, ejecting(3, 50))
		fail(p, 0, 3)
		until := p.Backends()[0].Standing().Until
		for range 4 {
			<-time.After(2 * time.Second)
			looks(p, 0, LookOK)
		}
		if s := p.Backends()[0].Standing(); s.State != Ejected || s.Until != until {
			t.Errorf("passed checks made it %+v", s)
		}
		fail(p, 1, 3) // no room for another one
		looks(p, 1, LookFail, LookFail, LookFail)
		if got := statesOf(p); !slices.Equal(got, []State{Ejected, Unhealthy, Active}) {
			t.Errorf("states %v", got)
		}
	})
}

func TestEveryChangeIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := ejecting(3, 50)
		o.PanicPercent = 0
		p, told := watched(t, 2, o)
		b := p.Backends()[0]
		looks(p, 0, LookFail, LookFail, LookFail, LookFail)
		looks(p, 0, LookOK, LookOK, LookOK)
		fail(p, 0, 3)
		<-time.After(12 * time.Second)
		l := trial(t, p, 0)
		p.Failed(&l, time.Now(), FailedBroke, "reset")
		l.Release(time.Now())
		p.Drain(b, time.Now(), time.Time{})
		p.Undrain(b, time.Now())
		p.Admit(b, time.Now())
		if err := p.Update(nil, Rules{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		want := []struct {
			from, to State
			why      string
		}{
			{Active, Unhealthy, "3 health checks failed in a row, the last: GET /health answered 500"},
			{Unhealthy, Active, "2 good health checks in a row"},
			{Active, Ejected, "3 failures in a row"},
			{Ejected, Ejected, "the trial stream failed"},
			{Ejected, Draining, "operator"},
			{Draining, Draining, "drained in 0s"},
			{Draining, Ejected, "the trial stream failed"},
			{Ejected, Active, "operator"},
			{Active, Removed, "no longer configured"},
		}
		i := 0
		for _, e := range *told {
			if e.Backend != "b0" {
				continue
			}
			if i == len(want) || e.From != want[i].from || e.To != want[i].to || !strings.Contains(e.Reason, want[i].why) || e.At.IsZero() || e.Pool != "llm" {
				t.Fatalf("event %d is %+v", i, e)
			}
			i++
		}
		if i != len(want) {
			t.Errorf("%d events of %d: %+v", i, len(want), *told)
		}
	})
}

// Below the threshold health is ignored, and said so, while one is usable.
func TestPanic(t *testing.T) {
	for _, c := range []struct {
		n, percent int
		down       int
		panics     bool
	}{
		{4, 50, 2, false}, {4, 50, 3, true}, {4, 50, 4, false}, {3, 50, 1, false}, {3, 50, 2, true}, {10, 0, 9, false}, {2, 100, 1, true}, {1, 50, 1, false},
	} {
		o := DefaultOutlier()
		o.PanicPercent = c.percent
		p, told := watched(t, c.n, o)
		for i := range c.down {
			looks(p, i, LookFail, LookFail, LookFail)
		}
		if p.Panic() != c.panics || p.Usable() != c.n-c.down {
			t.Errorf("%+v: panic %v, %d usable", c, p.Panic(), p.Usable())
		}
		said := slices.ContainsFunc(*told, func(e Event) bool { return e.Backend == "" && e.Panic })
		if said != (c.panics || c.down == c.n && c.n > 1 && c.percent > 0) {
			t.Errorf("%+v: told %v", c, *told)
		}
		_, err := p.Pick(time.Now(), Ask{})
		if want := c.down < c.n; (err == nil) != want {
			t.Errorf("%+v: a pick gives %v", c, err)
		}
	}
}

func TestPanicSpreads(t *testing.T) {
	p, told := watched(t, 3, DefaultOutlier())
	looks(p, 0, LookFail, LookFail, LookFail)
	looks(p, 1, LookFail, LookFail, LookFail)
	if got := shares(t, p, 3000); slices.Min(got) < 800 {
		t.Errorf("in panic, shares are %v", got)
	}
	if got := statesOf(p); !slices.Equal(got, []State{Unhealthy, Unhealthy, Active}) {
		t.Errorf("panic changed what is said of them: %v", got)
	}
	looks(p, 0, LookOK, LookOK)
	if got := shares(t, p, 300); p.Panic() || got[1] != 0 {
		t.Errorf("after it, panic %v, shares %v", p.Panic(), got)
	}
	if last := (*told)[len(*told)-1]; last.Panic || last.Backend != "" || !strings.Contains(last.Reason, "2 of 3") {
		t.Errorf("told last: %+v", last)
	}
	looks(p, 2, LookNotReady) // counts for neither side: one of two is usable
	if got := shares(t, p, 300); p.Panic() || got[0] != 300 {
		t.Errorf("while one warms up: panic %v, shares %v", p.Panic(), got)
	}
}

// With none usable there is no panic: all would make the client wait.
func TestAllDown(t *testing.T) {
	p, _ := watched(t, 3, DefaultOutlier())
	for i := range 3 {
		looks(p, i, LookFail, LookFail, LookFail)
	}
	if _, err := p.Pick(time.Now(), Ask{}); err != ErrNone || p.Panic() {
		t.Errorf("all down: %v, panic %v", err, p.Panic())
	}
}

// Checks that are switched off have no say left, nor has one under way.
func TestChecksSwitchedOff(t *testing.T) {
	p, _ := watched(t, 2, DefaultOutlier())
	looks(p, 0, LookFail, LookFail, LookFail, LookSlow)
	configs := []Config{{ID: "b0", URL: p.Backends()[0].URL, Weight: 1}}
	if err := p.Update(configs, Rules{Outlier: DefaultOutlier()}, time.Now()); err != nil {
		t.Fatal(err)
	}
	looks(p, 0, LookFail, LookFail, LookFail)
	if s := p.Backends()[0].Standing(); s.State != Active || p.Backends()[0].Slow() {
		t.Errorf("without checks: %+v", s)
	}
}
