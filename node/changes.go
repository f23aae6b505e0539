package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/consensus"
	"github.com/starling-lb/starling/gossip"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards"
	"github.com/starling-lb/starling/shards/meta"
)

// glanceEvery is how often a node looks for changes that nobody tells it of. Of
// several between two looks the last one is seen.
const glanceEvery = 200 * time.Millisecond

// changes finds what is new of leaders, of what is agreed, of pools and of this
// node's drain, and puts it into the journal. One goroutine uses it.
type changes struct {
	n       *Node
	leaders map[int]consensus.State
	agreed  *meta.Map
	pools   map[string]poolSight
	moves   map[string]shards.Moves
	phase   api.DrainPhase
	elders  map[uint64]api.Elder // by boot
	unready string               // why the node shall get no traffic; "": it may
	done    chan struct{}
}

// poolSight is a pool as it was when it was looked at.
type poolSight struct {
	policy, rest string
	backends     map[string]int // weights
}

// watchChanges begins to look; what it finds at first is no change.
func (n *Node) watchChanges(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	c := &changes{n: n, done: make(chan struct{}), pools: n.poolSights(), moves: n.moves(), unready: "the node is starting"}
	n.looking = func() { cancel(); <-c.done }
	go c.lookLoop(ctx)
	return nil
}

func (c *changes) lookLoop(ctx context.Context) {
	defer close(c.done)
	tick := time.NewTicker(glanceEvery)
	defer tick.Stop()
	for {
		c.look()
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.look() // a drain's last phase
			return
		}
	}
}

func (c *changes) look() {
	c.lookAtDrain()
	c.lookAtReadiness()
	c.lookAtElders()
	c.lookAtPools()
	if q := c.n.quorum.Load(); q != nil {
		c.lookAtLeaders(q.Leaders())
		c.lookAtMap(q.Map())
		c.lookAtMoves(c.n.moves())
	}
}

func (c *changes) lookAtDrain() {
	var phase api.DrainPhase
	why := "the drain is taken back"
	if d := c.n.drainInfo(); d != nil {
		phase, why = d.Phase, fmt.Sprintf("%d streams run, %d have ended", c.n.proxy.InFlight(), d.Finished)
	}
	if phase != c.phase {
		c.n.journal.Add(api.Event{Kind: api.DrainEvent, Node: c.n.cfg().Node.Name, From: string(c.phase), To: string(phase), Reason: why})
	}
	c.phase = phase
}

func (c *changes) lookAtReadiness() {
	was, is := c.unready, text(c.n.unready())
	c.unready = is
	if (was == "") == (is == "") {
		return
	}
	e := api.Event{Kind: api.ReadyEvent, Node: c.n.cfg().Node.Name, From: "ready", To: "not_ready", Reason: is}
	if is == "" {
		e.From, e.To, e.Reason = e.To, e.From, "it may get traffic"
	}
	c.n.journal.Add(e)
}

// lookAtElders tells which older process of the node has ended. One that is not heard
// just now lives by its lock.
func (c *changes) lookAtElders() {
	was, living := c.elders, c.n.living()
	c.elders = map[uint64]api.Elder{}
	list, _, _ := c.n.elders()
	for _, e := range list {
		c.elders[e.Boot] = e
	}
	for boot, e := range was {
		if _, heard := c.elders[boot]; !heard && slices.Contains(living, boot) {
			c.elders[boot] = e
		} else if !heard {
			c.n.sayUpgrade("", "", fmt.Sprintf("process %d (%s), which carried the streams from before the upgrade, has ended", e.PID, e.Version))
		}
	}
}

func (n *Node) poolSights() map[string]poolSight {
	all := map[string]poolSight{}
	for _, p := range n.proxy.Pools() {
		at := p.Placement()
		s := poolSight{policy: at.Policy, rest: "off", backends: map[string]int{}}
		if at.Second != "" {
			s.policy += fmt.Sprintf(", %.0f%% %s", 100*at.Share, at.Second)
		}
		if n.rebalances(p.Name) {
			s.rest = "on"
		}
		for _, b := range p.Backends() {
			s.backends[b.ID] = b.Terms().Weight
		}
		all[p.Name] = s
	}
	return all
}

func (c *changes) lookAtPools() {
	was, is := c.pools, c.n.poolSights()
	c.pools = is
	for _, name := range slices.Sorted(maps.Keys(is)) {
		tell := func(backend, from, to, what string) {
			c.n.journal.Add(api.Event{Kind: api.PoolEvent, Pool: name, Backend: backend, From: from, To: to, Reason: what})
		}
		old, known := was[name]
		now := is[name]
		if !known {
			tell("", "", now.policy, "the pool is new")
			continue
		}
		if old.policy != now.policy {
			tell("", old.policy, now.policy, "the policy has changed")
		}
		if old.rest != now.rest {
			tell("", old.rest, now.rest, "the moving of sessions to even out load is "+now.rest)
		}
		compareBackends(old.backends, now.backends, tell)
	}
	for name := range was {
		if _, ok := is[name]; !ok {
			c.n.journal.Add(api.Event{Kind: api.PoolEvent, Pool: name, From: was[name].policy, Reason: "the pool is gone"})
		}
	}
}

