package meta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

// SetAside has the cluster agree that a node is set aside: another leads what it led,
// and gets its replicas where there is one for them. What has nobody else stays there.
func (k *Keeper) SetAside(ctx context.Context, node string) error {
	return k.rule(ctx, node, func(_ *Map, n *Node) error {
		if n.State == Active || n.State == Joining {
			n.State = Draining
		}
		return nil // one that leaves is set aside already, and one that is dead is not heard yet
	})
}

// Stay takes SetAside back, and a leave that is not over yet.
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

// Decide has the cluster agree on a change of a pool's record: an operator's. It
// returns when this node knows of it, too.
func (k *Keeper) Decide(ctx context.Context, pool string, change func(*Pool) error) error {
	return k.until(ctx, "pool "+pool, func(m *Map) (Command, error) {
		p, known := m.Pools[pool]
		if !known {
			return Command{}, fmt.Errorf("%w: nothing is agreed on about pool %s yet", ErrInvalid, pool)
		}
		next := p
		next.Backends = slices.Clone(p.Backends)
		next.Number = max(p.Number+1, uint64(time.Now().UnixMilli()))
		err := change(&next)
		slices.SortFunc(next.Backends, func(a, b Backend) int { return cmp.Compare(a.ID, b.ID) })
		if err == nil {
			err = next.check()
		}
		return Command{Op: OpPool, Key: pool, Seen: p.Revision, Pool: &next}, err
	})
}

// rule changes what is agreed about a node.
func (k *Keeper) rule(ctx context.Context, node string, change func(*Map, *Node) error) error {
	return k.until(ctx, "node "+node, func(m *Map) (Command, error) {
		n, known := m.Nodes[node]
		if !known {
			return Command{}, fmt.Errorf("%w: it is none of the cluster", ErrInvalid)
		}
		next := n
		if err := change(m, &next); err != nil || next == n {
			return Command{}, err
		}
		return Command{Op: OpNode, Key: node, Seen: n.Revision, Node: &next}, nil
	})
}

// until proposes what a ruling makes of the map, again and again until it is done
// and known here, is refused, or ctx ends. A ruling without an Op is done already.
func (k *Keeper) until(ctx context.Context, about string, ruling func(*Map) (Command, error)) error {
	for {
		m := k.Map()
		if m == nil {
			return fmt.Errorf("%w: there is no cluster yet", ErrInvalid)
		}
		c, err := ruling(m)
		if err != nil {
			return fmt.Errorf("rule on %s: %w", about, err)
		}
		if c.Op == "" {
			return nil
		}
		r, err := k.Propose(ctx, c)
		if err == nil {
			return k.known(ctx, r.Revision)
		}
		if errors.Is(err, ErrInvalid) {
			return err
		}
		k.Nudge() // what was stale here is asked for
		k.adopt()
		if k.rest(ruleRest, nil); ctx.Err() != nil || k.ctx.Err() != nil {
			return fmt.Errorf("rule on %s: %w", about, err)
		}
	}
}

// known returns when this node has a map of that revision.
func (k *Keeper) known(ctx context.Context, revision uint64) error {
	for k.adopt(); k.Map().Revision < revision; k.adopt() {
		if ctx.Err() != nil || k.ctx.Err() != nil {
			return fmt.Errorf("revision %d of the map is agreed on, and has not come here: %w", revision, context.Cause(ctx))
		}
		k.Nudge()
		k.rest(ruleRest/4, nil)
	}
	return nil
}
