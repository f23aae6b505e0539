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
func Recover(dir, self string) (*Recovery, error) { return recovery(directory(dir), self, 0) }

// recovery is after the generation heard at least.
func recovery(f files, self string, heard uint32) (*Recovery, error) {
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
	fenced, err := loadFence(f)
	if err != nil {
		return nil, err
	}
	r.from = max(s.Incarnation, fenced, heard)
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

// Do has the node begin again when it starts, with the map that it has then, unless
// it hears that others have, or that shard 0 is led.
func (r *Recovery) Do() error {
	p := &pending{From: r.from, Generation: r.Generation()}
	if err := r.files.write(OrderFile, append(encode(p), '\n')); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	return nil
}

// OrderFile is a recovery that an operator has ordered, for the node's next start.
const OrderFile = "recovery.json"

// pending is its content. What it begins with is looked at when it is done: until then
// the node may hear of more.
type pending struct {
	From       uint32 `json:"from"`       // the latest generation that the node had heard of
	Generation uint32 `json:"generation"` // that begins; 0: nothing is pending
}

func loadPending(f files) (*pending, error) {
	b, err := f.read(OrderFile)
	if err != nil || b == nil {
		return &pending{}, err
	}
	p, err := decode[*pending]("recovery", b)
	if err == nil && p == nil {
		err = fmt.Errorf("recovery %w: it is empty", errCode)
	}
	if err != nil {
		return nil, fmt.Errorf("load the recovery that was ordered: %v/%s: %w; move that file away and recover again", f, OrderFile, err)
	}
	return p, nil
}

// Recovering tells whether an operator has ordered a recovery that is not done yet.
func (k *Keeper) Recovering() bool {
	p, err := loadPending(k.o.files)
	return err == nil && p.Generation > 0
}

// resurrect has meta begin again here, if an operator has ordered that and it is still
// wanted: what others have decided in a generation that this node did not know, or
// decide now, is not to be undone. It asks first, and runs before any replica is open.
func (k *Keeper) resurrect() error {
	p, err := loadPending(k.o.files)
	if err != nil || p.Generation == 0 {
		return err
	}
	k.listen()
	known := k.latest()
	if m := k.Map(); m != nil {
		known = max(known, m.Generation())
	}
	if known == p.Generation {
		return k.unorder(known) // it was done, and not noted
	}
	if known > p.From {
		k.o.Log.Error("the recovery of shard 0 that was ordered is not done: the cluster was recovered on another node, and this one follows it; if that one is lost, too, recover again", "generation", known)
		return k.unorder(known)
	}
	if k.reign >= p.From {
		k.o.Log.Error("the recovery of shard 0 that was ordered is not done: shard 0 has a leader, and this node follows it; if its nodes are lost again, recover again", "generation", k.reign)
		return k.unorder(known)
	}
	r, err := recovery(k.o.files, k.o.Self, p.From)
	if err != nil {
		k.o.Log.Error("the recovery of shard 0 that was ordered cannot be done, and is given up", "err", err)
		return k.unorder(known)
	}
	return k.beginAgain(r)
}

// beginAgain has meta be of this node's generation.
func (k *Keeper) beginAgain(r *Recovery) error {
	s, revision := r.after.Shards[0], r.after.Revision
	all := slices.DeleteFunc(k.Own(), func(o Own) bool { return o.Shard == 0 && o.Incarnation >= s.Incarnation })
	if err := k.note(append(all, Own{Incarnation: s.Incarnation, Life: s.Replicas[0].Life, Founded: true, Again: true, Map: revision})); err != nil {
		return err
	}
	if err := k.Take(r.after); err != nil { // last: a recovery that broke off is none
		return err
	}
	k.o.Log.Warn("shard 0 begins again on this node, as ordered", "generation", s.Incarnation, "revision", revision, "from", r.before.Revision)
	return k.o.files.write(OrderFile, append(encode(pending{}), '\n'))
}

// unorder takes an order back, with what one that broke off has noted: a replica of a
// generation that never began would keep the node out of meta.
func (k *Keeper) unorder(known uint32) error {
	all := slices.DeleteFunc(k.Own(), func(o Own) bool { return o.Shard == 0 && o.Incarnation > known })
	if err := k.note(all); err != nil {
		return err
	}
	return k.o.files.write(OrderFile, append(encode(pending{}), '\n'))
}
