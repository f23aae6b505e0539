package shards

import (
	"context"
	"errors"
	"fmt"
)

// Log is a shard's replicated log, as this node has it.
type Log interface {
	// Propose has a command applied on every replica, and returns its result; on
	// the leader alone.
	Propose(ctx context.Context, command []byte) (any, error)
	// Proven returns once this node is proven to have been the leader at a moment
	// after the call, with all applied that was committed before.
	Proven(ctx context.Context) (term uint64, err error)
	// Leader is a node's id, this one's too; "": none is known.
	Leader() string
}

// Owner answers for a shard, on its leader.
type Owner struct {
	log     Log
	machine *Machine
}

// NewOwner joins a replica's log and its machine.
func NewOwner(log Log, machine *Machine) *Owner { return &Owner{log: log, machine: machine} }

// Bind returns the session's binding: what stands, or else the proposal, which
// then stands. After an error it may yet be bound.
func (o *Owner) Bind(ctx context.Context, session Key, proposal string) (Binding, error) {
	b, ok, err := o.Read(ctx, session)
	if err != nil || ok {
		return b, err
	}
	r, err := o.log.Propose(ctx, Command{Op: OpBind, Session: session, Backend: proposal}.encode())
	if err != nil {
		return Binding{}, fmt.Errorf("bind: %w", err)
	}
	return r.(Result).Binding, nil // a conflict's is what stands
}

// Read returns the session's binding, if it has one. The proof comes first and
// the look second: what another leader committed before the question is then
// applied here. A replica that started anew in between proves nothing: its table
// may have been empty at the look.
func (o *Owner) Read(ctx context.Context, session Key) (Binding, bool, error) {
	life := o.machine.life()
	if _, err := o.log.Proven(ctx); err != nil {
		return Binding{}, false, fmt.Errorf("read: %w", err)
	}
	b, ok, same := o.machine.look(session, life)
	if !same {
		return Binding{}, false, errRenewed
	}
	return b, ok, nil
}

var errRenewed = errors.New("read: the replica started anew meanwhile")

// answer is Bind and Read as the wire has them.
func (o *Owner) answer(ctx context.Context, own string, q question) answer {
	var b Binding
	var ok bool
	var err error
	switch q.ask {
	case askBind:
		b, err = o.Bind(ctx, q.session, q.backend)
		ok = err == nil
	case askRead:
		b, ok, err = o.Read(ctx, q.session)
	}
	switch {
	case err != nil:
		leader := o.log.Leader()
		if leader == own || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return answer{verdict: unknown}
		}
		return answer{verdict: elsewhere, leader: leader}
	case ok:
		return answer{verdict: bound, binding: b}
	}
	return answer{verdict: unbound}
}
