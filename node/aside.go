package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-lb/starling/gossip"
	"github.com/starling-lb/starling/node/admin"
)

// A node that operators drain is set aside: it takes no new streams, and says so,
// until they take that back, also over a restart. What runs goes on for as long as it
// needs. The cluster agrees on it, too: others lead what it led, and get its replicas
// where there are nodes for them.

// asideFile is in the data directory of a node that is set aside. The node is,
// whether or not the cluster can agree on it now.
const asideFile = "drained"

// restAgain has a node that was set aside before its start be so still.
func (n *Node) restAgain(context.Context) error {
	_, err := os.Stat(filepath.Join(n.dir.path, asideFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("is this node set aside? %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.aside, n.comeBack = true, func() {}
	n.proxy.Drain()
	n.log.Info("set aside as before its start; starling node undrain takes that back")
	return nil
}

// noteAside writes down whether operators have set this node aside.
func (n *Node) noteAside(aside bool) error {
	path := filepath.Join(n.dir.path, asideFile)
	if aside {
		return replaceFile(path, []byte("by starling node drain\n"))
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// agreeAside has the cluster know whether this node is set aside: one at a time, and as
// it is by then, so that of a drain and its end the last one counts.
func (n *Node) agreeAside(ctx context.Context) {
	n.agreeing.Lock()
	defer n.agreeing.Unlock()
	if q := n.quorum.Load(); q != nil && n.cfg().Cluster.On() {
		q.SetAside(ctx, n.isAside())
	}
}

// isAside tells whether operators have set this node aside.
func (n *Node) isAside() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.aside
}

// DrainNode answers POST /v1/node/drain. It returns when new streams are turned away,
// after a notice as at the node's end, and leaderships are handed over; or as soon as it
// is taken back.
func (n *Node) DrainNode(ctx context.Context) error {
	aside, notice, err := n.goAside(ctx)
	if err != nil || aside == nil {
		return err
	}
	n.log.Info("set aside: no new streams", "streams", n.proxy.InFlight(), "notice", notice)
	n.giveNotice(aside, notice)
	n.mu.Lock()
	if n.aside && n.drain.IsZero() {
		n.proxy.Drain()
	}
	n.mu.Unlock()
	<-n.yield(aside)
	n.agreeAside(ctx)
	if aside.Err() != nil && ctx.Err() == nil {
		return refuse(admin.Conflict, "the drain was taken back meanwhile")
	}
	return nil
}

// goAside has the node be not ready, and tells how long its notice is; aside ends with
// ctx, or when that is taken back. nil: it was set aside before.
func (n *Node) goAside(ctx context.Context) (aside context.Context, notice time.Duration, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.aside:
		return nil, 0, nil
	case !n.ready:
		return nil, 0, refuse(admin.Conflict, "this node is not up, or is about to end")
	}
	if err := n.noteAside(true); err != nil {
		return nil, 0, refuse(admin.Conflict, "it cannot be noted, and would be forgotten at a restart: %v", err)
	}
	n.proxy.Announce() // before anybody hears that the node is not ready
	aside, n.comeBack = context.WithCancel(ctx)
	n.aside = true
	n.sayDraining()
	return aside, n.polls.notice(time.Now(), time.Time{}), nil
}

// takeBack has a node that was set aside take streams again; false: it was not.
func (n *Node) takeBack() (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.aside || !n.drain.IsZero() {
		return false, nil
	}
	if err := n.noteAside(false); err != nil {
		return false, refuse(admin.Conflict, "it cannot be noted, and would be forgotten at a restart: %v", err)
	}
	n.aside = false
	n.comeBack()
	n.proxy.Undrain()
	if c := n.cluster.Load(); c != nil {
		c.Update(func(m *gossip.Meta) { m.Draining = false })
	}
	n.log.Info("no longer set aside")
	return true, nil
}
