package chaos

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// What nodes say of shards while all runs.

const reignEvery = 500 * time.Millisecond

// reigns is what was heard so far.
type reigns struct {
	r      *run
	seen   map[history.Leader]bool
	states map[history.State]bool // without a time
}

// reignLoop notes who says that it leads what, with which voters, and what each
// replica comes to. Nodes are asked one after the other, so that what one leader says
// of its voters is heard in the order in which it was so.
func (r *run) reignLoop(ctx context.Context) {
	all := reigns{r, map[history.Leader]bool{}, map[history.State]bool{}}
	for pause(ctx, reignEvery) {
		for _, m := range r.rig.up() {
			var list api.ShardList
			asked := time.Now()
			if r.get(ctx, m, &list, "shards") != nil {
				continue
			}
			live := len(r.rig.live())
			r.mu.Lock()
			for _, s := range list.Shards {
				all.state(m.name, s)
				if ownWord(s) {
					all.leader(s)
					all.voting(s, asked, live)
				}
			}
			r.mu.Unlock()
		}
	}
}

// leader, state and voting are called with the run's lock.
func (a *reigns) leader(s api.Shard) {
	l := history.Leader{Shard: s.ID, Incarnation: s.Incarnation, Term: s.Term, Node: s.Leader}
	if !a.seen[l] {
		a.seen[l] = true
		a.r.history.Leaders = append(a.r.history.Leaders, l)
	}
}

func (a *reigns) state(node string, s api.Shard) {
	for _, d := range s.Here {
		one := history.State{Node: node, Shard: s.ID, Incarnation: s.Incarnation, Applied: d.Applied, Digest: d.Digest}
		if !a.states[one] {
			a.states[one] = true
			one.At = time.Now()
			a.r.history.States = append(a.r.history.States, one)
		}
	}
}

// voting notes who has a vote. That it is still so is known for the moment in which
// it was asked.
func (a *reigns) voting(s api.Shard, asked time.Time, live int) {
	v := history.Voting{From: time.Now(), To: asked, Shard: s.ID, Incarnation: s.Incarnation, Term: s.Term, Leader: s.Leader, Live: live}
	for _, rep := range s.Replicas {
		if rep.Role == api.LeaderRole || rep.Role == api.VoterRole {
			v.Voters = append(v.Voters, rep.Node)
		}
	}
	slices.Sort(v.Voters)
	all := a.r.history.Votings
	for i := len(all) - 1; i >= 0; i-- {
		if was := &all[i]; was.Shard == v.Shard && was.Incarnation == v.Incarnation && was.Leader == v.Leader {
			if was.Term == v.Term && was.Live == v.Live && slices.Equal(was.Voters, v.Voters) {
				was.To = asked
				return
			}
			break
		}
	}
	a.r.history.Votings = append(all, v)
}

// ownWord tells whether it is the leader that says so, which alone knows how far its
// own log is. Others may have heard of a term, and of its leader not yet.
func ownWord(s api.Shard) bool {
	return slices.ContainsFunc(s.Replicas, func(r api.Replica) bool { return r.Role == api.LeaderRole && r.Match > 0 })
}

// size is what there is in a directory. Files that go meanwhile count for nothing.
func size(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}
