package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-lb/starling/consensus"
	"github.com/starling-lb/starling/consensus/store"
	"github.com/starling-lb/starling/consensus/transport"
	"github.com/starling-lb/starling/shards"
	"github.com/starling-lb/starling/shards/meta"
)

// What meta and shards need of consensus, gossip and the port, in their own words.

// host runs the replicas that the map places on this node.
type host struct{ q *Quorum }

var _ meta.Host = host{}

// Open starts a replica, and answers for its shard from then on.
func (h host) Open(e meta.Errand) error {
	r, q, shard := e.Own, h.q, uint32(e.Own.Shard)
	if e.Kept && !e.Found && !h.has(r) {
		return fmt.Errorf("%w: there is nothing of it in %s; was the file put away or taken from elsewhere?", meta.ErrHole, storeFile)
	}
	spec := consensus.Spec{ID: transport.GroupID{Shard: shard, Incarnation: r.Incarnation}, Life: r.Life}
	if e.Found {
		spec.Founders = []string{q.o.Self.ID}
		for _, s := range e.Seeds {
			spec.Seeds = append(spec.Seeds, consensus.Seed{Incarnation: s.Incarnation, Life: s.Life})
		}
	}
	machine, last := shards.NewMachine(), shards.NewMachine()
	spec.Machine = func() consensus.StateMachine { machine.Reset(); return machine }
	if shard != 0 {
		spec.Memory = last
	}
	if e.Found && shard != 0 && r.Incarnation > 1 {
		spec.Remake = func() { machine.Remade(r.Incarnation) }
	}
	if shard == 0 {
		spec.Machine = func() consensus.StateMachine { q.meta.Reset(); return q.meta }
		spec.Changed = func(consensus.State) { q.keeper.Nudge() }
	}
	g, err := q.groups.Open(spec)
	var hole *store.HoleError
	switch {
	case errors.As(err, &hole):
		return fmt.Errorf("%w: %w", meta.ErrHole, err)
	case err != nil:
		return err
	case shard != 0:
		q.keep(shard, machine, last)
		q.own(q.router.Load(), g, machine)
	}
	return nil
}

// has tells whether there is a log of the replica.
func (h host) has(r meta.Own) bool {
	return slices.Contains(h.q.store.Keys(), store.Key{Shard: uint64(r.Shard), Incarnation: uint64(r.Incarnation), Life: r.Life})
}

// Close stops a replica and leaves what it kept; one of another life goes on.
func (h host) Close(ctx context.Context, r meta.Own) {
	q, shard := h.q, uint32(r.Shard)
	if g := q.groups.Group(shard); g != nil && g.ID.Incarnation == r.Incarnation && g.Life() == r.Life {
		q.drop(shard)
		q.groups.Close(ctx, g)
	}
}

// Delete stops a replica, if it runs, and deletes what it kept.
func (h host) Delete(ctx context.Context, r meta.Own) error {
	q := h.q
	h.Close(ctx, r)
	return q.groups.Drop(transport.GroupID{Shard: uint32(r.Shard), Incarnation: r.Incarnation}, r.Life)
}

// Kept is what there is of a shard in the store.
func (h host) Kept(shard int) (all []meta.Kept, err error) {
	for _, key := range h.q.store.Keys() {
		if key.Shard != uint64(shard) {
			continue
		}
		id := transport.GroupID{Shard: uint32(shard), Incarnation: uint32(key.Incarnation)}
		last, term, err := h.q.groups.Kept(id, key.Life)
		var hole *store.HoleError
		if errors.As(err, &hole) { // nothing can begin with it
			h.q.log.Warn("a replica's log is broken, and counts as none", "shard", shard, "incarnation", key.Incarnation, "err", err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("incarnation %d: %w", key.Incarnation, err)
		}
		all = append(all, meta.Kept{Incarnation: id.Incarnation, Life: key.Life, Term: term, Last: last})
	}
	return all, nil
}

// keep notes the state machine of a replica that runs.
func (q *Quorum) keep(shard uint32, m, last *shards.Machine) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.machines[shard] = m
	if delete(q.lasts, shard); last.Len() > 0 {
		q.lasts[shard] = last
	}
}

// drop forgets it; nobody here answers for the shard any more.
func (q *Quorum) drop(shard uint32) {
	if r := q.router.Load(); r != nil {
		r.Own(shard, nil)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.machines, shard)
	delete(q.lasts, shard)
}

// machine is the state machine of a session shard's replica here, or nil.
func (q *Quorum) machine(shard uint32) *shards.Machine {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.machines[shard]
}

// own has the router know the owner of a shard; one that there is no router for
// yet is added by ownAll.
func (q *Quorum) own(r *shards.Router, g *consensus.Group, m *shards.Machine) {
	if r == nil {
		return
	}
	o := shards.NewOwner(replica{g}, m, g.ID.Incarnation)
	q.mu.Lock()
	if last := q.lasts[g.ID.Shard]; last != nil {
		o.Recall(last)
		delete(q.lasts, g.ID.Shard) // the owner lets go of it in time
	}
	q.mu.Unlock()
	r.Own(g.ID.Shard, o)
}

