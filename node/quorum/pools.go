package quorum

import (
	"context"
	"time"

	"github.com/starling-lb/starling/shards/meta"
)

// Decide has the cluster agree on a change of a pool's record, and returns when
// this node knows of it, too.
func (q *Quorum) Decide(ctx context.Context, pool string, change func(*meta.Pool) error) error {
	return q.keeper.Decide(ctx, pool, change)
}

// Abreast is for how long this node has heard what is agreed on, without a break of
// more than a minute; 0: it does not now.
func (q *Quorum) Abreast() time.Duration { return q.keeper.Abreast() }

// newsLoop tells of newer maps: of the last one, not of each.
func (q *Quorum) newsLoop(ctx context.Context) {
	for {
		select {
		case <-q.news:
			q.o.Changed(q.Map())
		case <-ctx.Done():
			return
		}
	}
}

// spread has newsLoop tell of the map that is known now.
func (q *Quorum) spread() {
	select {
	case q.news <- struct{}{}:
	default: // it will
	}
}