func compareBackends(was, is map[string]int, tell func(backend, from, to, what string)) {
	for _, id := range slices.Sorted(maps.Keys(is)) {
		switch old, known := was[id]; {
		case !known:
			tell(id, "", fmt.Sprint(is[id]), "the backend is new")
		case old != is[id]:
			tell(id, fmt.Sprint(old), fmt.Sprint(is[id]), "the weight has changed")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(was)) {
		if _, ok := is[id]; !ok {
			tell(id, fmt.Sprint(was[id]), "", "the backend is gone from the pool")
		}
	}
}

func (c *changes) lookAtLeaders(now map[int]consensus.State) {
	was := c.leaders
	c.leaders = now
	for _, shard := range slices.Sorted(maps.Keys(now)) {
		old, is := was[shard], now[shard]
		if old.Leader == is.Leader && (is.Leader == "" || old.Term == is.Term) {
			continue
		}
		why := fmt.Sprintf("term %d", is.Term)
		switch {
		case is.Fault != nil:
			why = is.Fault.Error()
		case is.Leader == "":
			why = "no leader is known since " + fmt.Sprintf("term %d", old.Term)
		}
		c.n.journal.Add(api.Event{Kind: api.LeaderEvent, Shard: &shard, From: c.n.calls(old.Leader), To: c.n.calls(is.Leader), Reason: why})
	}
}

// lookAtMap tells what the cluster has agreed on anew: of its nodes, and what is
// done to its shards.
func (c *changes) lookAtMap(m *meta.Map) {
	was := c.agreed
	if c.agreed = m; m == nil || m == was {
		return
	}
	if was == nil {
		was = &meta.Map{}
	}
	for _, id := range slices.Sorted(maps.Keys(m.Nodes)) {
		if old, is := nodeText(was.Nodes[id]), nodeText(m.Nodes[id]); old != is {
			c.n.journal.Add(api.Event{Kind: api.NodeEvent, Node: c.n.calls(id), From: old, To: is, Reason: "as the cluster has agreed"})
		}
	}
	for i, s := range m.Shards {
		var old meta.Shard
		if i < len(was.Shards) {
			old = was.Shards[i]
		}
		if from, to := stepText(old), stepText(s); from != to && len(was.Shards) > 0 {
			c.n.journal.Add(api.Event{Kind: api.StepEvent, Shard: &i, From: from, To: to, Reason: c.stepReason(old, s)})
		}
	}
}

func nodeText(n meta.Node) string {
	if n.Leaving {
		return "leaving"
	}
	return string(n.State)
}

func stepText(s meta.Shard) string {
	if s.Step == nil {
		return ""
	}
	return string(s.Step.Kind)
}

func (c *changes) stepReason(old, s meta.Shard) string {
	if s.Step != nil {
		return strings.TrimSpace(c.n.calls(s.Step.Node) + ": " + s.Step.Reason)
	}
	var nodes []string
	for _, r := range s.Replicas {
		nodes = append(nodes, c.n.calls(r.Node))
	}
	return "done; its replicas are on " + strings.Join(nodes, ", ")
}

// calls is what people call a node.
func (n *Node) calls(id string) string {
	if q := n.quorum.Load(); q != nil && id != "" {
		return q.Name(id)
	}
	return id
}

// moves is what became of sessions in the shards that this node leads.
func (n *Node) moves() map[string]shards.Moves {
	if r := n.router(); r != nil {
		return r.Moves()
	}
	return nil
}

func (c *changes) lookAtMoves(now map[string]shards.Moves) {
	was := c.moves
	c.moves = now
	for _, pool := range slices.Sorted(maps.Keys(now)) {
		for _, e := range []struct {
			n       int64
			to, why string
		}{
			{now[pool].Done - was[pool].Done, "done", "they live on other backends from their next turns on"},
			{now[pool].Cancelled - was[pool].Cancelled, "cancelled", "their turns went on for too long, or a node did not answer in time: they stay"},
			{now[pool].Rebound - was[pool].Rebound, "rebound", "their backend is gone: they live elsewhere at once"},
		} {
			if e.n > 0 {
				c.n.journal.Add(api.Event{Kind: api.MoveEvent, Pool: pool, Sessions: e.n, To: e.to, Reason: e.why})
			}
		}
	}
}

// memberChanged hears of the members from gossip, one change at a time.
func (n *Node) memberChanged(hashes map[string]string, c gossip.Change) {
	m := c.Member
	if hash := hashes[m.ID]; hash != "" && hash != m.Meta.ConfigHash && c.Was == m.State {
		n.journal.Add(api.Event{Kind: api.MemberEvent, Node: m.Meta.Name, From: string(c.Was), To: string(m.State), Reason: "its configuration is " + m.Meta.ConfigHash + " now, it was " + hash})
	}
	if m.State == backend.MemberLeft || m.State == backend.MemberDead {
		delete(hashes, m.ID)
	} else {
		hashes[m.ID] = m.Meta.ConfigHash
	}
	if c.Was != m.State {
		n.journal.Add(api.Event{Kind: api.MemberEvent, Node: m.Meta.Name, From: string(c.Was), To: string(m.State), Reason: memberReason(m)})
	}
}

// memberReason is what a change of a member's state comes from.
func memberReason(m gossip.Member) string {
	at := m.Address.String()
	switch m.State {
	case backend.MemberSuspect:
		return at + " does not answer a member's pings"
	case backend.MemberDead:
		return at + " has not answered, nor contradicted those who said so"
	case backend.MemberLeft:
		return "it said that it leaves"
	case backend.MemberDraining:
		return "it says that it drains"
	}
	return at + " answers"
}
