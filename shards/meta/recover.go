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
	from   uint32 // the latest generation that the node has heard of
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
	s := next.Shards[0]
	heard, err := loadFence(f)
	if err != nil {
		return nil, err
	}
	r.from = max(s.Incarnation, heard)
	generation, err := following(r.from, self)
	if err != nil {
		return nil, err
	}
	next.Revision = max(next.Revision+leap, uint64(generation)*leap)
	next.Shards[0] = Shard{
		Incarnation: generation, Phase: Ready, Founder: self, Revision: next.Revision,
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

// Generation is that which begins.
func (r *Recovery) Generation() uint32 { return r.after.Generation() }

// Do has the node begin again when it starts, unless it hears then that others have.
func (r *Recovery) Do() error {
	p := &pending{From: r.from, Map: r.after}
	if err := r.files.write(pendingFile, append(encode(p), '\n')); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	return nil
}

// pendingFile is a recovery that an operator has ordered, for the node's next start.
const pendingFile = "recovery.json"

// pending is its content.
type pending struct {
	From uint32 `json:"from"` // the latest generation that the node had heard of
	Map  *Map   `json:"map"`  // that it begins with; nil: nothing is pending
}

func loadPending(f files) (*pending, error) {
	b, err := f.read(pendingFile)
	if err != nil || b == nil {
		return &pending{}, err
	}
	p, err := decode[*pending]("recovery", b)
	if err == nil && p == nil {
		err = fmt.Errorf("recovery %w: it is empty", errCode)
	}
	if err == nil && p.Map != nil {
		err = p.Map.check()
	}
	if err != nil {
		return nil, fmt.Errorf("load the recovery that was ordered: %v/%s: %w; move that file away and recover again", f, pendingFile, err)
	}
	return p, nil
}

// Recovering tells whether an operator has ordered a recovery that is not done yet.
func (k *Keeper) Recovering() bool {
	p, err := loadPending(k.o.files)
	return err == nil && p.Map != nil
}

// resurrect has meta begin again here, if an operator has ordered that and nobody was
// faster: what others have decided in a generation that this node did not know is
// not to be undone. It asks first, and runs before any replica is open.
func (k *Keeper) resurrect() error {
	p, err := loadPending(k.o.files)
	if err != nil || p.Map == nil {
		return err
	}
	if known := max(k.Map().Generation(), k.latest()); known == p.Map.Generation() {
		return k.o.files.write(pendingFile, append(encode(pending{}), '\n')) // it was done, and not noted
	} else if known > p.From {
		k.o.Log.Error("the recovery of shard 0 that was ordered is not done: the cluster was recovered on another node, and this one follows it; if that one is lost, too, recover again", "generation", known)
		return k.o.files.write(pendingFile, append(encode(pending{}), '\n'))
	}
	s := p.Map.Shards[0]
	all := slices.DeleteFunc(k.Own(), func(o Own) bool { return o.Shard == 0 && o.Incarnation >= s.Incarnation })
	if err := k.note(append(all, Own{Incarnation: s.Incarnation, Life: s.Replicas[0].Life, Founded: true, Again: true, Map: p.Map.Revision})); err != nil {
		return err
	}
	if err := k.Take(p.Map); err != nil { // last: a recovery that broke off is none
		return err
	}
	k.o.Log.Warn("shard 0 begins again on this node, as ordered", "generation", s.Incarnation, "revision", p.Map.Revision)
	return k.o.files.write(pendingFile, append(encode(pending{}), '\n'))
}
