package consensus

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Proven returns once this replica is proven to have been the leader at a moment
// after the call, with all applied that was committed before: it may then answer
// from its state machine. It returns the term.
//
// Two things must hold. An entry of its own term is applied here. And a majority
// of voters, itself included, has confirmed the term in answer to something that
// was sent after the question came. Raft's VerifyLeader is weaker: it counts
// answers that were under way already, and those of non-voters, so a leader that
// was stopped for a minute verifies itself with an answer from before; here it
// only hurries the next heartbeat.
func (g *Group) Proven(ctx context.Context) (term uint64, err error) {
	asked := now()
	for {
		l, err := g.living()
		if err != nil {
			return 0, err
		}
		changed := l.wire.acks.wait() // before the look: nothing is missed
		term, ok, err := l.proven(asked)
		if ok || err != nil {
			return term, err
		}
		l.hasten(asked)
		select {
		case <-changed:
		case <-time.After(g.o.Timing.Heartbeat): // an office can be lost without a note
		case <-l.ending:
		case <-ctx.Done():
			return 0, fmt.Errorf("%v: no majority confirmed the leader: %w", g.ID, context.Cause(ctx))
		}
	}
}

// proven tells whether a majority confirmed after asked.
func (l *life) proven(asked time.Duration) (term uint64, ok bool, err error) {
	term = l.raft.CurrentTerm()
	if l.raft.State() != raft.Leader {
		return 0, false, l.notLeader()
	}
	if l.open.Load() != term {
		return 0, false, nil
	}
	voters, confirmed := 0, 0
	for _, s := range l.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(s.ID) == l.g.name || l.wire.acks.of(s.ID, term).sent >= asked {
			confirmed++
		}
	}
	if confirmed <= voters/2 {
		return 0, false, nil
	}
	if l.raft.State() != raft.Leader || l.raft.CurrentTerm() != term {
		return 0, false, l.notLeader() // lost in between; the self that was counted is gone
	}
	return term, true, nil
}

// hasten asks for a heartbeat that begins after asked, once for all who ask.
func (l *life) hasten(asked time.Duration) {
	l.mu.Lock()
	late := l.hastening || l.hurried >= asked // what is not even queued yet begins later still
	if !late {
		l.hastening, l.hurried = true, now()
	}
	l.mu.Unlock()
	if late {
		return
	}
	l.start(func() {
		l.raft.VerifyLeader() // may wait for Raft's main goroutine, till Shutdown at most; its word counts for nothing
		l.mu.Lock()
		defer l.mu.Unlock()
		l.hastening = false
	})
}
