package node

import (
	"context"
	"time"

	"github.com/starling-lb/starling/gossip"
	"github.com/starling-lb/starling/node/quorum"
	"github.com/starling-lb/starling/proxy/backend"
)

// What the other nodes are to this one: gossip spreads what the pools say, and
// tells the pools what the others say. A node alone has no cluster, and all of
// this does nothing.

// joinCluster makes this node one of several, once it serves: what it tells the
// others of itself is then known.
func (n *Node) joinCluster(ctx context.Context) error {
	if !n.cfg().Cluster.On() {
		return nil
	}
	self := gossip.Meta{
		Name: n.cfg().Node.Name, Zone: n.cfg().Node.Zone, Version: Version().Version, ConfigHash: n.cfg().Hash(),
		Cluster: n.clusterID(), Proxy: n.ProxyAddrs()[0], Admin: n.tellAdmin(), Level: quorum.Level, Expect: uint8(n.cfg().Cluster.BootstrapExpect),
		Draining: n.isAside(),
	}
	if n.cfg().Shards.Host {
		self.Roles |= gossip.Shards
	}
	hashes := map[string]string{} // gossip's own goroutine uses it
	cluster, err := gossip.New(n.cfg().Cluster.gossip(), gossip.Options{
		ID: n.dir.id, Dir: n.dir.path, Self: self,
		Logger: n.log.With("component", "gossip"), Metrics: &n.roll,
		Reports: n.reports, Paces: n.paces, Hear: n.hear, Changed: func(c gossip.Change) { n.memberChanged(hashes, c) },
		Listen: n.opt.ListenPeers, ListenPacket: n.opt.ListenPacket, Dial: n.opt.DialPeers,
	})
	if err != nil {
		return err
	}
	n.looked = map[string]bool{}
	n.cluster.Store(cluster)
	return cluster.Start(ctx)
}

// GossipAddr is where other nodes reach this one's gossip, its port resolved;
// empty for a node alone.
func (n *Node) GossipAddr() string {
	if c := n.cluster.Load(); c != nil {
		return c.Addr().String()
	}
	return ""
}

// nudge has the others hear soon what this node carries.
func (n *Node) nudge() {
	if c := n.cluster.Load(); c != nil {
		c.Nudge()
	}
}

func (n *Node) leaveCluster(ctx context.Context) error {
	if c := n.cluster.Load(); c != nil {
		return c.Stop(ctx)
	}
	return nil
}

// sayDraining tells the others that this node ends.
func (n *Node) sayDraining() {
	if c := n.cluster.Load(); c != nil {
		c.Update(func(m *gossip.Meta) { m.Draining = true })
	}
}

func (n *Node) reports() []backend.Report {
	var out []backend.Report
	now := time.Now()
	for _, p := range n.proxy.Pools() {
		out = append(out, p.Reports(now)...)
	}
	return out
}

// paces is how many requests a second begin here, by pool with sessions: who plans
// their moves wants to know.
func (n *Node) paces() map[string]float64 {
	out := make(map[string]float64)
	for _, p := range n.proxy.Pools() {
		if n.cfg().Pools[p.Name].Sticky != nil {
			out[p.Name] = p.Pace()
		}
	}
	return out
}

// hear gives the pools what the others say. While this node cannot trust its
// view of them, verdicts stay as they are.
func (n *Node) hear(news gossip.News) {
	c, now := n.cluster.Load(), time.Now()
	for _, id := range news.Looked {
		n.looked[id] = true
	}
	steady := c.Steady()
	for _, p := range n.proxy.Pools() {
		p.Hear(news.Elsewhere)
		p.HearPace(news.Paces[p.Name])
		for _, b := range p.Backends() {
			if steady && n.looked[b.ID] {
				_, checking := c.Represents(b.ID, p.Health().Representatives)
				p.Testify(b, now, witnesses(c.Said(b.ID)), checking)
			}
		}
	}
	if steady {
		clear(n.looked)
	}
}

func witnesses(said []gossip.Testimony) []backend.Witness {
	var out []backend.Witness
	for _, t := range said {
		w := backend.Witness{Node: t.Node, Looks: t.Looks}
		if !t.Heard.IsZero() {
			w.Heard = t.Heard.UnixNano()
		}
		out = append(out, w)
	}
	return out
}

// assigned tells whether this node checks the backend now: a few do for all, and
// half as often while streams get answers there.
func (n *Node) assigned(b *backend.Backend) bool {
	h := b.Pool().Health()
	if proven(b, h, time.Now()) {
		return false
	}
	c := n.cluster.Load()
	if c == nil {
		return true
	}
	return c.Assigned(b.ID, h.Representatives, max(h.Interval, h.DownInterval))
}

// counted is how many members there are, and how many of them are alive; those
// that left are none.
func (n *Node) counted() (members, alive int) {
	c := n.cluster.Load()
	if c == nil {
		return 1, 1
	}
	for _, m := range c.Members() {
		if m.State != backend.MemberLeft {
			members++
		}
		if m.State != backend.MemberLeft && m.State != backend.MemberDead {
			alive++
		}
	}
	return members, alive
}

// proven tells whether something came from a backend just now that was well when
// it was checked last, not long ago.
func proven(b *backend.Backend, h backend.HealthConfig, now time.Time) bool {
	looks := b.Pool().Looks(b)
	return now.Sub(time.Unix(0, b.Heard())) < h.Interval/2 && len(looks) > 0 && looks[0].Finding == backend.LookOK && now.Sub(looks[0].At) < 2*h.Interval
}
