package node

import (
	"context"
	"errors"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards"
)

const (
	sightTime = 5 * time.Second // for a shard's leader to say where a session lives
	moveTime  = 5 * time.Second // for a session to be idle, before the operator is told that it is not
)

// Session answers GET /v1/sessions/{pool}/{key}.
func (n *Node) Session(ctx context.Context, pool, key string) (api.Session, error) {
	r, err := n.sessionsOf(pool)
	if err != nil {
		return api.Session{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, sightTime)
	defer cancel()
	s, err := r.Session(ctx, pool, []byte(key))
	if err != nil {
		return api.Session{}, silent(err)
	}
	if s.Binding.Backend == "" && !s.Held {
		return api.Session{}, noSession(pool)
	}
	out := api.Session{Shard: s.Shard, Backend: s.Binding.Backend, Epoch: uint64(s.Binding.Epoch), Provisional: s.Provisional, Held: s.Held}
	if s.Known {
		at := time.Now().Add(-s.Idle)
		out.LastUse = &at
	}
	if s.Last.Epoch > 0 {
		out.LastKnown = &api.LastKnown{Backend: s.Last.Backend, Epoch: uint64(s.Last.Epoch)}
	}
	return out, nil
}

// MoveSession answers POST /v1/sessions/{pool}/{key}/move.
func (n *Node) MoveSession(ctx context.Context, pool, key, to string) error {
	r, err := n.sessionsOf(pool)
	if err != nil {
		return err
	}
	if !n.takes(pool, to) {
		return refuse(admin.Conflict, "backend %q of pool %q takes no sessions now; GET /v1/backends lists what is active", to, pool)
	}
	ctx, cancel := context.WithTimeout(ctx, moveTime)
	defer cancel()
	_, err = r.Move(ctx, pool, []byte(key), to)
	switch {
	case errors.Is(err, shards.ErrUnbound):
		return noSession(pool)
	case errors.Is(err, shards.ErrPending):
		return refuse(admin.Conflict, "%v, or not at all if that takes longer than backend.drain_timeout", err)
	case err != nil:
		return silent(err)
	}
	return nil
}

// sessionsOf is who knows of a pool's sessions.
func (n *Node) sessionsOf(pool string) (*shards.Router, error) {
	c, ok := n.cfg().Pools[pool]
	switch r := n.router(); {
	case !ok:
		return nil, refuse(admin.NotFound, "there is no pool %q; GET /v1/pools lists what there is", pool)
	case c.Sticky == nil:
		return nil, refuse(admin.NotFound, "pool %q has no sessions; pools.%s.sticky says where requests name theirs", pool, pool)
	case r == nil:
		return nil, refuse(admin.NotReady, "this node has no cluster yet, and knows no sessions; GET /readyz tells what it waits for")
	default:
		return r, nil
	}
}

// takes says whether a session may be moved to a backend.
func (n *Node) takes(pool, id string) bool {
	for _, p := range n.proxy.Pools() {
		if b := p.Named(id); p.Name == pool && b != nil {
			return b.Standing().State == backend.Active
		}
	}
	return false
}

func noSession(pool string) error {
	return refuse(admin.NotFound, "pool %q has no session of this key: it never had a turn, or was let go", pool)
}

func silent(err error) error {
	return refuse(admin.NotReady, "nobody can tell now: %v; GET /v1/shards shows which shard has no leader", err)
}
