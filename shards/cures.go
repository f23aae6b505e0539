package shards

import (
	"context"
	"time"
)

// cure names a rule of the protocol. Each closes a way in which a session would
// run on two backends at once, or be lost; tests take one out at a time and show
// what happens then. In a node all are in force.
type cure uint32

const (
	cureAskTime  cure = 1 << iota // a lease counts from the question, not from the grant's arrival
	cureGrace                     // a new leader changes nothing of its own before leases of the old one are over
	cureNumber                    // an answer to one hold is none to another
	cureSilence                   // an answer that crossed the feed's word about the session is dropped
	cureGap                       // so is one that has seen less than the section's begin
	cureCount                     // a turn is counted before it looks
	cureLook                      // and looks again before it writes
	cureHolders                   // every holder is asked, lapsed lease or not
	cureLetGo                     // a session is let go by a hold, too
	cureOutcome                   // a hold that is proposed is not called off
	cureTermEnds                  // nor does it end in the feeds once its term is over
	cureOldTerm                   // a section of a lower term begins nothing
	cureOwnLease                  // a lease ends with its section
)

// enterLate is enter without its first rule: it looks, and counts a moment later.
// The stripe's mu is held at its begin and its end.
func (t *Turn) enterLate(p *stripe, now time.Duration) (state, <-chan struct{}) {
	l := p.alive(t.session)
	what, over := t.look(p, l, now), l.over
	p.tidy(t.session, l)
	if what != current {
		return what, over
	}
	p.mu.Unlock()
	rest(context.Background(), time.Millisecond)
	p.mu.Lock()
	p.alive(t.session).turns++
	t.goes(now)
	return current, nil
}

// lacks says whether a test has taken a cure out.
func (o *Options) lacks(c cure) bool { return o.without&c != 0 }
