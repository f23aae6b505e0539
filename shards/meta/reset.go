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
	kept, err := k.kept(ctx, m, shard, peers)
	if err != nil {
		return "", err
	}
	founder, err := survivor(m, shard, kept)
	if err != nil {
		return "", err
	}
	if peers[founder].Failed {
		return "", fmt.Errorf("%w: node %s has most of it, and its disk has failed: start it again on one that works, or stop it to do without", ErrInvalid, m.name(founder))
	}
	maps.DeleteFunc(kept, func(id string, _ []Kept) bool { return peers[id].Failed })
	return m.begins(shard, founder, empty, kept)
}

// kept is what each node has of a shard. A node that is there and says nothing may
// have most of it, or lead it: without its word nothing is given up.
func (k *Keeper) kept(ctx context.Context, m *Map, shard int, peers map[string]Peer) (map[string][]Kept, error) {
	ctx, cancel := context.WithTimeout(ctx, keptTime)
	defer cancel()
	s, all, answers := m.Shards[shard], make(map[string][]Kept), k.lookAround(ctx, m, shard, peers)
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		a := answers[id]
		switch {
		case a.err == nil && a.leads >= s.Incarnation && a.leads > 0:
			return nil, fmt.Errorf("%w: %w: node %s leads it", ErrInvalid, ErrLed, m.name(id))
		case a.err == nil:
			all[id] = a.kept
		case id == k.o.Self || peers[id].Hosts || s.keeps(id):
			return nil, fmt.Errorf("%w: node %s runs, may have most of it, and does not say (%w): %w; ask again when it answers, or stop it for good, and ask again once it is seen dead", ErrInvalid, m.name(id), ErrSilent, a.err)
		}
	}
	return all, nil
}

// looked is what a node has of a shard.
type looked struct {
	kept  []Kept
	leads uint32 // the incarnation that it leads; 0: none
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
			answers[id] = looked{a.Kept, a.Leads, err}
		})
	}
	asked.Wait()
	var own looked
	own.kept, own.leads, own.err = k.look(shard)
	answers[k.o.Self] = own
	return answers
}

// look says what this node has of a shard, and which incarnation of it it leads.
func (k *Keeper) look(shard int) (kept []Kept, leads uint32, err error) {
	if st, open := k.o.Groups.Status(shard); open && st.Open {
		leads = st.Incarnation
	}
	if kept, err = k.o.Host.Kept(shard); err != nil {
		return nil, 0, fmt.Errorf("look what there is of shard %d: %w", shard, err)
	}
	return kept, leads, nil
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
