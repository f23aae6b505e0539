package backend

import "time"

const (
	waited      = 500 * time.Millisecond // for the first piece: a stream that waited so long had no slot before
	slotsWindow = time.Minute
	engineFresh = 15 * time.Second
	surelyWaits = 5    // words of an engine: by chance it happens once in many hours
	surely      = 0.95 // of a cap that was seen: one taken too high costs more than one too low
)

// slots is the most streams that ran as one began after a wait, in this window
// and in the one before.
type slots struct {
	most, before int64
	began        time.Time
	told         time.Time // when the engine told its cap last

	waits int // words of the engine in a row in which streams waited
	ran   int // the most that ran in them
}

// learn notes how many streams run as one begins after a wait: while it waited
// there was no slot for it.
func (b *Backend) learn(wait time.Duration) {
	if wait < waited {
		return
	}
	n := b.flowing.count() + int64(b.elsewhere.Load().Running)
	for most := b.seen.Load(); n > most && !b.seen.CompareAndSwap(most, n); most = b.seen.Load() {
	}
}

// learnCaps gives those whose cap nobody tells the one that was seen. mu is
// held.
func (p *Pool) learnCaps(list []*Backend, now time.Time) {
	for _, b := range list {
		w := &b.slots
		if now.Sub(w.began) > slotsWindow {
			w.before, w.most, w.began = w.most, 0, now
		}
		w.most = max(w.most, b.seen.Swap(0))
		t := *b.terms.Load()
		if t.CapSource == CapConfig || t.CapSource == CapEngine && now.Sub(w.told) < engineFresh {
			continue
		}
		next := t
		next.Cap, next.CapSource = 0, CapNone
		if most := max(w.most, w.before); most > 0 && p.usual.streaming {
			next.Cap, next.CapSource = max(1, int(surely*float64(most))), CapLearned
		}
		if next != t {
			b.terms.Store(&next)
		}
	}
}

// SetEngine takes what the backend's engine says of itself, about once a second:
// streams that run and that wait there, and its cap; 0: it does not say. Then
// the cap is what runs while some have waited in several words in a row: one
// that waits at a moment may only be between two steps of the engine. Where as
// many run as the cap and none waits, the cap is too low.
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
	known := t.CapSource == CapEngine
	switch {
	case most > 0:
	case w.waits >= surelyWaits && w.ran > 0:
		most = w.ran
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
