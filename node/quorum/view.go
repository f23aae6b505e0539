package quorum

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/starling-lb/starling/consensus"
	"github.com/starling-lb/starling/consensus/transport"
	"github.com/starling-lb/starling/shards"
	"github.com/starling-lb/starling/shards/meta"
)

// Shard is one shard as the replica that knows most of it sees it.
type Shard struct {
	ID, Incarnation uint32
	Leader          string // a node's id; "": none is known
	Led             bool   // by whoever says this
	Term            uint64
	LastIndex       uint64
	Applied         uint64
	Sessions        int
	Replicas        []Replica
	Phase           meta.Phase
	Step            *meta.Step    // what is done to it; nil: nothing
	Standing        meta.Standing // of the step

	// Here is what this node's own replica has come to; its index is 0 where it has
	// none, or does not know. Marks are what one of sessions was at before.
	Here  shards.Mark   `json:"-"` // it is no other node's business
	Marks []shards.Mark `json:"-"`
}

// Replica is one member of a shard's group.
type Replica struct {
	Node   string // its id
	Voter  bool
	Wanted bool // only wanted: the group does not have it
	Match  uint64
	Lag    uint64
}

// viewService is how a node tells what its replicas are.
const viewService = "quorum.view"

const viewTime = time.Second // for others' answers

// Cluster is the cluster's id; "" before there is one.
func (q *Quorum) Cluster() string {
	if m := q.Map(); m != nil {
		return m.Cluster
	}
	return ""
}

// Map is the newest map that this node knows; nil before there is a cluster.
func (q *Quorum) Map() *meta.Map { return q.known.Load() }

// Led counts the session shards: all of them, those that this node leads, and
// those that nobody leads, as far as this node can know: of a shard that it has no
// replica of, it looks whether a majority of its voters is alive. decides says the
// same of the cluster's own shard.
func (q *Quorum) Led() (count, led, without int, decides bool) {
	m := q.known.Load()
	if m == nil {
		return 0, 0, 0, false
	}
	alive := q.alive()
	for i, s := range m.Shards {
		leader, here := "", false
		if g := q.groups.Group(uint32(i)); g != nil {
			state := g.State()
			leader, here = state.Leader, state.Led
		} else if s.Phase == meta.Ready && lives(s, alive) {
			leader = "somebody"
		}
		switch {
		case i == 0:
			decides = leader != ""
		case here:
			led++
		case leader == "":
			without++
		}
	}
	return m.Count(), led, without, decides
}

// Steps counts the shards to which something is done, and those of them where it
// has stood still.
func (q *Quorum) Steps() (steps, still int) {
	m := q.known.Load()
	if m == nil {
		return 0, 0
	}
	for i, s := range m.Shards {
		if s.Step == nil {
			continue
		}
		steps++
		if q.keeper.Standing(i).Still {
			still++
		}
	}
	return steps, still
}

// longest is for how long the longest of what is done to shards is under way.
func (q *Quorum) longest() (age time.Duration) {
	if m := q.known.Load(); m != nil {
		for i := range m.Shards {
			age = max(age, q.keeper.Standing(i).For)
		}
	}
	return age
}

// Failed is why this node's store keeps nothing any more; nil: it does.
func (q *Quorum) Failed() error {
	if !q.opened.Load() {
		return nil
	}
	return q.store.Failed()
}

// Pauses says why nothing is repaired now, as this node sees it; "": nothing stands
// against it.
func (q *Quorum) Pauses() string { return q.keeper.Pauses() }

// alive are the nodes that gossip sees.
func (q *Quorum) alive() map[string]bool {
	out := make(map[string]bool)
	for _, p := range q.peers() {
		out[p.ID] = p.Alive
	}
	return out
}

// lives tells whether a majority of a shard's voters is alive.
func lives(s meta.Shard, alive map[string]bool) bool {
	n := 0
	for _, r := range s.Replicas {
		if r.Voter && alive[r.Node] {
			n++
		}
	}
	return 2*n > s.Voters()
}

// here is what this node's replicas say.
func (q *Quorum) here() []Shard {
	var all []Shard
	for _, g := range q.groups.All() {
		all = append(all, q.viewOf(g))
	}
	return all
}

