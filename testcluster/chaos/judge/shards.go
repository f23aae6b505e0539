package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

// alike looks at what nodes said, while all ran, that their replicas come to: what has
// applied the same entries is the same. Numbers of unlike forms, of programs of unlike
// versions, cannot be compared.
func alike(t *trial, f *finding) {
	type point struct {
		shard       int
		incarnation uint32
		applied     uint64
		form        string
	}
	first, compared := map[point]history.State{}, map[point]bool{}
	for _, s := range t.States {
		p := point{s.Shard, s.Incarnation, s.Applied, formOf(s.Digest)}
		was, known := first[p]
		switch {
		case !known:
			first[p] = s
		case was.Node == s.Node && was.Digest == s.Digest:
		default:
			if compared[p] = true; was.Digest != s.Digest {
				f.breach(where{at: s.At, node: s.Node}, "shard %d, incarnation %d, after entry %d: the replica of %s comes to %s, that of %s to %s", s.Shard, s.Incarnation, s.Applied, s.Node, s.Digest, was.Node, was.Digest)
			}
		}
	}
	f.looked(len(compared))
	f.number("%d entries after which a replica said what it comes to, %d of them of two nodes or more", len(first), len(compared))
}

// formOf is what a digest begins with: how it is made.
func formOf(digest string) string {
	form, _, told := strings.Cut(digest, "-")
	if !told {
		return "" // of before there were forms
	}
	return form
}

const (
	mostVoters = 3 + 1           // replicas that have a vote, and one while they are exchanged
	missed     = 2 * time.Minute // after which a node that was hurt is missed no more: one that stays away is replaced after one
)

// voters is about who has a vote in a shard, by the word of those who lead it.
func voters(t *trial, f *finding) {
	byShard, most, steps := map[string][]history.Voting{}, 0, 0
	for _, v := range t.Votings {
		if most = max(most, len(v.Voters)); len(v.Voters) > mostVoters {
			f.breach(where{at: v.From}, "shard %d has %d voters: %s", v.Shard, len(v.Voters), strings.Join(v.Voters, " "))
		}
		key := fmt.Sprintf("%d of %d", v.Shard, v.Incarnation)
		byShard[key] = append(byShard[key], v)
	}
	for _, all := range byShard {
		slices.SortStableFunc(all, func(a, b history.Voting) int { return a.From.Compare(b.From) })
		for i, a := range all {
			for _, b := range all[i+1:] {
				if b.From.Before(a.To) && apartFrom(a, b) {
					f.breach(where{at: b.From}, "shard %d has two majorities: %s leads %s in term %d, and at once %s leads %s in term %d", a.Shard, a.Leader, strings.Join(a.Voters, " "), a.Term, b.Leader, strings.Join(b.Voters, " "), b.Term)
				}
			}
		}
		steps += t.steps(f, all)
	}
	f.looked(len(t.Votings))
	f.number("%d sets of voters in %d shards, %d voters at most, %d steps from one to the next", len(t.Votings), len(byShard), most, steps)
}

// apartFrom tells whether one of two leaders could have a majority of voters who have
// no vote by the other's word. One that is cut off may for a lease not know of a step.
func apartFrom(a, b history.Voting) bool {
	if a.Term == b.Term {
		return false // which `leaders` looks for
	}
	return 2*beyond(a.Voters, b.Voters) > len(a.Voters) || 2*beyond(b.Voters, a.Voters) > len(b.Voters)
}

// beyond is how many of some are not among others.
func beyond(some, others []string) int { return len(gone(some, others)) }

func gone(some, others []string) (all []string) {
	for _, v := range some {
		if !slices.Contains(others, v) {
			all = append(all, v)
		}
	}
	return all
}

// steps looks at what leaders made of their voters: one that is well goes after another
// has its vote, or the shard could lose fewer than there are nodes for.
func (t *trial) steps(f *finding, all []history.Voting) (n int) {
	last := map[string]history.Voting{} // by who leads
	for _, now := range all {
		was, known := last[now.Leader]
		if last[now.Leader] = now; !known || was.Term != now.Term {
			continue
		}
		n++
		if live := min(was.Live, now.Live); live < 3 || len(now.Voters) >= 3 {
			continue // two could not go on without each other
		}
		for _, v := range gone(was.Voters, now.Voters) {
			hurt := func(h history.Fault) bool { return aims(h, v) || h.Kind == history.Leave }
			if !t.any(now.From.Add(-missed), now.From, hurt) && !t.busy(now.From) {
				f.breach(where{at: now.From, node: v}, "shard %d: %s has taken the vote of %s, to which nothing had happened, and nobody got one for it: %s, before %s", now.Shard, now.Leader, v, strings.Join(now.Voters, " "), strings.Join(was.Voters, " "))
			}
		}
	}
	return n
}

// silent is for how long a member may answer late by this machine's doing before its
// leader takes it for dead, with room to spare: that is after three seconds.
const silent = time.Second

// busy tells whether this machine was so late about a moment that nodes may have looked
// dead, and were not: some clients were.
func (t *trial) busy(at time.Time) bool {
	return slices.ContainsFunc(t.Turns, func(turn history.Turn) bool {
		return !turn.Due.IsZero() && turn.Began.Sub(turn.Due) >= silent && turn.Due.Before(at) && turn.Began.After(at.Add(-5*silent))
	})
}

// once is about second processes that were started with the data of a node that ran:
// each must end at once, and say that it is the directory.
func once(t *trial, f *finding) {
	for _, w := range t.Twins {
		switch {
		case w.Served:
			f.breach(where{at: w.At, node: w.Node}, "a second process serves with the data of %s", w.Node)
		case !strings.Contains(w.Words, "another starling has it"):
			f.breach(where{at: w.At, node: w.Node}, "a second process went on with the data of %s, and ended for another reason: %s", w.Node, w.Words)
		}
	}
	f.looked(len(t.Twins))
	f.number("%d second processes refused", len(t.Twins))
}
