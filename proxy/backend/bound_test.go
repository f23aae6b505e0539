package backend

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// A stream that is bound to a backend that drains finds the place there that is
// free, though others came before who cannot use it, and no one else does.
func TestBoundStreams(t *testing.T) {
	now := time.Now()
	rules := Rules{MaxStreams: 1, MaxWaiting: 8, MaxWait: 20 * time.Second}
	p, err := NewPool("p", []Config{{ID: "a", URL: "http://127.0.0.1:1", Weight: 1}, {ID: "b", URL: "http://127.0.0.1:2", Weight: 1}}, rules, Hooks{}, now)
	if err != nil {
		t.Fatal(err)
	}
	a, b := p.Named("a"), p.Named("b")
	if a == nil || b == nil || a == b || p.Named("c") != nil {
		t.Fatalf("a is %v, b is %v, c is %v", a, b, p.Named("c"))
	}
	p.Drain(a, now, time.Time{})
	bound := Ask{Only: a, Bound: true}
	if _, err := p.Pick(now, Ask{Only: a}); !errors.Is(err, ErrNone) {
		t.Errorf("who only prefers a backend that drains gets %v", err)
	}
	first, err := p.Pick(now, Ask{})
	if err != nil || first.Backend() != b {
		t.Fatalf("%v at %v", err, first.Backend())
	}
	anyone := waitFor(t, p, Ask{})
	second, err := p.Pick(now, bound)
	if errors.Is(err, ErrFull) { // others wait
		second, err = p.Wait(t.Context(), bound)
	}
	if err != nil || second.Backend() != a {
		t.Fatalf("the bound one got %v at %v", err, second.Backend())
	}
	third := waitFor(t, p, bound)
	second.Release(time.Now()) // the place is the bound one's, who came behind the other
	if l := <-third; l.Backend() != a {
		t.Errorf("the second bound one is at %v", l.Backend())
	}
	first.Release(time.Now())
	if l := <-anyone; l.Backend() != b {
		t.Errorf("who takes any is at %v", l.Backend())
	}
	p.Eject(b, now, time.Hour)
	if _, err := p.Pick(time.Now(), Ask{Only: b, Bound: true}); !errors.Is(err, ErrNone) {
		t.Errorf("bound to an ejected backend: %v", err)
	}
}

// waitFor has a stream wait, and returns once it does.
func waitFor(t *testing.T, p *Pool, ask Ask) <-chan Lease {
	t.Helper()
	before, got := p.Waiting(), make(chan Lease, 1)
	go func() {
		l, err := p.Wait(t.Context(), ask)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	for by := time.Now().Add(20 * time.Second); p.Waiting() == before; <-time.After(time.Millisecond) {
		if time.Now().After(by) {
			t.Fatal("nobody waits")
		}
	}
	return got
}

func TestHeavy(t *testing.T) {
	for _, tt := range []struct {
		name       string
		home, away int // streams
		change     func(p *Pool, rules *Rules)
		want       bool
	}{
		{"alike", 30, 30, nil, false},
		{"empty", 0, 0, nil, false},
		{"somewhat fuller", 45, 0, nil, false},
		{"far fuller", 60, 0, nil, true},
		{"far fuller than the full", 60, 20, nil, false},
		{"slower, with little to do", 3, 0, func(p *Pool, _ *Rules) { p.Named("a").speed.Store(0.1) }, false},
		{"slower", 20, 20, func(p *Pool, _ *Rules) { p.Named("a").speed.Store(0.3) }, true},
		{"by another policy", 60, 0, func(_ *Pool, r *Rules) { r.Placement.Policy = RoundRobin }, false},
		{"draining", 60, 0, func(p *Pool, _ *Rules) { p.Drain(p.Named("a"), time.Now(), time.Time{}) }, false},
		{"nowhere else", 60, 0, func(p *Pool, _ *Rules) { p.Eject(p.Named("b"), time.Now(), time.Hour) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := time.Now()
			var rules Rules
			configs := []Config{{ID: "a", URL: "http://127.0.0.1:1", Weight: 1}, {ID: "b", URL: "http://127.0.0.1:2", Weight: 1}}
			p, err := NewPool("p", configs, rules, Hooks{}, now)
			if err != nil {
				t.Fatal(err)
			}
			for id, n := range map[string]int{"a": tt.home, "b": tt.away} {
				for range n {
					if _, err := p.Pick(now, Ask{Only: p.Named(id)}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if tt.change != nil {
				tt.change(p, &rules)
				if err := p.Update(configs, rules, now); err != nil {
					t.Fatal(err)
				}
			}
			if got := p.Heavy(p.Named("a"), now); got != tt.want {
				t.Errorf("heavy: %v", got)
			}
		})
	}
}

func BenchmarkHeavy(b *testing.B) {
	var configs []Config
	for i := range 64 {
		configs = append(configs, Config{URL: fmt.Sprintf("http://127.0.0.1:%d", i+1), Weight: 1})
	}
	p, err := NewPool("p", configs, Rules{}, Hooks{}, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	home, now := p.Backends()[0], time.Now()
	b.ReportAllocs()
	for b.Loop() {
		p.Heavy(home, now)
	}
}
