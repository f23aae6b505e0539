package backend

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Update makes the pool what configs and rules say, as one step. Who keeps its
// id and URL keeps its counts, its state and its streams; who is no longer named
// takes nothing new, and leaves when its last stream has ended. An invalid
// configuration changes nothing.
func (p *Pool) Update(configs []Config, rules Rules, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.now.Load().list
	var list []*Backend
	var terms []Terms
	for _, c := range configs {
		addr, err := ParseURL(c.URL)
		if err != nil {
			return fmt.Errorf("backend %q of pool %q: %w", c.ID, p.Name, err)
		}
		b := p.known(cmp.Or(c.ID, addr.Dial), c.URL)
		if b == nil {
			b = p.join(cmp.Or(c.ID, addr.Dial), c.URL, addr, now)
		}
		list = append(list, b)
		terms = append(terms, agreed(c, rules))
	}
	for i, b := range list {
		b.agree(terms[i])
		if p.hooks.Joined != nil && !slices.Contains(before, b) {
			b.Beside = p.hooks.Joined(b)
		}
	}
	p.adopt(list, rules)
	for _, b := range before {
		if !slices.Contains(list, b) {
			p.remove(b, now)
		}
	}
	for _, b := range list {
		p.judge(b, now) // by rules that may be new
	}
	p.weigh(now)
	p.queue.review()
	return nil
}

// agreed are the terms of a backend that the configuration tells.
func agreed(c Config, rules Rules) Terms {
	t := Terms{Weight: c.Weight, Cap: cmp.Or(c.MaxStreams, rules.MaxStreams), CapSource: CapNone}
	if t.Cap > 0 {
		t.CapSource = CapConfig
	}
	return t
}

// agree takes new terms over. A cap that was read or learned stays where none is
// configured. mu is held.
func (b *Backend) agree(t Terms) {
	if was := b.terms.Load(); was != nil && t.CapSource == CapNone && was.CapSource != CapConfig {
		t.Cap, t.CapSource = was.Cap, was.CapSource
	}
	b.terms.Store(&t)
}

// known is the pool's backend of that id and URL; nil where there is none.
func (p *Pool) known(id, url string) *Backend {
	for _, b := range p.now.Load().list {
		if b.ID == id && b.URL == url {
			return b
		}
	}
	return nil
}

func (p *Pool) join(id, url string, addr Address, now time.Time) *Backend {
	b := &Backend{ID: id, URL: url, Addr: addr, pool: p}
	b.elsewhere.Store(&Elsewhere{})
	b.elder.Store(&Elder{})
	b.standing.Store(&Standing{State: Active, Reason: "configured", Since: now})
	return b
}

// remove takes a backend that is in no set any more out for good; mu is held.
func (p *Pool) remove(b *Backend, now time.Time) {
	b.condition.removed = true
	p.settle(b, now, "no longer configured")
	if b.flights.count() == 0 {
		p.gone(b)
	}
}

// gone tells that a removed backend has no stream left. A pick that loaded an
// old set may still count one for an instant: Left is called once all the same.
func (p *Pool) gone(b *Backend) {
	if p.hooks.Left != nil && b.left.CompareAndSwap(false, true) {
		p.hooks.Left(b)
	}
}
