package backend

import (
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
