package meta

import (
	"fmt"
	"time"
)

// Status is a group as the replica here has it.
type Status struct {
	Incarnation  uint32
	Leader       string // "": none is known
	Term         uint64
	Open         bool   // this node leads it and has applied an entry of its term
	Last, Config uint64 // index of the last entry; number of the configuration
	Members      []MemberStatus
}

// MemberStatus is one member; all but Node and Voter on the leader alone.
type MemberStatus struct {
	Node  string
	Life  uint64
	Voter bool
	Match uint64        // 0: not known
	Lag   uint64        // committed entries that it lacks
	Heard time.Duration // since its last answer
}

// Deed is what a reconciler does.
type Deed string

// The deeds; all but Wait change the group.
const (
	Wait        Deed = ""
	AddNonvoter Deed = "add non-voter"
	AddVoter    Deed = "add voter"
	Demote      Deed = "demote"
	Remove      Deed = "remove"
	Transfer    Deed = "transfer"
)

// Action is the one next step of a group. It is done only if the configuration is
// still the one with the number.
type Action struct {
	Do     Deed
	Node   string
	Life   uint64 // of the node's replica
	Config uint64
	Why    string // of Wait: what for; "": all is as it should be
}

// Next is the reconciler of one group: what its leader, self, does next so that
// the group becomes what the map says. Of a group that was reported it knows how
// long each member has kept up.
//
// The order keeps a majority alive. A replica comes as a non-voter and gets its
// vote once it has caught up. A dead voter goes before its successor votes: of
// three voters with one dead, a fourth would make two living ones a minority. A
// living voter goes after it: the shard can lose one of them at any time.
func Next(m *Map, shard int, self string, g Group, config uint64) Action {
	n := &next{m: m, s: m.Shards[shard], self: self, g: g, config: config}
	if n.s.Phase != Ready || n.s.Incarnation != g.Incarnation {
		return Action{Why: fmt.Sprintf("the map has incarnation %d, %s", n.s.Incarnation, n.s.Phase)}
	}
	if n.s.Step != nil && n.s.Step.Kind == Regain {
		return Action{Why: "shard 0 was recovered, and the map is to have the group as it is first"}
	}
	for _, look := range []func() (Action, bool){n.clear, n.invite, n.bury, n.promote, n.dismiss} {
		if a, ok := look(); ok {
			return a
		}
	}
	return Action{}
}

type next struct {
	m      *Map
	s      Shard
	self   string
	g      Group
	config uint64
}

func (n *next) act(do Deed, node string, life uint64, why string) (Action, bool) {
	return Action{Do: do, Node: node, Life: life, Config: n.config, Why: why}, true
}

// clear takes out non-voters that are not wanted: they count for nothing.
func (n *next) clear() (Action, bool) {
	for _, m := range n.g.Members {
		if _, wanted := n.s.has(m); !wanted && !m.Voter {
			return n.act(Remove, m.Node, m.Life, "it is not wanted and has no vote")
		}
	}
	return Action{}, false
}

// invite adds what is wanted, for now without a vote.
func (n *next) invite() (Action, bool) {
	for _, r := range n.s.Replicas {
		if _, in := n.g.member(r); !in {
			return n.act(AddNonvoter, r.Node, r.Life, "it shall have a replica")
		}
	}
	return Action{}, false
}

// bury takes out dead voters that are not wanted, as soon as their successors can
// vote.
func (n *next) bury() (Action, bool) {
	for _, m := range n.g.Members {
		if r, _ := n.s.has(m); !m.Voter || r.Voter || m.Live || m.Node == n.self {
			continue
		}
		if late := n.late(); late != "" {
			return Action{Why: late}, true
		}
		return n.drop(m, "it is dead")
	}
	return Action{}, false
}

