package meta

import (
	"slices"
	"time"
)

// Seen is what a controller sees beside the map. It decides nothing by itself.
type Seen struct {
	Peers  map[string]Peer                     // by id: this cluster's nodes that gossip knows, alive or not
	Groups map[int]Group                       // by shard: its leader's last word, if it is fresh; by term, the newest
	Named  map[string]map[string]Named         // by live node and pool
	Missed map[string]map[string]time.Duration // by pool and backend: how long no live node has named it, while this node led meta
	Wall   uint64                              // milliseconds since 1970, for numbers that grow
	Led    time.Duration                       // how long this node leads meta
	Silent map[int]time.Duration               // by shard: how long no leader of it has reported, while this node led meta
}

// Peer is a node as it is at the moment.
type Peer struct {
	Node         // its own word: Name, Zone, Hosts, Level, Boot
	At    string // where its calls come from and go to, says gossip; "": it does not know
	Alive bool   // says gossip
	Ends  bool   // it says that it is about to end, if only to start again
	// Failed is a node that says that its disk has failed: it runs and keeps nothing.
	Failed bool
	Gone   time.Duration // for so long the controller has seen it not alive
	Heard  bool          // its report came by rpc, lately

	Generation uint32   // of meta, as it says in gossip; 0: it does not
	Run        uint64   // as it reports: this run
	Runs       []uint64 // and those that its directory has made of which the map may have the last one
}

// Group is a shard's group as its leader reports it.
type Group struct {
	Incarnation uint32
	Leader      string
	Term        uint64
	Last        uint64 // index of its last entry
	Members     []Member
}

// Member is one member of a group, as its leader sees it.
type Member struct {
	Node  string
	Life  uint64
	Voter bool
	Live  bool          // it answered lately
	Level time.Duration // for so long it has lacked a few entries at most; 0: it lacks more
}

const (
	liveFor     = 3 * time.Second  // since a member's last answer
	fewLacked   = 64               // entries that a member may lack that has caught up
	levelFor    = 5 * time.Second  // it must have caught up for so long before it counts on a move
	hurryFor    = time.Second      // or, where votes are missing that the shard should have
	deadAfter   = time.Minute      // gossip's word has to hold for so long
	panicFor    = 15 * time.Minute // who is gone for so long is no sign of a network that failed a moment ago
	forgetAfter = 24 * time.Hour   // a dead node that has no replicas
	joinWait    = 10 * time.Second // shards are created after it, though nodes of the founding are missing
)

// member returns the member that a wanted replica is.
func (g Group) member(r Replica) (Member, bool) {
	for _, m := range g.Members {
		if m.Node == r.Node && m.Life == r.Life {
			return m, true
		}
	}
	return Member{}, false
}

// passing is the group with a node that nobody hands the lead to.
func (g Group) passing(node string) Group {
	g.Members = slices.Clone(g.Members)
	for i := range g.Members {
		if g.Members[i].Node == node {
			g.Members[i].Level = 0
		}
	}
	return g
}

// light tells whether a copy of the group costs next to nothing.
func (g Group) light() bool { return g.Last > 0 && g.Last <= fewLacked }

// within tells whether all members of the group are wanted.
func (g Group) within(wanted []Replica) bool {
	for _, m := range g.Members {
		if !slices.ContainsFunc(wanted, func(r Replica) bool { return r.Node == m.Node && r.Life == m.Life }) {
			return false
		}
	}
	return true
}

// as tells whether the group's members are the wanted ones.
func (g Group) as(wanted []Replica) bool {
	if len(g.Members) != len(wanted) {
		return false
	}
	for _, r := range wanted {
		if m, ok := g.member(r); !ok || m.Voter != r.Voter {
			return false
		}
	}
	return true
}
