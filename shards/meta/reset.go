package meta

import (
	"context"
	"errors"
	"fmt"
)

// ErrLed is a shard that is not lost.
var ErrLed = errors.New("the shard has a leader, or will have one: a majority of its replicas answers")

// Reset has a shard that lost its majority made anew, from what the node has that
// has most of it, and returns that node. Its earlier replicas are fenced from then
// on, should they come back. What only the lost ones knew is lost.
func (k *Keeper) Reset(ctx context.Context, shard int) (founder string, err error) {
	err = k.until(ctx, fmt.Sprint("shard ", shard), func(m *Map) (Command, error) {
		if shard < 1 || shard >= len(m.Shards) {
			return Command{}, fmt.Errorf("%w: there are shards 1 to %d; for shard 0 there is starling recover", ErrInvalid, m.Count())
		}
		s := m.Shards[shard]
		if s.Step != nil && s.Step.Kind == Reset {
			return Command{}, fmt.Errorf("%w: it is made anew already", ErrInvalid)
		}
		founder, err = k.survivor(ctx, shard, s)
		if err != nil {
			return Command{}, err
		}
		next := Shard{
			Incarnation: s.Incarnation + 1, Phase: Creating, Founder: founder, Replicas: []Replica{{Node: founder, Voter: true}},
			Step: &Step{Kind: Reset, Node: founder, Reason: "an operator gave up what was lost of it"},
		}
		return Command{Op: OpShard, Number: shard, Seen: s.Revision, Shard: &next}, nil
	})
	return founder, err
}

// survivor is the node that has most of a shard.
func (k *Keeper) survivor(ctx context.Context, shard int, s Shard) (string, error) {
	best, node, votes := reply{}, "", 0
	for _, r := range s.Replicas {
		a, err := k.look(ctx, r.Node, shard)
		if err != nil || a.Last == 0 {
			continue // it is gone, or knows nothing: that is why
		}
		if r.Voter {
			votes++
		}
		if node == "" || a.Last > best.Last || a.Last == best.Last && a.Term > best.Term {
			best, node = a, r.Node
		}
	}
	switch {
	case node == "":
		return "", fmt.Errorf("%w: none of the shard's nodes answers; start one of them, with the disk it had", ErrInvalid)
	case 2*votes > s.Voters():
		return "", fmt.Errorf("%w: %w", ErrInvalid, ErrLed)
	}
	return node, nil
}

// look asks a node, or this one, how much it has of a shard.
func (k *Keeper) look(ctx context.Context, node string, shard int) (reply, error) {
	if node != k.o.Self {
		return k.ask(ctx, node, question{Revision: k.Map().Revision, Look: &shard})
	}
	st, open := k.o.Groups.Status(shard)
	if !open {
		return reply{}, ErrElsewhere
	}
	return reply{Last: st.Last, Term: st.Term}, nil
}
