package node

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/starling-lb/starling/gossip"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/quorum"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards/meta"
)

// metBy is when a node has met all others that are there.
const metBy = time.Minute

// Members answers GET /v1/members. A node alone is its only member.
func (n *Node) Members() api.Members {
	c := n.cluster.Load()
	if c == nil {
		s := n.Status()
		return api.Members{Members: []api.Member{{
			ID: s.Node.ID, Name: s.Node.Name, Zone: n.cfg().Node.Zone, State: s.Node.State, Version: s.Node.Version, ConfigHash: s.ConfigHash,
			Self: true, Admin: n.AdminAddr(), Since: s.Node.Started, Agreed: s.Node.Agreed, Hosts: n.cfg().Shards.Host, Level: quorum.Level,
		}}}
	}
	ages, agreed := c.ReportAges(), n.agreedNodes()
	list := []api.Member{}
	for _, m := range c.Members() {
		age, ok := ages[m.ID]
		entry := memberOf(m, agreed[m.ID])
		if ok {
			seconds := age.Seconds()
			entry.ReportAge = &seconds
		}
		list = append(list, entry)
		delete(agreed, m.ID)
	}
	for id, a := range agreed { // gossip has forgotten it, or has not met it yet
		if a.State == meta.Dead || a.State != meta.Removed && time.Since(n.started) > metBy {
			list = append(list, api.Member{ID: id, Name: a.Name, Zone: a.Zone, State: backend.MemberDead, Agreed: standing(a), Hosts: a.Hosts, Level: a.Level})
		}
	}
	slices.SortFunc(list, func(a, b api.Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return api.Members{Members: list}
}

// memberOf is a member as gossip has it, and what is agreed about it.
func memberOf(m gossip.Member, agreed meta.Node) api.Member {
	admin, url := adminOf(m.Meta.Admin, m.Address.Addr())
	entry := api.Member{
		ID: m.ID, Name: m.Meta.Name, Address: m.Address.String(), Zone: m.Meta.Zone, State: m.State, Version: m.Meta.Version,
		ConfigHash: m.Meta.ConfigHash, RTT: m.RTT.Seconds(), UDPLost: m.UDPLost, Self: m.Self, Admin: admin, AdminURL: url, Since: m.Since,
		Agreed: standing(agreed), Hosts: m.Meta.Roles&gossip.Shards != 0, Level: m.Meta.Level,
	}
	if m.State == backend.MemberAlive && agreed.State == meta.Draining {
		entry.State = backend.MemberDraining
	}
	return entry
}

// agreedNodes is what is agreed about each node, by id.
func (n *Node) agreedNodes() map[string]meta.Node {
	all := map[string]meta.Node{}
	if q := n.quorum.Load(); q != nil && q.Map() != nil {
		for id, a := range q.Map().Nodes {
			all[id] = a
		}
	}
	return all
}

// configs counts the different configurations among the nodes that are alive.
func (n *Node) configs() int {
	hashes := map[string]bool{n.cfg().Hash(): true}
	if c := n.cluster.Load(); c != nil {
		for _, m := range c.Members() {
			if m.State != backend.MemberDead && m.State != backend.MemberLeft && !m.Self {
				hashes[m.Meta.ConfigHash] = true
			}
		}
	}
	return len(hashes)
}

// diskReady says that this node's disk has failed and that others are there whose
// disks work: traffic is better off with them. Where there are none, it is still
// carried.
func (n *Node) diskReady() error {
	q, c := n.quorum.Load(), n.cluster.Load()
	if q == nil || c == nil || q.Failed() == nil {
		return nil
	}
	for _, m := range c.Members() {
		if m.State == backend.MemberAlive && !m.Self && !m.Meta.Failed && !m.Meta.Draining {
			return fmt.Errorf("%w; other nodes are better off", q.Failed())
		}
	}
	return nil
}

// diskFailed has the others hear of it.
func (n *Node) diskFailed() {
	if c := n.cluster.Load(); c != nil {
		c.Update(func(m *gossip.Meta) { m.Failed = true })
	}
}