// promote gives votes: to all that shall have one, one after the other, once all
// have caught up, so that an even number does not last.
func (n *next) promote() (Action, bool) {
	for _, r := range n.s.Replicas {
		m, _ := n.g.member(r)
		if !r.Voter || m.Voter {
			continue
		}
		if late := n.late(); late != "" && n.odd() {
			return Action{Why: late}, true
		}
		if !n.caughtUp(m) {
			continue
		}
		if !n.bears() {
			return Action{Why: fmt.Sprintf("if node %s died now, too few of the voters would be alive", n.m.name(r.Node))}, true
		}
		return n.act(AddVoter, r.Node, r.Life, "it has caught up")
	}
	return Action{}, false
}

// late names a wanted voter that cannot vote yet.
func (n *next) late() string {
	for _, r := range n.s.Replicas {
		if m, _ := n.g.member(r); r.Voter && !m.Voter && !n.caughtUp(m) {
			return fmt.Sprintf("node %s has not caught up", n.m.name(r.Node))
		}
	}
	return ""
}

// caughtUp says whether a member has kept up for long enough. Where votes are
// missing, waiting is the greater danger; where there is next to nothing to catch
// up on, once is enough.
func (n *next) caughtUp(m Member) bool {
	long := levelFor
	switch voters, _ := n.count(); {
	case voters < n.s.Voters() && n.g.light():
		long = 1
	case voters < n.s.Voters():
		long = hurryFor
	}
	return m.Live && m.Level >= long
}

// dismiss takes votes away that are not wanted, once all have theirs that shall.
func (n *next) dismiss() (Action, bool) {
	for _, m := range n.g.Members {
		if r, _ := n.s.has(m); !m.Voter || r.Voter {
			continue
		}
		for _, r := range n.s.Replicas {
			if in, _ := n.g.member(r); r.Voter && !in.Voter {
				return Action{Why: fmt.Sprintf("node %s has no vote yet", n.m.name(r.Node))}, true
			}
		}
		if m.Node != n.self {
			return n.drop(m, "its replica is not wanted any more")
		}
		if heir, ok := n.heir(); ok {
			return n.act(Transfer, heir.Node, heir.Life, "this node gives its replica away")
		}
		return Action{Why: "nobody can take the lead from this node"}, true
	}
	return Action{}, false
}

// drop takes a voter's vote, or all of it, if a majority stays.
func (n *next) drop(m Member, why string) (Action, bool) {
	if !n.majority(m) {
		return Action{Why: fmt.Sprintf("without node %s too few of the voters would be alive", n.m.name(m.Node))}, true
	}
	if _, stays := n.s.has(m); stays {
		return n.act(Demote, m.Node, m.Life, why)
	}
	return n.act(Remove, m.Node, m.Life, why)
}

// bears tells whether one more voter may come: the living ones must be a majority
// with it, even if it has died meanwhile. Where there is but one, it has to.
func (n *next) bears() bool {
	voters, live := n.count()
	return voters == 1 || 2*live > voters+1
}

// majority tells whether the living voters are one, now and without a member.
func (n *next) majority(without Member) bool {
	voters, live := n.count()
	left := live
	if without.Live || without.Node == n.self {
		left--
	}
	return 2*live > voters && 2*left > voters-1
}

// count counts the voters, and those that live.
func (n *next) count() (voters, live int) {
	for _, m := range n.g.Members {
		if !m.Voter {
			continue
		}
		voters++
		if m.Live || m.Node == n.self {
			live++
		}
	}
	return voters, live
}

func (n *next) odd() bool {
	voters, _ := n.count()
	return voters%2 == 1
}

// heir is a wanted voter that can lead.
func (n *next) heir() (Member, bool) {
	for _, r := range n.s.Replicas {
		if m, _ := n.g.member(r); r.Voter && m.Voter && m.Live && m.Level > 0 && m.Node != n.self {
			return m, true
		}
	}
	return Member{}, false
}

// Spread gives the lead of a group to the node that should have it, lead, once
// nothing else is to be done, so that leaders are spread.
func Spread(s Shard, lead, self string, g Group, config uint64) Action {
	r, _ := s.Wants(lead)
	if m, _ := g.member(r); lead == self || !m.Voter || !m.Live || m.Level < levelFor {
		return Action{}
	}
	return Action{Do: Transfer, Node: lead, Life: r.Life, Config: config, Why: "leaders are spread"}
}
