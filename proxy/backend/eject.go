package backend

import (
	"fmt"
	"time"
)

// Succeeded tells the pool that a backend began an answer: its failures no
// longer count, and an ejection that a trial was deciding over ends.
func (p *Pool) Succeeded(b *Backend) {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
	if b.standing.Load().State != Ejected {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := b.standing.Load(); s.State == Ejected && time.Now().After(s.Until) {
		p.set(b, Standing{State: Active, Reason: "the trial stream succeeded"})
	}
}

// Failed tells the pool that a backend failed before the first byte of an
// answer. Enough failures in a row eject it, and so does a failed trial.
func (p *Pool) Failed(b *Backend, what string) {
	n := b.failures.Add(1)
	most := p.now.Load().rules.Outlier.ConsecutiveFailures
	if most == 0 || n < int64(most) && b.standing.Load().State != Ejected {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	s := b.standing.Load()
	switch {
	case s.State == Active && p.mayEject():
		p.eject(b, now, 1, fmt.Sprintf("%d failures in a row, the last: %s", n, what))
	case s.State == Ejected && now.After(s.Until):
		p.eject(b, now, s.Times+1, "the trial stream failed: "+what)
	}
}

// mayEject tells whether one more ejection stays within the limit, which is
// judged by the share after it; the last backend always stays.
func (p *Pool) mayEject() bool {
	out := 1
	list := p.Backends()
	for _, b := range list {
		if b.standing.Load().State == Ejected {
			out++
		}
	}
	return out < len(list) && out*100 <= p.now.Load().rules.Outlier.MaxEjectedPercent*len(list)
}

func (p *Pool) eject(b *Backend, now time.Time, times int, reason string) {
	rules := p.now.Load().rules.Outlier
	length := rules.BaseEjection
	for i := 1; i < times && length < rules.MaxEjection; i++ {
		length *= 2
	}
	p.set(b, Standing{State: Ejected, Reason: reason, Until: now.Add(min(length, rules.MaxEjection)), Times: times})
}

// set changes the state; mu is held.
func (p *Pool) set(b *Backend, s Standing) {
	s.Since = time.Now()
	b.standing.Store(&s)
	if p.hooks.Changed != nil {
		p.hooks.Changed(b, s)
	}
	p.queue.review()
}
