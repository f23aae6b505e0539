package meta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// ErrLed is a shard that is not lost.
var ErrLed = errors.New("the shard has a leader, or will have one: a majority of its replicas answers")

// Reset has a shard that lost its majority made anew, from what the node has that
// has most of it, and returns that node. Its earlier replicas are fenced from then
// on, should they come back. What only the lost ones knew is lost. With empty it
// begins with nothing: that is for a shard of which nothing is left.
func (k *Keeper) Reset(ctx context.Context, shard int, empty bool) (founder string, err error) {
	err = k.until(ctx, fmt.Sprint("shard ", shard), func(m *Map) (Command, error) {
		if shard < 1 || shard >= len(m.Shards) {
			return Command{}, fmt.Errorf("%w: there are shards 1 to %d; for shard 0 there is starling recover", ErrInvalid, m.Count())
		}
		s := m.Shards[shard]
		peers := k.o.Neighbours.Peers()
		if s.Phase != Ready && peers[s.Founder].Alive {
			return Command{}, fmt.Errorf("%w: node %s makes it anew already", ErrInvalid, m.name(s.Founder))
		}
		kept := k.kept(ctx, shard, peers)
		if founder, err = survivor(m, shard, kept); err != nil {
			return Command{}, err
		}
		if founder, err = m.begins(shard, founder, empty, kept); err != nil {
			return Command{}, err
		}
		next := s.again(founder, "an operator gave up what was lost of it")
		return Command{Op: OpShard, Number: shard, Seen: s.Revision, Shard: &next}, nil
	})
	return founder, err
}

// kept is what each node that runs has of a shard; nothing where it does not answer.
func (k *Keeper) kept(ctx context.Context, shard int, peers map[string]Peer) map[string][]Kept {
	all := map[string][]Kept{k.o.Self: k.o.Host.Kept(shard)}
	for id, p := range peers {
		if id == k.o.Self || !p.Alive {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, lookTime)
		a, err := k.ask(ctx, id, question{Revision: k.Map().Revision, Look: &shard})
		cancel()
		if err == nil {
			all[id] = a.Kept
		}
	}
	return all
}

// survivor is the node that has most of a shard, as Raft compares logs: of the last
// incarnation, by the term of its last entry, then by its index; "": none has any.
func survivor(m *Map, shard int, kept map[string][]Kept) (node string, err error) {
	s, best, votes := m.Shards[shard], Kept{}, 0
	for _, id := range slices.Sorted(maps.Keys(kept)) {
		r, wanted := s.Wants(id)
		for _, have := range kept[id] {
			if have.Last == 0 {
				continue // it knows nothing
			}
			if wanted && r.Voter && have.Incarnation == s.Incarnation && have.Life == r.Life {
				votes++
			}
			if have.compare(best) > 0 {
				best, node = have, id
			}
		}
	}
	if 2*votes > s.Voters() {
		return "", fmt.Errorf("%w: %w", ErrInvalid, ErrLed)
	}
	return node, nil
}

func (a Kept) compare(b Kept) int {
	return cmp.Or(cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.Term, b.Term), cmp.Compare(a.Last, b.Last))
}

// begins checks that an operator who wants an empty shard loses nothing that there
// is, and one who does not gets none; an empty one begins on any node that answers.
func (m *Map) begins(shard int, survivor string, empty bool, answers map[string][]Kept) (founder string, err error) {
	switch {
	case survivor != "" && empty:
		return "", fmt.Errorf("%w: node %s has something left of it; reset it without --empty", ErrInvalid, m.name(survivor))
	case survivor == "" && !empty:
		return "", fmt.Errorf("%w: no node that runs has anything left of it; start one that has, with the disk it had. If all of them are lost for good, --empty makes it anew with nothing: of its sessions only those are kept that the running nodes remember", ErrInvalid)
	case survivor != "":
		return survivor, nil
	}
	founder = m.best(shard, nil, m.loads(), func(id string) bool { _, answered := answers[id]; return answered })
	if founder == "" {
		return "", fmt.Errorf("%w: no node that answers hosts shards", ErrInvalid)
	}
	return founder, nil
}
