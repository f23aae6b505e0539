package node

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/starling-lb/starling/gossip"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/quorum"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards"
	"github.com/starling-lb/starling/shards/meta"
)

// What the nodes agree on is quorum's matter; here it gets to know the other
// nodes, and the admin API what it knows. A node alone without sessions has
// nothing to agree on, and all of this does nothing.

// lookAround is how long a node that would found a cluster of its own asks its
// seeds first.
const lookAround = 5 * time.Second

// agrees tells whether this node has anything to agree on.
func (n *Node) agrees() bool { return n.cfg().Cluster.On() || n.sticks() }

// sticks tells whether a pool has sessions.
func (n *Node) sticks() bool {
	for _, p := range n.cfg().Pools {
		if p.Sticky != nil {
			return true
		}
	}
	return false
}

// remember reads what an earlier run has left, before gossip says whose this
// node is, and opens what only one process can have.
func (n *Node) remember(ctx context.Context) error {
	if !n.agrees() {
		return nil
	}
	rules := newRules(n)
	o := quorum.Options{
		Self: quorum.Peer{ID: n.dir.id, Name: n.cfg().Node.Name, Zone: n.cfg().Node.Zone}, Dir: n.dir.path, Config: n.cfg().Shards,
		Log: n.log.With("component", "quorum"), Metrics: &n.roll, Dial: n.opt.DialPeers, Listen: n.opt.ListenPeers,
		Pools: planned{n}, Rules: rules, Fates: rules, Elders: n.living, Disk: n.opt.Disk, Now: n.opt.Now, LongLog: n.opt.LongLog,
	}
	if c := n.cfg().Cluster; c.On() {
		o.RPC, o.Expect, o.Around = c.rpc(), c.BootstrapExpect, around{n}
		o.Names, o.Changed, o.Failed, o.Aside = n.named, n.agreedOn, n.diskFailed, n.isAside()
		o.Look, o.Order = n.lookedAt, n.toldTo
		if len(c.Seeds) > 0 {
			o.Wait, o.Unheard = lookAround, n.unheard
		}
	}
	q, err := quorum.New(o)
	if err != nil {
		return err
	}
	n.quorum.Store(q)
	return q.Open(ctx)
}

func (n *Node) agree(ctx context.Context) error {
	if q := n.quorum.Load(); q != nil {
		return q.Start(ctx)
	}
	return nil
}

// fileTime is how long the disk may take for what is written when the node ends.
const fileTime = 10 * time.Second

func (n *Node) disagree(ctx context.Context) error {
	q := n.quorum.Load()
	if q == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fileTime)
	defer cancel()
	return q.Stop(ctx)
}

// yield hands over what this node leads; the channel is closed when it has.
func (n *Node) yield(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if q := n.quorum.Load(); q != nil {
			q.Yield(ctx)
		}
	}()
	return done
}

// RPCAddr is where other nodes reach this one's calls, its port resolved; empty
// for a node alone.
func (n *Node) RPCAddr() string {
	if q := n.quorum.Load(); q != nil && n.cfg().Cluster.On() {
		return q.Addr().String()
	}
	return ""
}

// clusterID is the cluster's id; "": there is none yet.
func (n *Node) clusterID() string {
	if q := n.quorum.Load(); q != nil {
		return q.Cluster()
	}
	return ""
}

// unheard are the seeds that do not answer.
func (n *Node) unheard() []string {
	if c := n.cluster.Load(); c != nil {
		return c.Unheard()
	}
	return n.cfg().Cluster.Seeds
}

// around is the other nodes as gossip knows them.
type around struct{ n *Node }

var _ quorum.Around = around{}

// Peers are all that gossip knows, this node among them.
func (a around) Peers() (out []quorum.Peer) {
	c := a.n.cluster.Load()
	if c == nil {
		return nil
	}
	for _, m := range c.Members() {
		if m.State == backend.MemberLeft {
			continue
		}
		out = append(out, quorum.Peer{
			ID: m.ID, Name: m.Meta.Name, Zone: m.Meta.Zone, RPC: m.Meta.RPC, Cluster: m.Meta.Cluster, Boot: m.Meta.Boot, Level: m.Meta.Level,
			Hosts: m.Meta.Roles&gossip.Shards != 0, Alive: m.State != backend.MemberDead, Ends: m.Meta.Draining, Failed: m.Meta.Failed,
			Expect: int(m.Meta.Expect), Sees: int(m.Meta.Sees), Generation: m.Meta.Generation,
		})
	}
	return out
}

// Tell has gossip say what is new.
func (a around) Tell(note quorum.Notice) {
	c := a.n.cluster.Load()
	if c == nil {
		return
	}
	c.Update(func(m *gossip.Meta) {
		m.RPC, m.Cluster, m.Sees, m.Generation = a.reached(c, note.RPC), note.Cluster, uint8(note.Sees), note.Generation
	})
}

