package meta

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A data directory that was copied and run again, and then put back as it was
// copied, has forgotten votes and entries that others count on. Each run of a node
// has a number, which its directory keeps, and the map the last one: a directory
// that never made the run which the map has is an older copy. Its replicas get other
// lives, as if their logs were lost. That a copy was made of a node that ran
// cannot be told.

// Kept is what there is of a replica on a disk.
type Kept struct {
	Incarnation uint32 `json:"incarnation"`
	Life        uint64 `json:"life"`
	Term        uint64 `json:"term"` // of its last entry
	Last        uint64 `json:"last"` // index of that
}

const (
	lookTime  = time.Second // for another node to say what it knows
	mostRuns  = 256         // that nobody has acknowledged; more, and the node begins anew
	priorRuns = 32          // that are kept beside them: a recovered map may have an earlier one
)

// runsFile keeps the numbers of the runs of the node that the map may know of last:
// the one that the map of its directory has, those since, and some before.
const runsFile = "runs.json"

type runs struct {
	Runs []uint64 `json:"runs"`
}

// countRun adds this run to those that are kept.
func countRun(f files, m *Map, self string, run uint64) ([]uint64, error) {
	var known runs
	b, err := f.read(runsFile)
	if err == nil && b != nil {
		known, err = decode[runs]("numbers of runs", b)
	}
	if err != nil {
		return nil, fmt.Errorf("count the node's runs: %v/%s: %w", f, runsFile, err)
	}
	all := known.Runs
	if m != nil {
		all = append([]uint64{m.Nodes[self].Run}, all...)
	}
	all = append(all, run)
	slices.Sort(all)
	all = slices.Compact(all)
	if m != nil {
		last, _ := slices.BinarySearch(all, m.Nodes[self].Run)
		all = all[max(0, last-priorRuns):]
	}
	all = all[max(0, len(all)-mostRuns):]
	if err := f.write(runsFile, append(encode(runs{all}), '\n')); err != nil {
		return nil, fmt.Errorf("count the node's runs: %w", err)
	}
	return all, nil
}

// LookBack asks the others that run whether this node's directory is as it was
// left, before a replica of it may vote, and whether meta is led. Who is alone cannot
// know, and goes on; so does who gets no answers in two seconds, or in ten where meta
// is to begin again.
func (k *Keeper) LookBack(ctx context.Context) {
	most, q := 2*lookTime, question{}
	if k.Recovering() {
		most, q.Look = 10*lookTime, new(int) // who leads shard 0 says so
	}
	ctx, enough := context.WithTimeout(ctx, most)
	defer enough()
	own := k.Map()
	for id, p := range k.o.Neighbours.Peers() {
		if id == k.o.Self || !p.Alive || own == nil || ctx.Err() != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, lookTime)
		r, _ := k.ask(ctx, id, q) // what cannot be kept is told at the next one
		cancel()
		k.reign = max(k.reign, r.Leads)
	}
}

// recognise doubts all replicas of this node, those that it has and those that a map
// gives it, once it meets a map that knows of a run which its directory never made.
func (k *Keeper) recognise(m *Map) {
	k.mu.Lock()
	defer k.mu.Unlock()
	run := m.Nodes[k.o.Self].Run
	if k.amnesia || run == 0 || slices.Contains(k.runs, run) {
		return
	}
	k.amnesia = true
	for _, o := range k.own.Replicas {
		k.doubted[o.id()] = true
	}
	for i, s := range m.Shards {
		if r, wanted := s.Wants(k.o.Self); wanted {
			k.doubted[Own{Shard: i, Incarnation: s.Incarnation, Life: r.Life}] = true
		}
	}
	k.o.Log.Error("the data directory is an older copy: this node has run on another one since. Its replicas are made anew from the others'; start a node on an empty directory instead", "run", run)
}

// doubts tells whether a replica of this node may have forgotten what it promised.
func (k *Keeper) doubts(r Own) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.doubted[r.id()]
}

// distrust keeps a doubted replica closed, and asks for another life of it.
func (k *Keeper) distrust(ctx context.Context, r Own) {
	if k.isOpen(r) {
		k.o.Host.Close(ctx, r)
		k.shut(r)
	}
	if err := k.renew(ctx, r); err != nil {
		k.o.Log.Warn("a replica that may have forgotten what it promised stays closed, until there is another in its place", "shard", r.Shard, "err", err)
	}
}

// forgot tells whether a node's directory has never made the run of it that the map
// has.
func (n Node) forgot(p Peer) bool {
	return n.Run > 0 && p.Heard && p.Run > 0 && !slices.Contains(p.Runs, n.Run)
}

// disown gives all replicas of a node other lives, and says whether that is done. A
// shard that has its only vote there begins again with what is there.
func (p *plan) disown(id string) bool {
	for i, s := range p.m.Shards {
		r, wanted := s.Wants(id)
		if !wanted || s.Phase != Ready {
			continue
		}
		next := s.renewed(id)
		next.Step.Reason = fmt.Sprintf("the data directory of node %s is an older copy", p.name(id))
		if i > 0 && r.Voter && s.Voters() == 1 {
			next = s.again(id, next.Step.Reason)
		}
		p.setShard(i, next)
		if p.m.Shards[i].Revision == s.Revision {
			return false
		}
	}
	return true
}

// again is the shard's next incarnation, which a node makes of what it has.
func (s Shard) again(founder, reason string) Shard {
	return Shard{
		Incarnation: s.Incarnation + 1, Phase: Creating, Founder: founder, Replicas: []Replica{{Node: founder, Voter: true}},
		Step: &Step{Kind: Reset, Node: founder, Reason: reason},
	}
}
