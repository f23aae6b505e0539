package backend

import (
	"strings"
	"testing"
	"time"
)

// What an older process of the node carries counts where this one picks, in what it
// tells others, and for a drain, until it is over; what others say is left as it is.
func TestInherit(t *testing.T) {
	p := inheriting(t)
	b, now := p.Backends()[0], time.Now()
	p.Hear(map[string]Elsewhere{b.ID: {Nodes: 2, InFlight: 5, Running: 4, Speed: 3}})
	p.Inherit(map[string]Elder{b.ID: {InFlight: 2, Running: 1}})
	if e := b.Elsewhere(); e != (Elsewhere{Nodes: 2, InFlight: 7, Running: 5, Speed: 3}) {
		t.Errorf("a pick sees %+v", e)
	}
	if r := p.Reports(now)[0]; r.InFlight != 2 || r.Running != 1 || b.Carried() != 2 || b.InFlight() != 0 {
		t.Errorf("others hear %+v; %d are carried, %d here", r, b.Carried(), b.InFlight())
	}
	p.Hear(map[string]Elsewhere{b.ID: {Nodes: 2, InFlight: 1}})
	if e := b.Elsewhere(); e != (Elsewhere{Nodes: 2, InFlight: 3, Running: 1}) {
		t.Errorf("after news a pick sees %+v", e)
	}
	p.Drain(b, now, time.Time{})
	if over := drainOver(b); over {
		t.Error("the drain is over beneath the older process's streams")
	}
	p.Inherit(nil)
	if e := b.Elsewhere(); e != (Elsewhere{Nodes: 2, InFlight: 1}) || b.Carried() != 0 {
		t.Errorf("afterwards a pick sees %+v, %d are carried", e, b.Carried())
	}
	if !drainOver(b) {
		t.Error("the drain is not over with the last stream")
	}
}

func drainOver(b *Backend) bool {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	return b.condition.drain.over != ""
}

func inheriting(t *testing.T) *Pool {
	t.Helper()
	c := DefaultConfig()
	c.ID, c.URL = "b1", "http://127.0.0.1:1"
	p, err := NewPool("p", []Config{c}, Rules{}, Hooks{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A drain that is found at a start is over once older processes have told what they
// carry, and not before; one that nobody carries anything of is no news.
func TestDrainsAreNotOverBeforeEldersTell(t *testing.T) {
	for name, c := range map[string]struct {
		memory bool           // of the process before
		first  map[string]int // what elders carry at first
		want   string         // that is said of the end
		told   int            // drains
	}{
		"an upgrade":                    {true, map[string]int{"b1": 1}, "drained in ", 1},
		"an upgrade as the last ends":   {true, nil, "drained in ", 1},
		"a start beside an older one":   {false, map[string]int{"b1": 1}, "drained in ", 1},
		"a start with nothing to carry": {false, nil, "drained before this process began", 0},
	} {
		conf, drains := DefaultConfig(), 0
		conf.ID, conf.URL = "b1", "http://127.0.0.1:1"
		p, err := NewPool("p", []Config{conf}, Rules{}, Hooks{Drained: func(*Backend, time.Duration, int64) { drains++ }}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		p.Expect()
		b, now := p.Backends()[0], time.Now()
		p.Drain(b, now, time.Time{})
		if c.memory {
			p.Remember([]Memory{{ID: "b1", URL: conf.URL, State: Draining, Reason: "an operator drains it", Since: now, Drain: &Leaving{Began: now.Add(-time.Minute)}}}, 0, now)
		}
		p.emptied(b, now)
		if drainOver(b) {
			t.Errorf("%s: it is over before anybody has told", name)
		}
		for id, n := range c.first {
			p.Inherit(map[string]Elder{id: {InFlight: n}})
			if drainOver(b) {
				t.Errorf("%s: it is over beneath a stream", name)
			}
		}
		p.Inherit(nil)
		if s := b.Standing(); !drainOver(b) || !strings.HasPrefix(s.Reason, c.want) || s.State != Draining || drains != c.told {
			t.Errorf("%s: %+v, and %d drains were told", name, s, drains)
		}
		p.Drain(b, now, time.Time{})
		if s := b.Standing(); !strings.HasPrefix(s.Reason, "drained in ") || drains != c.told+1 {
			t.Errorf("%s: drained again it is %+v", name, s)
		}
	}
}
