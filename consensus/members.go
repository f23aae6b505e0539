package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// caughtUp is how many entries a follower may lack that is to lead next.
const caughtUp = 16

// ErrTransfer is a transfer that was not begun, or did not succeed.
var ErrTransfer = errors.New("leadership was not transferred")

// Replica is one member of a group, as its leader sees it.
type Replica struct {
	Node  string
	Life  uint64 // of the replica: with Node its Name
	Voter bool
	Match uint64        // its log agrees up to here; 0: not known, as always on another than the leader
	Lag   uint64        // committed entries that it lacks; 0 where Match is not known
	Heard time.Duration // since its last answer; on another than the leader 0
}

// Status is what an operator wants to know of a replica.
type Status struct {
	State
	LastIndex, Applied uint64
	Config             uint64 // number of the configuration, for Change
	Replicas           []Replica
}

// Life is Spec.Life.
func (g *Group) Life() uint64 { return g.key.Life }

// Status is the replica's status now.
func (g *Group) Status() Status {
	st := Status{State: g.State()}
	l := g.current()
	if l == nil {
		return st
	}
	st.LastIndex, st.Applied = l.raft.LastIndex(), l.raft.AppliedIndex() // elections and members, too, that no machine sees
	st.Config = l.fsm.config.Load()
	commit, at := l.raft.CommitIndex(), now()
	for _, s := range l.raft.GetConfiguration().Configuration().Servers {
		r := Replica{Voter: s.Suffrage == raft.Voter}
		r.Node, r.Life = parse(string(s.ID))
		if k := l.wire.acks.of(s.ID, st.Term); st.Led && string(s.ID) == g.name {
			r.Match = st.LastIndex
		} else if st.Led && k.sent > 0 {
			r.Match, r.Heard = k.match, at-k.sent
			r.Lag = commit - min(k.match, commit)
		}
		st.Replicas = append(st.Replicas, r)
	}
	return st
}

// Step is one change of a group's members. Raft takes one at a time.
type Step int

const (
	AddNonvoter Step = iota + 1 // it gets the log and has no vote
	AddVoter                    // also makes a voter of a non-voter
	Demote                      // makes a non-voter of a voter
	Remove
)

// Change takes one step, on the leader, if the configuration is still the one
// with that number (0: whatever it is). Safe sequences are the caller's matter.
// AddNonvoter, and AddVoter of a new member, want a replica's Name; to the others
// the node is enough.
func (g *Group) Change(ctx context.Context, step Step, node string, config uint64) error {
	l, err := g.living()
	if err != nil {
		return err
	}
	id := l.member(node)
	address := raft.ServerAddress(id)
	err = l.await(ctx, func() raft.Future {
		switch step {
		case AddNonvoter:
			return l.raft.AddNonvoter(id, address, config, rpcTime)
		case AddVoter:
			return l.raft.AddVoter(id, address, config, rpcTime)
		case Demote:
			return l.raft.DemoteVoter(id, config, rpcTime)
		case Remove:
			return l.raft.RemoveServer(id, config, rpcTime)
		}
		panic(fmt.Sprintf("BUG: step %d", step))
	})
	if err != nil {
		return fmt.Errorf("change of the members of %v: %w", g.ID, err)
	}
	return nil
}

// transfer hands leadership to a voter that has all but the last few entries and
// answers. To any other, Raft would refuse commands meanwhile, and might never
// stop to.
func (g *Group) transfer(ctx context.Context, node string) error {
	l, err := g.living()
	if err != nil {
		return err
	}
	if l.raft.State() != raft.Leader {
		return l.notLeader()
	}
	if err := g.fit(l, node); err != nil {
		return fmt.Errorf("transfer of %v to node %s: %w: %w", g.ID, node, ErrTransfer, err)
	}
	err = l.await(ctx, func() raft.Future {
		id := l.member(node)
		return l.raft.LeadershipTransferToServer(id, raft.ServerAddress(id))
	})
	if err != nil {
		return fmt.Errorf("transfer of %v to node %s: %w: %w", g.ID, node, ErrTransfer, err)
	}
	return nil
}

// fit says why a node should not lead next.
func (g *Group) fit(l *life, node string) error {
	k := l.wire.acks.of(l.member(node), l.raft.CurrentTerm())
	last := l.raft.LastIndex()
	switch {
	case !l.votes(node):
		return errors.New("it is no voter")
	case k.sent == 0 || now()-k.sent > g.o.Timing.Heartbeat:
		return errors.New("it does not answer")
	case k.match+caughtUp < last:
		return fmt.Errorf("it lacks %d entries", last-k.match)
	}
	return nil
}

// member is the member of that name, or of that node if there is one; else what
// was said: it is new.
func (l *life) member(name string) raft.ServerID {
	found := raft.ServerID(name)
	for _, s := range l.raft.GetConfiguration().Configuration().Servers {
		if string(s.ID) == name {
			return s.ID
		}
		if nodeOf(s.ID) == name {
			found = s.ID
		}
	}
	return found
}

func (l *life) votes(node string) bool {
	for _, s := range l.raft.GetConfiguration().Configuration().Servers {
		if s.ID == l.member(node) {
			return s.Suffrage == raft.Voter
		}
	}
	return false
}

// await asks Raft for something and waits for it in ctx; Raft's own waits know no
// end. After ctx the outcome is unknown.
func (l *life) await(ctx context.Context, ask func() raft.Future) error {
	done := make(chan error, 1)
	if !l.start(func() {
		done <- l.outcome(ask())
	}) {
		return ErrStopped
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
}
