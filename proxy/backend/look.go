package backend

import (
	"fmt"
	"time"
)

// MaxLooks bounds the health checks that are remembered, and reported, of one
// backend by one node.
const MaxLooks = 10

// Finding is what one health check found.
type Finding string

// The findings of a health check; the list is closed. As in the metric
// health_checks_total, slow is alive; NotReady is alive without wanting traffic.
const (
	LookOK       Finding = "ok"
	LookSlow     Finding = "slow"
	LookFail     Finding = "fail"
	LookNotReady Finding = "not_ready"
)

// Findings lists every Finding.
func Findings() []Finding { return []Finding{LookOK, LookSlow, LookFail, LookNotReady} }

// Look is one health check.
type Look struct {
	At       time.Time // when it ended, by the clock of who made it
	Took     time.Duration
	Finding  Finding
	TimedOut bool   // of a failure: there was no answer in time, as of a backend that is only busy
	Why      string // of a failure, and of NotReady, for people; not gossiped
}

// Looked tells the pool what a health check from this node found.
func (p *Pool) Looked(b *Backend, l Look) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &b.condition
	if c.removed || !p.now.Load().rules.Health.Enabled {
		return // a check that was under way
	}
	c.looks = append([]Look{l}, c.looks[:min(len(c.looks), MaxLooks-1)]...)
	if h := b.haunted.Load(); l.Finding != LookFail && h != nil && h.refused {
		b.haunted.CompareAndSwap(h, nil) // it can be reached again
	}
	p.judge(b, l.At)
}

// Testify tells the pool what the other nodes found of a backend, and how many
// nodes that check it are alive, this one among them. It replaces what was told
// before.
func (p *Pool) Testify(b *Backend, now time.Time, others []Witness, alive int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.condition.others, b.condition.alive = others, alive
	p.judge(b, now)
}

// Health is how the pool's backends are to be checked.
func (p *Pool) Health() HealthConfig { return p.now.Load().rules.Health }

// Looks are this node's health checks of the backend, newest first.
func (p *Pool) Looks(b *Backend) []Look {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Look(nil), b.condition.looks...)
}

// Verdict is what health checks say of the backend now.
func (p *Pool) Verdict(b *Backend) Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	return b.condition.verdict
}

// judge comes to a new verdict. mu is held.
func (p *Pool) judge(b *Backend, now time.Time) {
	c, rules := &b.condition, p.now.Load().rules.Health
	before, because := c.verdict, fmt.Sprintf("%d good health checks in a row", rules.Rise)
	if rules.Enabled {
		witnesses := append([]Witness{{Looks: c.looks, Heard: b.Heard()}}, c.others...)
		c.verdict = Case{Witnesses: witnesses, Alive: c.alive, Rise: rules.Rise, Fall: rules.Fall, Before: before}.Judge()
	} else {
		c.looks, c.verdict, because = nil, Verdict{}, "health checks are off"
	}
	b.slow.Store(c.verdict.Slow)
	if before.Down && !c.verdict.Down && c.out.on && c.out.until.After(now) {
		// What the checks saw too is over by their word: one stream decides now.
		// An ejection that they did not see is none of their business.
		c.out.until, c.out.reason = now, "its health checks pass again; the next stream decides"
	}
	p.settle(b, now, because)
}

// Heard is when a byte is known to have come from the backend last, in ns since
// 1970; 0: never.
func (b *Backend) Heard() int64 { return b.heard.Load() }

// Listen notes that the backend was heard, if something came from it since the
// last call. Streams count what comes, without looking at a clock.
func (b *Backend) Listen(now time.Time) {
	if pulse := b.pulse(); b.pulsed.Swap(pulse) != pulse {
		b.heard.Store(now.UnixNano())
	}
}

// pulse changes with all that comes from the backend.
func (b *Backend) pulse() uint64 { return b.made.Load() + b.heads.Load() }
