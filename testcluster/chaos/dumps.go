package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// What nodes say of themselves at the beginning and at the end.

const lastTries = 10

// last are the dumps of the end. A busy machine has elections without being hurt, and
// nodes are asked one after the other: where they speak of different reigns, or one
// does not answer, they are asked again.
func (r *run) last(ctx context.Context) (all []history.Dump) {
	var err error
	for range lastTries {
		r.await(ctx, healTime, r.whole)
		if all, err = r.dumps(ctx, true); err == nil && alike(all) {
			return all
		}
	}
	if err != nil {
		r.history.Trouble = append(r.history.Trouble, err.Error())
	}
	return all
}

// alike tells whether dumps speak of the same leaders.
func alike(all []history.Dump) bool {
	for _, d := range all {
		if len(d.Shards.Shards) != len(all[0].Shards.Shards) {
			return false
		}
		for i, s := range d.Shards.Shards {
			if s.Leader == "" || s.Leader != all[0].Shards.Shards[i].Leader {
				return false
			}
		}
	}
	return true
}

// dumps are all that the nodes say of themselves; of sessions, too, where asked.
func (r *run) dumps(ctx context.Context, sessions bool) (all []history.Dump, err error) {
	for i, m := range r.rig.live() {
		d := history.Dump{Node: m.name, At: time.Now()}
		failed := errors.Join(
			r.get(ctx, m, &d.Status, "status"), r.get(ctx, m, &d.Members, "members"), r.get(ctx, m, &d.Backends, "backends"),
			r.get(ctx, m, &d.Shards, "shards"), r.get(ctx, m, &d.Streams, "streams"))
		if failed == nil {
			d.Metrics, failed = r.metrics(ctx, m)
		}
		if failed == nil && sessions && i == 0 { // the leaders answer, whomever one asks
			d.Sessions, failed = r.homes(ctx, m)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("dump of %s: %w", m.name, failed))
		}
		all = append(all, d)
	}
	return all, err
}

// homes asks where all sessions live that turns were of.
func (r *run) homes(ctx context.Context, m *member) (map[string]api.Session, error) {
	all := map[string]api.Session{}
	for _, t := range r.traffic.Turns() {
		if _, known := all[t.Session]; known || t.Session == "" || !t.Whole {
			continue
		}
		var s api.Session
		switch err := r.get(ctx, m, &s, "sessions", testcluster.PoolName, t.Session); {
		case err == nil:
			all[t.Session] = s
		case !isRefused(err, http.StatusNotFound):
			return nil, err
		}
	}
	return all, nil
}
