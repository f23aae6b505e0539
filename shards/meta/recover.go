package meta

import (
	"fmt"
	"slices"
)

// leap is how many revisions a recovery passes over: the ones before it that this
// node has not heard of.
const leap = 1 << 20

// Recovery is what a node can bring meta back from, alone.
type Recovery struct {
	files  files
	before *Map
	own    owned
	after  *Map
}

// Recover looks at the directory of a node that does not run. Nothing is changed
// before Do.
func Recover(dir, self string) (*Recovery, error) { return recovery(directory(dir), self) }

func recovery(f files, self string) (*Recovery, error) {
	r := &Recovery{files: f}
	var err error
	if r.before, err = loadMap(f); err != nil {
		return nil, err
	}
	if r.before == nil {
		return nil, fmt.Errorf("recover: %v has no %s: the node was of no cluster", f, FileName)
	}
	if r.own, err = loadOwn(f); err != nil {
		return nil, err
	}
	if n, known := r.before.Nodes[self]; !known || !n.Hosts {
		return nil, fmt.Errorf("recover: node %s hosts no shards; recover on one that does", self)
	}
	next := r.before.clone()
	next.Revision += leap
	s := next.Shards[0]
	heard, err := loadFence(f)
	if err != nil {
		return nil, err
	}
	s.Incarnation = max(s.Incarnation, heard)
	next.Shards[0] = Shard{
		Incarnation: s.Incarnation + 1, Phase: Ready, Founder: self, Revision: next.Revision,
		Replicas: []Replica{{Node: self, Life: next.Revision, Voter: true}},
	}
	for _, lost := range s.Replicas {
		if n := next.Nodes[lost.Node]; lost.Node != self && n.State != Removed {
			n.State, n.Revision = Dead, next.Revision // who is not, is heard and counts again
			next.Nodes[lost.Node] = n
		}
	}
	for i, s := range next.Shards[1:] {
		if s.Phase == Ready {
			next.Shards[i+1] = s.regained(self, next.Revision)
		}
	}
	r.after = next
	return r, nil
}

// regained is a shard of which others may have decided since this node heard of it:
// until its group says how it is, nobody loses the replica that it has.
func (s Shard) regained(self string, revision uint64) Shard {
	step := Step{Kind: Regain, Node: self, Reason: "shard 0 was recovered there, and the group has not said yet how it is"}
	if s.Step != nil {
		step.Leaving = s.Step.Leaving
	}
	s.Step, s.Revision = &step, revision
	return s
}

// Held tells whether the node has a replica of shard 0. One that has none may have
// heard of decisions late, or not at all.
func (r *Recovery) Held() bool {
	return slices.ContainsFunc(r.own.Replicas, func(o Own) bool { return o.Shard == 0 })
}

// Map is the map that the node knows, and begins again with.
func (r *Recovery) Map() *Map { return r.before }

// Do has the node make meta's group anew when it starts. The map comes last: a
// recovery that broke off is none.
func (r *Recovery) Do() error {
	s := r.after.Shards[0]
	all := slices.DeleteFunc(slices.Clone(r.own.Replicas), func(o Own) bool { return o.Shard == 0 && o.Incarnation >= s.Incarnation })
	all = append(all, Own{Incarnation: s.Incarnation, Life: s.Replicas[0].Life, Founded: true, Again: true, Map: r.after.Revision})
	if err := saveOwn(r.files, owned{all}); err != nil {
		return err
	}
	return r.after.save(r.files)
}
