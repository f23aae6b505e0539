package meta

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrLast is a node that may not go: nobody else could hold the shards.
var ErrLast = errors.New("no other node hosts shards")

const ruleRest = 200 * time.Millisecond // between two tries to write a ruling

// Leave has the cluster agree that a node leaves for good: its replicas move to
// others, and when it has none left it is Removed. It returns as soon as that is
// agreed.
func (k *Keeper) Leave(ctx context.Context, node string) error {
	return k.rule(ctx, node, func(m *Map, n *Node) error {
		hosts := m.sorted(Node.fit)
		switch {
		case n.State == Removed:
			return fmt.Errorf("%w: node %s has left already", ErrInvalid, n.Name)
		case n.Hosts && m.used(node) && (len(hosts) == 0 || len(hosts) == 1 && hosts[0] == node):
			return ErrLast
		}
		n.State, n.Leaving = Draining, true
		return nil
	})
}

// Stay takes a leave back that is not over yet.
func (k *Keeper) Stay(ctx context.Context, node string) error {
	return k.rule(ctx, node, func(_ *Map, n *Node) error {
		if n.State == Removed {
			return fmt.Errorf("%w: node %s has left already; start it again to have it join", ErrInvalid, n.Name)
		}
		if n.State == Draining {
			n.State = Active
		}
		n.Leaving = false
		return nil
	})
}

// rule changes what is agreed about a node, again and again until it is done, is
// refused, or ctx ends.
func (k *Keeper) rule(ctx context.Context, node string, change func(*Map, *Node) error) error {
	for {
		m := k.Map()
		if m == nil {
			return fmt.Errorf("%w: there is no cluster yet", ErrInvalid)
		}
		n, known := m.Nodes[node]
		if !known {
			return fmt.Errorf("%w: node %s is none of the cluster", ErrInvalid, node)
		}
		next := n
		if err := change(m, &next); err != nil {
			return err
		}
		if next == n {
			return nil
		}
		_, err := k.Propose(ctx, Command{Op: OpNode, Key: node, Seen: n.Revision, Node: &next})
		if err == nil || errors.Is(err, ErrInvalid) {
			return err
		}
		k.Nudge() // what was stale here is asked for
		if k.rest(ruleRest, nil); ctx.Err() != nil || k.ctx.Err() != nil {
			return fmt.Errorf("rule on node %s: %w", n.Name, err)
		}
	}
}
