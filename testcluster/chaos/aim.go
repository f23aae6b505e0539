package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-lb/starling/node/api"
)

// At whom, and when, a step is aimed.

const leaderTime = 20 * time.Second // for there to be one

// leader is the node that leads most shards of sessions, or meta, as soon as there is
// one.
func (r *run) leader(ctx context.Context, meta bool) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTime)
	defer cancel()
	for {
		if name, err = r.leads(ctx, meta); err == nil || !pause(ctx, lookEvery) {
			return name, err
		}
	}
}

func (r *run) leads(ctx context.Context, meta bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, glanceTime) // another may know where this one stands still
	defer cancel()
	at, err := r.rig.ask(r.fork())
	if err != nil {
		return "", err
	}
	var list api.ShardList
	if err := r.get(ctx, at, &list, "shards"); err != nil {
		return "", err
	}
	led, most := map[string]int{}, ""
	for _, s := range list.Shards {
		if s.Leader == "" || (s.ID == 0) != meta {
			continue
		}
		if led[s.Leader]++; most == "" || led[s.Leader] > led[most] {
			most = s.Leader
		}
	}
	if most == "" {
		return "", errors.New("nobody leads")
	}
	return most, nil
}

// snapshots is a node that is writing a snapshot.
func (r *run) snapshots(context.Context) (*member, bool) {
	for _, m := range r.rig.up() {
		at := filepath.Join(r.rig.dataDir(m), "snapshots")
		deep, _ := filepath.Glob(filepath.Join(at, "*", "*", "*.tmp")) // the patterns are good
		flat, _ := filepath.Glob(filepath.Join(at, "*", "*.tmp"))
		if len(deep)+len(flat) > 0 {
			return m, true
		}
	}
	return nil, false
}

// steps tells whether a shard's membership is about to change.
func (r *run) steps(ctx context.Context) (*member, bool) {
	for _, m := range r.rig.up() {
		var list api.ShardList
		if r.get(ctx, m, &list, "shards") != nil {
			continue
		}
		for _, s := range list.Shards {
			if s.Step != nil {
				return nil, true
			}
		}
		return nil, false
	}
	return nil, false
}

// founds tells whether a cluster is being founded: some node has a map.
func (r *run) founds(context.Context) (*member, bool) {
	for _, m := range r.rig.up() {
		if _, err := os.Stat(filepath.Join(r.rig.dataDir(m), "map.json")); err == nil {
			return nil, true
		}
	}
	return nil, false
}