func (q *Quorum) viewOf(g *consensus.Group) Shard {
	st := g.Status()
	s := Shard{
		ID: g.ID.Shard, Incarnation: g.ID.Incarnation, Leader: st.Leader, Led: st.Led, Term: st.Term,
		LastIndex: st.LastIndex, Applied: st.Applied,
	}
	if m := q.machine(g.ID.Shard); m != nil {
		s.Sessions = m.Len()
	}
	s.Standing = q.keeper.Standing(int(s.ID))
	for _, r := range st.Replicas {
		s.Replicas = append(s.Replicas, Replica{Node: r.Node, Voter: r.Voter, Match: r.Match, Lag: r.Lag})
	}
	return s
}

// answerView is the service.
func (q *Quorum) answerView(context.Context, string, []byte) ([]byte, error) {
	return json.Marshal(q.here())
}

// Shards is every shard of the map: as its leader says where that answers in
// time, else as this node knows it.
func (q *Quorum) Shards(ctx context.Context) []Shard {
	m := q.known.Load()
	if m == nil {
		return nil
	}
	all := make([]Shard, len(m.Shards))
	for i, s := range m.Shards {
		all[i] = Shard{ID: uint32(i), Incarnation: s.Incarnation}
	}
	for _, s := range append(q.ask(ctx), q.here()...) {
		if int(s.ID) < len(all) && s.Incarnation == all[s.ID].Incarnation && s.knowsMore(all[s.ID]) {
			all[s.ID] = s
		}
	}
	for i := range all {
		all[i].placed(m.Shards[i], q.keeper.Standing(i))
		if g := q.groups.Group(uint32(i)); g != nil && g.ID.Incarnation == all[i].Incarnation {
			q.comesTo(&all[i])
		}
	}
	return all
}

// comesTo adds what this node's own replica has come to.
func (q *Quorum) comesTo(s *Shard) {
	if s.ID == 0 {
		s.Here.Index, s.Here.Digest = q.meta.Digest()
	} else if own := q.machine(s.ID); own != nil {
		s.Here, s.Marks = own.Digests()
	}
}

// placed adds what the map says of the shard, and how its step stands as far as this
// node knows: who has run longest has seen most of it, and who leads knows why.
func (s *Shard) placed(m meta.Shard, here meta.Standing) {
	s.Phase, s.Step = m.Phase, m.Step
	s.want(m)
	if m.Step == nil {
		s.Standing = meta.Standing{}
		return
	}
	s.Standing.For, s.Standing.Still = max(s.Standing.For, here.For), s.Standing.Still || here.Still
	switch {
	case s.Led:
	case s.Phase == meta.Creating:
		s.Standing.Waits = "its first replica is being made"
	case s.Leader == "":
		s.Standing.Waits = "nobody leads the shard"
	default:
		s.Standing.Waits = "its leader does not answer this node"
	}
}

// knowsMore compares two views: a leader knows more than a follower, and of two
// leaders the one of the later term is one still.
func (s Shard) knowsMore(other Shard) bool {
	if s.Led != other.Led {
		return s.Led
	}
	return cmp.Or(cmp.Compare(s.Term, other.Term), cmp.Compare(s.Applied, other.Applied)) > 0 || other.Replicas == nil
}

// want adds the replicas that the map wants and the group does not have.
func (s *Shard) want(wanted meta.Shard) {
	for _, w := range wanted.Replicas {
		if !slices.ContainsFunc(s.Replicas, func(r Replica) bool { return r.Node == w.Node }) {
			s.Replicas = append(s.Replicas, Replica{Node: w.Node, Voter: w.Voter, Wanted: true})
		}
	}
}

// ask has the others that host replicas say what they see.
func (q *Quorum) ask(ctx context.Context) (said []Shard) {
	ctx, cancel := context.WithTimeout(ctx, viewTime)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for id := range q.others() {
		all.Go(func() {
			answer, err := q.port.Call(ctx, id, viewService, nil)
			var list []Shard
			if err == nil {
				err = json.Unmarshal(answer, &list)
			}
			if err != nil {
				q.log.Debug("a node does not say how its replicas are", "peer", id, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			said = append(said, list...)
		})
	}
	all.Wait()
	return said
}

// others are the live nodes of this cluster that host replicas, by id, without
// this one.
func (q *Quorum) others() map[string]Peer {
	out := make(map[string]Peer)
	for _, p := range q.peers() {
		if p.ID != q.o.Self.ID && p.Alive && p.Hosts && p.RPC != "" && p.Cluster == q.Cluster() {
			out[p.ID] = p
		}
	}
	return out
}

var _ transport.Resolver = (*Quorum)(nil)

// Name is what people call a node; its id where no name is known.
func (q *Quorum) Name(id string) string {
	if m := q.Map(); m != nil && m.Nodes[id].Name != "" {
		return m.Nodes[id].Name
	}
	return id
}