func (q *Quorum) ownAll(r *shards.Router) {
	for _, g := range q.groups.All() {
		if m := q.machine(g.ID.Shard); m != nil {
			q.own(r, g, m)
		}
	}
}

// replica is a group as the owner of its shard proposes to it. When sessions that
// stood have another home, the other replicas know of it at once: any of them may be
// asked where a session lives.
type replica struct{ *consensus.Group }

var _ shards.Log = replica{}

func (r replica) Propose(ctx context.Context, command []byte) (any, error) {
	got, err := r.Group.Propose(ctx, command)
	if result, ok := got.(shards.Result); ok && err == nil && result.Moved() {
		r.Spread()
	}
	return got, err
}

// groups are the replicas of this node, for those that steer them.
type groups struct{ q *Quorum }

var _ meta.Groups = groups{}

// Status is how a replica is.
func (s groups) Status(shard int) (meta.Status, bool) {
	g := s.q.groups.Group(uint32(shard))
	if g == nil {
		return meta.Status{}, false
	}
	st := g.Status()
	out := meta.Status{
		Incarnation: g.ID.Incarnation, Leader: st.Leader, Term: st.Term, Open: st.Open, Last: st.LastIndex, Config: st.Config,
	}
	for _, r := range st.Replicas {
		out.Members = append(out.Members, meta.MemberStatus{Node: r.Node, Life: r.Life, Voter: r.Voter, Match: r.Match, Lag: r.Lag, Heard: r.Heard})
	}
	return out, true
}

// Change takes one step of a group's membership, or hands its leadership over.
func (s groups) Change(ctx context.Context, shard int, a meta.Action) error {
	g := s.q.groups.Group(uint32(shard))
	if g == nil {
		return fmt.Errorf("shard %d has no replica here", shard)
	}
	member := consensus.Name(a.Node, a.Life)
	switch a.Do {
	case meta.AddNonvoter:
		return g.Change(ctx, consensus.AddNonvoter, member, a.Config)
	case meta.AddVoter:
		return g.Change(ctx, consensus.AddVoter, member, a.Config)
	case meta.Demote:
		return g.Change(ctx, consensus.Demote, member, a.Config)
	case meta.Remove:
		return g.Change(ctx, consensus.Remove, member, a.Config)
	case meta.Transfer:
		return s.q.groups.Transfer(ctx, g, member)
	}
	panic(fmt.Sprintf("BUG: action %q", a.Do))
}

// Propose has a command of meta applied.
func (s groups) Propose(ctx context.Context, command []byte) (any, error) {
	g := s.q.groups.Group(0)
	if g == nil {
		return nil, errors.New("this node has no replica of the cluster's own shard")
	}
	result, err := g.Propose(ctx, command)
	if err == nil {
		g.Spread() // shards are led by nodes that follow here
	}
	return result, err
}

// neighbours are the other nodes of the cluster.
type neighbours struct{ q *Quorum }

var _ meta.Neighbours = neighbours{}

// Peers are those that gossip knows, by id.
func (n neighbours) Peers() map[string]meta.Peer {
	out := make(map[string]meta.Peer)
	for _, p := range n.q.peers() {
		if p.ID == n.q.o.Self.ID || p.Cluster != "" && p.Cluster == n.q.Cluster() {
			out[p.ID] = meta.Peer{Node: meta.Node{Name: p.Name, Zone: p.Zone, Hosts: p.Hosts, Level: p.Level, Boot: p.Boot}, At: p.RPC, Alive: p.Alive, Ends: p.Ends, Failed: p.Failed, Generation: p.Generation}
		}
	}
	return out
}

// Ask calls the service that keepers answer each other by.
func (n neighbours) Ask(ctx context.Context, node string, question []byte) ([]byte, error) {
	return n.q.port.Call(ctx, node, meta.Service, question)
}

// peers carries the router's questions.
type peers struct{ q *Quorum }

// Call asks another node.
func (p peers) Call(ctx context.Context, node, service string, question []byte) ([]byte, error) {
	if b := p.q.beyond.Load(); b != nil {
		return (*b).Call(ctx, node, service, question)
	}
	return p.q.port.Call(ctx, node, service, question)
}

// places says from the map where replicas are.
type places struct{ q *Quorum }

// Replicas are the nodes that shall have a replica of a shard.
func (p places) Replicas(shard uint32) (nodes []string) {
	m := p.q.known.Load()
	if m == nil || int(shard) >= len(m.Shards) {
		return nil
	}
	for _, r := range m.Shards[shard].Replicas {
		nodes = append(nodes, r.Node)
	}
	return nodes
}

// answerAsk answers other nodes' questions about sessions.
func (q *Quorum) answerAsk(ctx context.Context, from string, question []byte) ([]byte, error) {
	r := q.router.Load()
	if r == nil {
		return nil, errors.New("this node has no cluster yet")
	}
	return r.Answer(ctx, from, question)
}