// reached is the address at which others reach this node's calls: at the host
// that they reach gossip at, unless cluster.rpc names one of its own.
func (a around) reached(c *gossip.Cluster, listens net.Addr) string {
	at, err := netip.ParseAddrPort(listens.String())
	if err != nil {
		return ""
	}
	host := at.Addr().Unmap()
	if host.IsUnspecified() || a.n.cfg().Cluster.Advertise != "" {
		host = c.Addr().Addr()
	}
	return net.JoinHostPort(host.String(), strconv.Itoa(int(at.Port())))
}

// ready says why the sessions of this node cannot be kept; nil: they can, or it
// has none.
func (n *Node) sessionsReady() error {
	q := n.quorum.Load()
	switch {
	case q == nil || !n.sticks():
		return nil
	case q.Map() == nil:
		return fmt.Errorf("there is no cluster yet that keeps sessions: %s", q.Waits())
	case q.Place() != "":
		return fmt.Errorf("the other nodes know this one at %s, and hear nothing of it from elsewhere: it has just moved, or its data directory is a copy", q.Place())
	}
	return nil
}

// agreed fills in what a status says of the cluster.
func (n *Node) agreed(s *api.Status) {
	s.Cluster.ConfigHashes = n.configs()
	q := n.quorum.Load()
	if q == nil {
		return
	}
	s.Cluster.ID, s.Cluster.Waits, s.Cluster.Paused = q.Cluster(), q.Waits(), q.Pauses()
	s.Shards.Count, s.Shards.Led, s.Shards.WithoutLeader, s.Cluster.MetaQuorum = q.Led()
	s.Shards.Steps, s.Shards.Still = q.Steps()
	if m := q.Map(); m != nil {
		s.Cluster.Revision, s.Cluster.Level, s.Node.Agreed = m.Revision, m.Level, standing(m.Nodes[n.dir.id])
	}
}

// standing is what is agreed about a node, in the API's words.
func standing(n meta.Node) api.Agreed {
	if n.State == meta.Draining && n.Leaving {
		return api.LeavingNode
	}
	return api.Agreed(n.State)
}

// Shards answers GET /v1/shards.
func (n *Node) Shards(ctx context.Context) api.ShardList {
	list := api.ShardList{Shards: []api.Shard{}}
	q := n.quorum.Load()
	if q == nil {
		return list
	}
	states := n.memberStates()
	for _, s := range q.Shards(ctx) {
		list.Shards = append(list.Shards, shardOf(s, q.Name, states))
	}
	return list
}

func shardOf(s quorum.Shard, name func(string) string, states map[string]backend.MemberState) api.Shard {
	entry := api.Shard{
		ID: int(s.ID), Incarnation: s.Incarnation, Leader: name(s.Leader), Term: s.Term, LastIndex: s.LastIndex, Applied: s.Applied,
		Sessions: s.Sessions, Replicas: []api.Replica{}, LeaderID: s.Leader, Phase: string(s.Phase), Here: digests(s),
	}
	for _, r := range s.Replicas {
		entry.Replicas = append(entry.Replicas, api.Replica{
			Node: name(r.Node), ID: r.Node, State: states[r.Node], Role: role(s, r), Match: r.Match, Lag: r.Lag,
		})
	}
	if s.Step != nil {
		entry.Step = &api.ShardStep{
			Kind: string(s.Step.Kind), Node: name(s.Step.Node), NodeID: s.Step.Node, Reason: s.Step.Reason,
			Age: s.Standing.For.Seconds(), Waits: s.Standing.Waits, Still: s.Standing.Still,
		}
	}
	return entry
}

// digests are those of this node's own replica, after the form that they have. A mark is
// what there was before its entry.
func digests(s quorum.Shard) []api.Digest {
	all, form := []api.Digest{}, shards.DigestForm
	if s.ID == 0 {
		form = meta.DigestForm
	}
	add := func(applied, digest uint64) {
		all = append(all, api.Digest{Applied: applied, Digest: fmt.Sprintf("%d-%016x", form, digest)})
	}
	for _, m := range s.Marks {
		add(m.Index-1, m.Digest)
	}
	if s.Here.Index > 0 {
		add(s.Here.Index, s.Here.Digest)
	}
	return all
}

// memberStates is how each node is, by id.
func (n *Node) memberStates() map[string]backend.MemberState {
	states := map[string]backend.MemberState{}
	for _, m := range n.Members().Members {
		states[m.ID] = m.State
	}
	return states
}

func role(s quorum.Shard, r quorum.Replica) api.ReplicaRole {
	switch {
	case r.Wanted:
		return api.WantedRole
	case r.Node == s.Leader:
		return api.LeaderRole
	case r.Voter:
		return api.VoterRole
	}
	return api.NonvoterRole
}

var _ proxy.Sessions = sessions{}
