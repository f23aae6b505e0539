package shards

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// sleeper is a machine's clock that goes on while the machine sleeps, which the
// runtime's own clock does not: here it goes on by nothing else.
type sleeper struct{ at atomic.Int64 }

func (s *sleeper) now() time.Duration     { return time.Duration(s.at.Load()) }
func (s *sleeper) sleeps(d time.Duration) { s.at.Add(int64(d)) }

// grants has every lease last for a lease from now on.
func (s *sleeper) grants(r *Router) {
	for _, one := range r.sections {
		one.mu.Lock()
		one.lengthen(int64(s.now()+lease), int64(s.now()))
		one.mu.Unlock()
	}
}

// briefly is a router whose leases were granted just now, and the name of a session.
func briefly(t *testing.T) (*Router, *sleeper, []byte) {
	t.Helper()
	s := new(sleeper)
	s.sleeps(time.Hour)
	r, names := leasedRouter(t, s.now)
	for _, one := range r.sections {
		one.until.Store(0)
		one.lasts.Store(0)
	}
	s.grants(r)
	return r, s, names[0]
}

func hit(t *testing.T, r *Router, name []byte) *Turn {
	t.Helper()
	turn, err := r.Turn(context.Background(), "llm", name, 0, nil)
	if err != nil || turn.Home().Lookup != LookupHit {
		t.Fatalf("no hit: %v", err)
	}
	return turn
}

// TestAMachineSleepsInATurn: a lease that lapses while the machine sleeps has lapsed,
// whatever the runtime's clock says. So the last look and the end read the leases' own.
func TestAMachineSleepsInATurn(t *testing.T) {
	for _, tt := range []struct {
		name       string
		early, mid time.Duration // it sleeps before the last look, and after it
		again      bool          // the lease is granted anew before the end
		look       error
		stale      bool
	}{
		{"not at all", 0, 0, false, nil, false},
		{"for less than its lease", lease / 2, lease / 4, false, nil, false},
		{"before its last look", lease, 0, false, ErrAgain, false},
		{"after its last look", 0, lease, false, nil, true},
		{"in two parts", lease / 2, lease / 2, false, nil, true},
		{"and has another lease at its end", 0, lease, true, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, s, name := briefly(t)
			turn := hit(t, r, name)
			s.sleeps(tt.early)
			if err := turn.Look(); !errors.Is(err, tt.look) {
				t.Errorf("look: %v, want %v", err, tt.look)
			}
			s.sleeps(tt.mid)
			if tt.again {
				s.grants(r)
			}
			if stale := turn.End(); stale != tt.stale || (r.Counts().Outlived == 1) != tt.stale {
				t.Errorf("stale: %v, want %v; %+v", stale, tt.stale, r.Counts())
			}
			next := &Turn{r: r, s: turn.s, session: turn.session, pool: "llm"}
			if what, _ := next.enter(r.glance()); tt.look != nil && what != leaseGap {
				t.Errorf("after the look that found the lease lapsed, a turn's first look says %d", what)
			}
		})
	}
}

// TestTheLastWordIsTheClocks: however long the last look takes, or waits for another
// turn's, the lease must last beyond it.
func TestTheLastWordIsTheClocks(t *testing.T) {
	r, s, name := briefly(t)
	turn := hit(t, r, name)
	p := turn.s.stripe(turn.session)
	p.mu.Lock()
	looked := make(chan error)
	go func() { looked <- turn.Look() }()
	all := make([]byte, 1<<20)
	for late := time.Now().Add(time.Minute); !strings.Contains(string(all[:runtime.Stack(all, true)]), "shards.(*Turn).stands("); runtime.Gosched() {
		if time.Now().After(late) {
			p.mu.Unlock()
			t.Fatal("it does not look")
		}
	}
	s.sleeps(lease)
	p.mu.Unlock()
	if err := <-looked; !errors.Is(err, ErrAgain) {
		t.Errorf("its lease lapsed while it looked, and it goes on: %v", err)
	}
	turn.End()
}

// TestHitsReadTheClock: once for the last look and once at the end, where no other
// clock will do. The one that goes on while a machine sleeps is a call of the system:
// each is a quarter of what a hit costs.
func TestHitsReadTheClock(t *testing.T) {
	reads := 0
	r, names := leasedRouter(t, func() time.Duration { reads++; return time.Second })
	reads = 0
	turn := hit(t, r, names[0])
	if reads != 0 || turn.Look() != nil || reads != 1 || turn.End() || reads != 2 {
		t.Errorf("the clock was read %d times, want 0, 1, and 2 in all", reads)
	}
}
