package meta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrLed is a shard that is not lost.
var ErrLed = errors.New("the shard has a leader, or will have one: a majority of its replicas answers")

// ErrSilent is a node that is there and does not say what it has of a shard: it may be
// just about to be seen dead.
var ErrSilent = errors.New("it does not say what it has")

// keptTime is how long all others together have to say what they have of a shard.
const keptTime = 3 * time.Second

// Reset has a shard that lost its majority made anew, from what the node has that
// has most of it, and returns that node. Its earlier replicas are fenced from then
// on, should they come back. What only the lost ones knew is lost. With empty it
// begins with nothing: that is for a shard of which nothing is left.
func (k *Keeper) Reset(ctx context.Context, shard int, empty bool) (founder string, err error) {
	var asked Shard // for what was proposed last
	err = k.until(ctx, fmt.Sprint("shard ", shard), func(m *Map) (Command, error) {
		if shard < 1 || shard >= len(m.Shards) {
			return Command{}, fmt.Errorf("%w: there are shards 1 to %d; for shard 0 there is starling recover", ErrInvalid, m.Count())
		}
		s := m.Shards[shard]
		if asked.Incarnation > 0 && s.Incarnation == asked.Incarnation && s.Founder == asked.Founder {
			return Command{}, nil // it was done, and nobody could say so
		}
		if s.Phase != Ready && k.o.Neighbours.Peers()[s.Founder].Alive {
			return Command{}, fmt.Errorf("%w: node %s makes it anew already", ErrInvalid, m.name(s.Founder))
		}
		if founder, err = k.beginner(ctx, m, shard, empty); err != nil {
			return Command{}, err
		}
		asked = s.again(founder, "an operator gave up what was lost of it")
		next := asked
		return Command{Op: OpShard, Number: shard, Seen: s.Revision, Shard: &next}, nil
	})
	return founder, err
}

// beginner is the node that makes a shard anew.
func (k *Keeper) beginner(ctx context.Context, m *Map, shard int, empty bool) (string, error) {
	peers := k.o.Neighbours.Peers()
	kept, group, err := k.kept(ctx, m, shard, peers)
	if err != nil {
		return "", err
	}
	founder, err := survivor(m, shard, kept, group)
	if err != nil {
		return "", err
	}
	if peers[founder].Failed {
		return "", fmt.Errorf("%w: node %s has most of it, and its disk has failed: start it again on one that works, or stop it to do without", ErrInvalid, m.name(founder))
	}
	maps.DeleteFunc(kept, func(id string, _ []Kept) bool { return peers[id].Failed })
	return m.begins(shard, founder, empty, kept)
}

// kept is what each node has of a shard, and the members of its group by who has most. A
// node that is there and says nothing may have most of it, or lead it: without its word
// nothing is given up.
func (k *Keeper) kept(ctx context.Context, m *Map, shard int, peers map[string]Peer) (all map[string][]Kept, group []Replica, err error) {
	ctx, cancel := context.WithTimeout(ctx, keptTime)
	defer cancel()
	s, most, answers := m.Shards[shard], Kept{}, k.lookAround(ctx, m, shard, peers)
	all = make(map[string][]Kept)
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		a := answers[id]
		switch {
		case a.err == nil && a.leads >= s.Incarnation && a.leads > 0:
			return nil, nil, fmt.Errorf("%w: %w: node %s leads it", ErrInvalid, ErrLed, m.name(id))
		case a.err == nil:
			all[id] = a.kept
			for _, have := range a.kept {
				if have.Incarnation == s.Incarnation && len(a.group) > 0 && have.compare(most) > 0 {
					most, group = have, a.group
				}
			}
		case id == k.o.Self || peers[id].Hosts || s.keeps(id):
			return nil, nil, fmt.Errorf("%w: node %s runs, may have most of it, and does not say (%w): %w; ask again when it answers, or stop it for good, and ask again once it is seen dead", ErrInvalid, m.name(id), ErrSilent, a.err)
		}
	}
	return all, group, nil
}

// looked is what a node has of a shard.
type looked struct {
	kept  []Kept
	leads uint32    // the incarnation that it leads; 0: none
	group []Replica // the members of the map's incarnation, if it is open there
	err   error
}

// lookAround asks all nodes that are there, side by side.
func (k *Keeper) lookAround(ctx context.Context, m *Map, shard int, peers map[string]Peer) map[string]looked {
	var (
		mu      sync.Mutex // guards answers
		answers = make(map[string]looked)
		asked   sync.WaitGroup
	)
	for id, p := range peers {
		if id == k.o.Self || !p.Alive {
			continue
		}
		asked.Go(func() {
			a, err := k.ask(ctx, id, question{Revision: m.Revision, Look: &shard})
			mu.Lock()
			defer mu.Unlock()
			answers[id] = looked{a.Kept, a.Leads, a.Group, err}
		})
	}
	asked.Wait()
	own, err := k.look(shard)
	own.err = err
	answers[k.o.Self] = own
	return answers
}

// look says what this node has of a shard, and how the group is that is open here.
func (k *Keeper) look(shard int) (here looked, err error) {
	if st, open := k.o.Groups.Status(shard); open {
		if st.Open {
			here.leads = st.Incarnation
		}
		if m := k.Map(); m != nil && shard < len(m.Shards) && st.Incarnation == m.Shards[shard].Incarnation {
			for _, r := range st.Members {
				here.group = append(here.group, Replica{Node: r.Node, Life: r.Life, Voter: r.Voter})
			}
		}
	}
	if here.kept, err = k.o.Host.Kept(shard); err != nil {
		return looked{}, fmt.Errorf("look what there is of shard %d: %w", shard, err)
	}
	return here, nil
}

// survivor is the node that has most of a shard, as Raft compares logs: of the last
// incarnation, by the term of its last entry, then by its index; "": none has any.
// Who votes says the group, where a replica of it is open; on the way from one set of members
// to another the map does not know.
func survivor(m *Map, shard int, kept map[string][]Kept, group []Replica) (node string, err error) {
	s, best, votes := m.Shards[shard], Kept{}, 0
	if len(group) > 0 {
		s.Replicas = group
	}
	for _, id := range slices.Sorted(maps.Keys(kept)) {
		for _, have := range kept[id] {
			if have.Last == 0 {
				continue // it knows nothing
			}
			if have.Incarnation == s.Incarnation && slices.Contains(s.Replicas, Replica{id, have.Life, true}) {
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
