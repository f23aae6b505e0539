package node

import (
	"context"
	"time"

	"github.com/starling-lb/starling/gossip"
	"github.com/starling-lb/starling/node/admin"
)

// A node that operators drain is set aside: it takes no new streams, and says so,
// until they take that back or the node ends. What runs goes on for as long as it
// needs, and replicas stay.

// DrainNode answers POST /v1/node/drain. It returns when new streams are turned away,
// after a notice as at the node's end, and leaderships are handed over.
func (n *Node) DrainNode(ctx context.Context) error {
	n.mu.Lock()
	if !n.ready || n.aside {
		defer n.mu.Unlock()
		if n.aside {
			return nil
		}
		return refuse(admin.Conflict, "this node is not up, or is about to end")
	}
	n.proxy.Announce() // before anybody hears that the node is not ready
	n.aside = true
	notice := n.polls.notice(time.Now(), time.Time{})
	n.mu.Unlock()
	n.log.Info("set aside: no new streams", "streams", n.proxy.InFlight(), "notice", notice)
	n.sayDraining()
	n.giveNotice(ctx, notice)
	n.mu.Lock()
	if n.aside && n.drain.IsZero() {
		n.proxy.Drain()
	}
	n.mu.Unlock()
	<-n.yield(ctx)
	return nil
}

// takeBack has a node that was set aside take streams again; false: it was not.
func (n *Node) takeBack() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.aside || !n.drain.IsZero() {
		return false
	}
	n.aside = false
	n.proxy.Undrain()
	if c := n.cluster.Load(); c != nil {
		c.Update(func(m *gossip.Meta) { m.Draining = false })
	}
	n.log.Info("no longer set aside")
	return true
}
