package consensus

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

var (
	// ErrUnknown marks a command that may have been done, or may yet be.
	ErrUnknown = errors.New("outcome unknown")
	// ErrBusy is a command that was not taken: too many wait, or too many bytes.
	ErrBusy = errors.New("group is busy")
	// ErrTooLarge is a command that fits in no entry.
	ErrTooLarge = errors.New("command is too large")
	// ErrStopped is what a group that is stopped or halted says.
	ErrStopped = errors.New("group does not run")
)

// NotLeaderError says whom to ask; Leader is "" during an election.
type NotLeaderError struct {
	Shard  uint32
	Leader string
}

func (e *NotLeaderError) Error() string {
	if e.Leader == "" {
		return fmt.Sprintf("shard %d has no leader now", e.Shard)
	}
	return fmt.Sprintf("shard %d is led by node %s", e.Shard, e.Leader)
}

// translate says what Raft's answer means for a command: not done, or unknown.
func (l *life) translate(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return l.notLeader()
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err) // in the log, or on the way there
}

// notLeader never names this node: it is for who must ask another.
func (l *life) notLeader() error {
	_, leader := l.raft.LeaderWithID()
	e := &NotLeaderError{Shard: l.g.ID.Shard, Leader: nodeOf(leader)}
	if e.Leader == l.g.o.Node {
		e.Leader = ""
	}
	return e
}
