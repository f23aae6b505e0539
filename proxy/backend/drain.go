package backend

import (
	"fmt"
	"strings"
	"time"
)

// drain is an operator's wish that a backend takes nothing new and its streams
// run out. It cuts none: where some are left at its deadline it says so, and the
// backend stays out.
type drain struct {
	began time.Time
	until time.Time // zero: no deadline
	over  string    // how it ended; empty: it goes on
	early bool      // it began before this process, and nothing of it is known
}

func (d *drain) standing() Standing {
	if d.over != "" {
		return Standing{State: Draining, Reason: d.over}
	}
	return Standing{State: Draining, Reason: "an operator drains it", Until: d.until}
}

// Drain has the backend take nothing new. The drain is over when its last stream
// has ended, or at its deadline (zero: there is none); the backend stays Draining
// until Undrain. A second Drain sets the deadline anew.
func (p *Pool) Drain(b *Backend, now, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &b.condition
	if c.removed {
		return
	}
	if c.drain == nil || c.drain.over != "" {
		c.drain = &drain{began: now, early: p.expecting.Load()}
		b.holding.Store(0)
	}
	c.drain.until = until
	p.settle(b, now, "")
	if b.Carried() == 0 && !p.expecting.Load() {
		p.drained(b, now, nil)
	}
}

// Undrain lets the backend take streams again, as its health allows.
func (p *Pool) Undrain(b *Backend, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.condition.drain != nil {
		b.condition.drain = nil
		p.settle(b, now, "the drain was taken back")
	}
}

// Overdue tells whether the backend's drain should be given up.
func (b *Backend) Overdue(now time.Time) bool {
	s := b.standing.Load()
	return s.State == Draining && !s.Until.IsZero() && !now.Before(s.Until)
}

// GiveUpDrain ends a drain that is overdue; held names streams that it waited
// for in vain.
func (p *Pool) GiveUpDrain(b *Backend, now time.Time, held []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.Overdue(now) {
		p.drained(b, now, held)
	}
}

// emptied looks whether the last stream of a draining backend has ended.
func (p *Pool) emptied(b *Backend, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch d := b.condition.drain; {
	case d == nil || p.expecting.Load():
	case b.Carried() > 0:
		d.early = false // here is what it waits for
	case d.early && d.over == "":
		d.over = "drained before this process began" // that is no news
		s := d.standing()
		s.Since = b.standing.Load().Since
		b.standing.Store(&s)
	default:
		p.drained(b, now, nil)
	}
}

// drained ends a drain, unless it is over. mu is held.
func (p *Pool) drained(b *Backend, now time.Time, held []string) {
	d := b.condition.drain
	if d == nil || d.over != "" {
		return
	}
	took, left := now.Sub(d.began), b.Carried()
	switch last := b.holding.Load(); {
	case left > 0:
		d.over = fmt.Sprintf("the drain was given up after %v: %d streams are left (%s)", took.Round(time.Millisecond), left, strings.Join(held, ", "))
	case last != 0:
		d.over = fmt.Sprintf("drained in %v; stream %d was the last", took.Round(time.Millisecond), last)
	default:
		d.over = fmt.Sprintf("drained in %v", took.Round(time.Millisecond))
	}
	if p.hooks.Drained != nil {
		p.hooks.Drained(b, took, left)
	}
	p.publishState(b, now, d.standing())
}

// HeldBy notes which stream held a drain up last: it is named when that is over.
func (b *Backend) HeldBy(stream uint64) { b.holding.Store(stream) }
