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
	cureAskTime   cure = 1 << iota // a lease counts from the question, not from the grant's arrival
	cureMargin                     // a leader counts a lease for longer than its holder, whose clock may drift
	cureGrace                      // a new leader changes nothing of its own before leases of the old one are over
	cureNumber                     // an answer to one hold is none to another
	cureSilence                    // an answer that crossed the feed's word about the session is dropped
	cureGap                        // so is one that has seen less than the section's begin
	cureCount                      // a turn is counted before it looks for the last time
	cureLook                       // and looks again before it writes
	cureHolders                    // every holder is asked, lapsed lease or not
	cureLetGo                      // a session is let go by a hold, too
	cureOutcome                    // a hold that is proposed is not called off
	cureTermEnds                   // nor does it end in the feeds once its term is over
	cureTakenAway                  // a holder that is being taken away gets no lease
	cureOldTerm                    // a section of a lower term begins nothing
	cureGivenBack                  // who becomes a holder again begins a section, though its feed was never lost
	cureLeft                       // a renewal that was sent before its sender left makes it no holder again
)

// uncounted takes back a turn's count: it is counted only after its last look. (An
// ask in its stead keeps the record.)
func (l *live) uncounted() {
	l.turns--
	l.asks++
}

// countLate counts it, a moment after that look.
func (t *Turn) countLate() {
	rest(context.Background(), 10*time.Millisecond)
	p := t.s.stripe(t.session)
	p.mu.Lock()
	defer p.mu.Unlock()
	t.l.turns++
	t.l.asks--
}

// lacks says whether a test has taken a cure out.
func (o *Options) lacks(c cure) bool { return o.without&c != 0 }
