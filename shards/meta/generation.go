package meta

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
)

// Who recovers a cluster that lost meta's majority begins another generation of
// meta. If the lost nodes come back they know nothing of it, and have a majority
// still: whoever hears of a later generation, from gossip or in a call, decides
// nothing more from then on, over restarts too, and asks for its map.

// Generation is which of meta's beginnings the map is of. The founding is 1. A recovery
// is of the next round, its upper bits, and of its node, the lower ones: two of
// one round are two generations, of which one is the later for all that hear of both.
func (m *Map) Generation() uint32 { return m.Shards[0].Incarnation }

const nodeBits = 16 // of a generation

// following is the generation that a node begins after the latest it has heard of.
func following(latest uint32, node string) (uint32, error) {
	round := uint64(latest>>nodeBits) + 1
	if round > math.MaxUint32>>nodeBits {
		return 0, fmt.Errorf("recover: the cluster was recovered %d times, and cannot be once more", round-1)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(node)) // never fails
	return uint32(round)<<nodeBits | (h.Sum32()>>nodeBits^h.Sum32())&(1<<nodeBits-1), nil
}

// after tells whether the map is newer than another of the same cluster. What an
// earlier generation decided meanwhile is nothing, however much it is.
func (m *Map) after(o *Map) bool {
	return cmp.Or(cmp.Compare(m.Generation(), o.Generation()), cmp.Compare(m.Revision, o.Revision)) > 0
}

// fenceFile keeps the latest generation that this node has heard of.
const fenceFile = "generation.json"

type fence struct {
	Generation uint32 `json:"generation"`
}

func loadFence(f files) (uint32, error) {
	b, err := f.read(fenceFile)
	if err != nil || b == nil {
		return 0, err
	}
	v, err := decode[fence]("generation", b)
	if err != nil {
		return 0, fmt.Errorf("load the latest generation of meta: %v/%s: %w", f, fenceFile, err)
	}
	return v.Generation, nil
}

// heed takes note of the generation that another node knows.
func (k *Keeper) heed(generation uint32, of string) {
	if m := k.Map(); m == nil || generation <= m.Generation() || generation <= k.latest() {
		return
	}
	k.heeding.Lock()
	defer k.heeding.Unlock()
	if generation <= k.latest() {
		return
	}
	k.mu.Lock()
	k.generation = generation // whether it can be written or not
	k.mu.Unlock()
	err := k.o.files.write(fenceFile, append(encode(fence{generation}), '\n'))
	k.o.Log.Warn("the cluster was recovered without this node: it decides nothing more, and takes the map of those that did", "generation", generation, "peer", of, "err", err)
	k.Nudge()
}

// givesWay says aloud that what was decided here is void.
func (k *Keeper) givesWay(was, now *Map) {
	switch {
	case was == nil || was.Generation() >= now.Generation() || now.Shards[0].Founder == k.o.Self:
	case was.Generation()>>nodeBits == now.Generation()>>nodeBits && was.Generation()>>nodeBits > 0: // older programs counted from 1
		k.o.Log.Error("shard 0 was recovered on two nodes, and this one gives way: what was decided on its side since then is lost; look at starling members and starling backends, and decide it again",
			"generation", was.Generation(), "revision", was.Revision, "recovered", was.name(was.Shards[0].Founder), "later", now.Generation(), "stands", now.name(now.Shards[0].Founder))
	default:
		k.o.Log.Warn("the cluster was recovered, and this node goes on with it: what was decided since the revision that it was recovered from is lost", "generation", now.Generation(), "revision", was.Revision, "recovered", now.name(now.Shards[0].Founder))
	}
}

// latest is the latest generation that this node has heard of.
func (k *Keeper) latest() uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.generation
}

// fenced tells whether there is a later generation than that of this node's map.
func (k *Keeper) fenced() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current != nil && k.current.Generation() < k.generation
}

// outlives tells whether a replica of meta is of no earlier generation than this
// node's map.
func (k *Keeper) outlives(st Status) bool {
	m := k.Map()
	return m == nil || m.Generation() <= st.Incarnation
}

// strange tells whether a replica of this node is of another group than that of the
// leader who asks for it, though of one shard and incarnation: two generations
// have made it anew, each on its own. With what it promised there it must not be
// a member here, and gets another life; not while its own group is led and of a later
// term, as of a leader that does not know yet that it is none any more.
func (k *Keeper) strange(r Own, leader string, term uint64) bool {
	st, open := k.o.Groups.Status(r.Shard)
	if !open || st.Incarnation != r.Incarnation || len(st.Members) == 0 || slices.ContainsFunc(st.Members, func(m MemberStatus) bool { return m.Node == leader }) {
		return false
	}
	if st.Leader == "" || term >= st.Term {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.doubted[r.id()] = true
	}
	return true
}

// listen heeds what gossip tells.
func (k *Keeper) listen() {
	for id, p := range k.o.Neighbours.Peers() {
		if p.Alive {
			k.heed(p.Generation, id)
		}
	}
}

// succeed asks for the map of the later generation: each time another of those that
// have it, or of all, where gossip names none.
func (k *Keeper) succeed(ctx context.Context, m *Map) error {
	k.mu.Lock()
	k.turn++
	turn := k.turn
	k.mu.Unlock()
	var have, others []string
	for id, p := range k.o.Neighbours.Peers() {
		switch {
		case id == k.o.Self || !p.Alive:
		case p.Generation > m.Generation():
			have = append(have, id)
		default:
			others = append(others, id)
		}
	}
	if len(have) == 0 {
		have = others
	}
	if len(have) == 0 {
		return nil
	}
	slices.Sort(have)
	_, err := k.ask(ctx, have[turn%len(have)], question{})
	return err
}
