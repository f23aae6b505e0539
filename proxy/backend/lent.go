package backend

import "time"

// A trial that is under way when another process becomes the node goes on in the one
// before, which tells what comes of it. Until then nobody else tries the backend.

// lentTime is how long that is waited for: the process before may have ended.
const lentTime = time.Minute

// Trial is the one stream that decides over an ejected backend, and what came of it.
type Trial struct {
	ID    string    `json:"id"`
	Of    time.Time `json:"of"` // when the ejection ended that it decides over
	Ended bool      `json:"ended,omitempty"`
	Out   *Out      `json:"out,omitempty"` // the ejection, once it ended
}

// Trial is the backend's, if one is under way. It is of the same moment as all that is
// remembered: whoever waits for it hears of it.
func (m *Memory) Trial() (t Trial, ok bool) {
	if !m.Trying || m.Out == nil || !m.Out.On {
		return t, false
	}
	return Trial{ID: m.ID, Of: m.Out.Until}, true
}

// Became is what came of a trial, as far as it is known.
func (p *Pool) Became(t Trial) Trial {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.now.Load().named[t.ID]
	switch {
	case b == nil:
		t.Ended = true // nobody will hear of it
	case !b.condition.out.on || !b.condition.out.until.Equal(t.Of):
		t.Ended, t.Out = true, b.condition.out.told()
	case !b.trial.Load():
		t.Ended = true // its client left
	}
	return t
}

// told is an ejection for others to hear.
func (e *ejection) told() *Out {
	return &Out{On: e.on, Reason: brief(e.reason), Until: e.until, Length: e.length, Times: e.times, Back: e.back}
}

// Hearken takes over what came of a trial in the process before.
func (p *Pool) Hearken(t Trial, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.now.Load().named[t.ID]
	if b == nil || !t.Ended || b.lent.IsZero() {
		return
	}
	if out := &b.condition.out; t.Out != nil && out.on && out.until.Equal(t.Of) {
		if t.Out.On {
			*out = t.Out.ejection(now)
			p.settle(b, now, "")
		} else {
			p.readmit(b, now, "the trial stream succeeded")
		}
	}
	p.takeBack(b)
}

// takeBack lets this process try a backend itself; mu is held.
func (p *Pool) takeBack(b *Backend) {
	b.lent = time.Time{}
	b.trial.Store(false)
	p.await()
}

// overdueLoans takes back what was waited for long enough; mu is held.
func (p *Pool) overdueLoans(now time.Time) {
	for _, b := range p.Backends() {
		if !b.lent.IsZero() && now.After(b.lent) {
			p.takeBack(b)
		}
	}
}
