package testcluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-lb/starling/node/api"
)

// AwaitAgreed returns where a session of PoolName lives, once that is agreed on and
// has got about: every node that was not killed tells the same, nothing is
// provisional or on its way, and each replica of the session's shard has applied it.
// From then on the session's turns go there from every node, whoever is cut off or
// dies. A new binding gets that far within half a second of its first turn as a
// rule; before, a node that is cut off from all who know of it guesses.
func (c *Cluster) AwaitAgreed(ctx context.Context, session string) (api.Session, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s, why := c.agreed(ctx, session)
		if why == nil {
			return s, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return api.Session{}, fmt.Errorf("await that all nodes agree on session %q: %w: last: %w", session, context.Cause(ctx), why)
		}
	}
}

func (c *Cluster) agreed(ctx context.Context, session string) (all api.Session, why error) {
	for _, n := range c.nodes {
		if n.plug.pulled() {
			continue
		}
		s, err := n.Session(ctx, PoolName, session)
		if err == nil {
			err = n.applied(ctx, s)
		}
		switch {
		case err != nil:
			return all, fmt.Errorf("%s: %w", n.Name, err)
		case all.Backend != "" && (s.Backend != all.Backend || s.Epoch != all.Epoch):
			return all, fmt.Errorf("%s says %s by epoch %d, another one %s by %d", n.Name, s.Backend, s.Epoch, all.Backend, all.Epoch)
		}
		all = s
	}
	return all, nil
}

// applied says why this node could not go by what stands if it were alone. One
// without a replica of the shard need not know anything.
func (n *Node) applied(ctx context.Context, s api.Session) error {
	switch {
	case s.Provisional:
		return errors.New("its choice is provisional")
	case s.Held:
		return errors.New("a change is on its way")
	case s.LastKnown != nil && *s.LastKnown != (api.LastKnown{Backend: s.Backend, Epoch: s.Epoch}):
		return fmt.Errorf("knows of %s by epoch %d, not yet of %s by %d", s.LastKnown.Backend, s.LastKnown.Epoch, s.Backend, s.Epoch)
	case s.LastKnown != nil:
		return nil
	}
	for _, shard := range n.Shards(ctx).Shards {
		for _, r := range shard.Replicas {
			if shard.ID == int(s.Shard) && r.Node == n.Name {
				return errors.New("its replica has not applied it yet")
			}
		}
	}
	return nil
}
