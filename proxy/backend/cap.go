package backend

import (
	"math"
	"time"
)

const (
	engineFresh = 15 * time.Second
	surelyWaits = 5 // words of an engine: by chance it happens once in many hours
)

// slots is what a backend's cap is learned from where nobody tells it. Prefill and
// decode share an engine: for each stream whose answer has begun the same number
// waits for its first piece, whatever the engine's speed and however many they
// are, until some wait for a slot as well. A backend where clearly more wait than
// at the pool's median has as many slots as streams are active there.
type slots struct {
	running, waiting float64       // streams of the whole cluster whose answer began, and whose did not, of late
	most             float64       // active at a time; 0: it was never seen full
	calm             time.Duration // at the cap with no queue, since it was seen full or raised
	told             time.Time     // when the engine told its cap last

	waits int // words of the engine in a row in which streams waited
	ran   int // the most that ran in them
}

const (
	slotsWindow = 3 * time.Second // of what runs and waits of late
	slotsTrust  = time.Minute     // until a cap that is seen lower is
	slotsCalm   = 3 * time.Minute // of no queue at the cap, until more are tried
	slotsTry    = 1.03            // times the cap
	excess      = 1.3             // times the usual: by so much engines differ without a queue
)

// count takes in a sample of dt seconds.
func (w *slots) count(running, waiting, dt float64) {
	weight := 1 - math.Exp(-dt/slotsWindow.Seconds())
	w.running += (running - w.running) * weight
	w.waiting += (waiting - w.waiting) * weight
}

// learn sees whether streams wait for a slot. usual is how many wait for each that
// runs at a median backend.
func (w *slots) learn(usual float64, dt time.Duration) {
	active := w.running * (1 + usual)
	switch queued := w.waiting - excess*usual*w.running; {
	case queued > 1+math.Sqrt(usual*w.running):
		if active > w.most {
			w.most = active
		} else {
			w.most += (active - w.most) * (1 - math.Exp(-dt.Seconds()/slotsTrust.Seconds()))
		}
		w.calm = 0
	case w.most == 0:
	case active > w.most:
		w.most, w.calm = active, 0
	case active > 0.9*w.most:
		if w.calm += dt; w.calm > slotsCalm {
			w.most, w.calm = w.most*slotsTry, 0
		}
	}
}

// learnCaps gives those whose cap nobody tells the one that was seen. mu is
// held.
func (p *Pool) learnCaps(list []*Backend, now time.Time, dt time.Duration) {
	usual, known := 0.0, false
	for _, b := range list {
		w := &b.slots
		t := *b.terms.Load()
		if t.CapSource == CapConfig || t.CapSource == CapEngine && now.Sub(w.told) < engineFresh {
			continue
		}
		if !known { // only where it is asked for: it sorts them all
			usual, known = p.waiting(list), true
		}
		next := t
		next.Cap, next.CapSource = 0, CapNone
		if p.usual.streaming {
			w.learn(usual, dt)
			if w.most > 0 {
				next.Cap, next.CapSource = max(1, int(w.most)), CapLearned
			}
		}
		if next != t {
			b.terms.Store(&next)
		}
	}
}

// waiting is how many streams wait for their first piece for each that runs, at a
// median backend. mu is held.
func (p *Pool) waiting(list []*Backend) float64 {
	shares := p.scratch[:0]
	for _, b := range list {
		if w := &b.slots; w.running >= 1 {
			shares = append(shares, w.waiting/w.running)
		}
	}
	p.scratch = shares
	return median(shares)
}

// SetEngine takes what the backend's engine says of itself, about once a second:
// streams that run and that wait there, and its cap; 0: it does not say. Then
// the cap is what runs while some have waited in several words in a row: one
// that waits at a moment may only be between two steps of the engine. It comes
// down to that step by step, since an engine may also run few for a moment: it
// reads a long prompt, or makes room. Where as many run as the cap and none
// waits, the cap is too low.
func (b *Backend) SetEngine(running, waiting, most int, now time.Time) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	t, w := *b.terms.Load(), &b.slots
	if t.CapSource == CapConfig {
		return
	}
	if waiting < max(1, running/16) {
		w.waits, w.ran = 0, 0
	} else {
		w.waits, w.ran = w.waits+1, max(w.ran, running)
	}
	known, above := t.CapSource == CapEngine, running+waiting
	if known {
		above = t.Cap
	}
	switch {
	case most > 0:
	case w.waits >= surelyWaits && w.ran > 0:
		most = max(w.ran, above*7/8)
		w.ran = running // what runs next may be longer, and less of it fit
	case known && waiting == 0 && running >= t.Cap:
		most = running + max(1, running/4)
	case known:
		most = t.Cap
	default:
		return
	}
	w.told = now
	if !known || t.Cap != most {
		t.Cap, t.CapSource = most, CapEngine
		b.terms.Store(&t)
	}
}
