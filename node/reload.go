package node

import (
	"context"
	"errors"
	"reflect"
	"strings"

	"github.com/starling-lb/starling/gossip"
	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// ReloadConfig says when the file is read again.
type ReloadConfig struct {
	Watch bool `yaml:"watch"` // when it has changed, and stands
}

// errNotUp says that a node reads no file now, whatever the file says.
var errNotUp = errors.New("this node is not up, or is draining; it changes nothing any more")

// Reload answers POST /v1/reload, SIGHUP, and a file that has changed: it reads the
// file again, and has in force what it says. Where anything is wrong with it,
// nothing changes.
func (n *Node) Reload(ctx context.Context) (api.Reloaded, error) {
	got, err := n.readAgain(ctx)
	if errors.Is(err, errNotUp) {
		err = refuse(admin.Conflict, "%v", err)
	}
	return got, err
}

// readAgain is Reload; it fails with errNotUp, or as a refusal.
func (n *Node) readAgain(ctx context.Context) (api.Reloaded, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !n.reloads.enter(cancel) {
		return api.Reloaded{}, errNotUp
	}
	defer n.reloads.leave()
	n.notifyReload()
	defer n.notify("READY=1")
	before := n.cfg().Hash()
	changed, err := n.reload(ctx)
	n.reloads.note(n.cfg().Hash(), err)
	if err != nil {
		return api.Reloaded{}, n.refused(err)
	}
	hash := n.cfg().Hash()
	if changed {
		n.log.Info("the configuration is reloaded", "hash", hash, "was", before, "proxy", n.ProxyAddrs())
		n.sayReload("configuration " + hash + " is in force")
	} else {
		n.notify("STATUS=configuration " + hash + " is in force") // and a fault that it had is gone
	}
	return api.Reloaded{ConfigHash: hash, Changed: changed}, nil
}

// refused says what keeps a configuration from being in force.
func (n *Node) refused(err error) error {
	var faults *FaultsError
	lines := []string{err.Error()}
	if errors.As(err, &faults) {
		lines = strings.Split(faults.Error(), "\n")
	}
	for _, line := range lines {
		n.log.Error("the configuration is not reloaded, and the one in force stays", "fault", line)
	}
	n.sayReload("the configuration in force stays: " + lines[0])
	return refuse(admin.Conflict, "the configuration in force stays: %s", strings.Join(lines, "\n"))
}

// reload tells whether another configuration is in force.
func (n *Node) reload(ctx context.Context) (changed bool, err error) {
	if n.opt.File == "" {
		return false, errors.New("this node was started without a file; write one, and start it with starling serve")
	}
	next, err := load(n.opt.File, n.checkFixed)
	if err != nil || reflect.DeepEqual(*n.cfg(), next) {
		return false, err
	}
	return true, n.become(ctx, next)
}

// become has another valid configuration in force, or fails and has changed
// nothing.
func (n *Node) become(ctx context.Context, next Config) error {
	were := n.attendants()
	beside := n.attend(next.Pools, were)
	early := beside.finders(were, false)
	if err := startFinders(ctx, early); err != nil { // new pools have their backends from the start
		return err
	}
	err := n.supply.relist(listed(next.Pools), func(pool string) bool { return next.Pools[pool].Sources.On() },
		func(lists map[string][]backend.Config) error { return n.commit(ctx, next, beside, lists) })
	if err != nil {
		for _, f := range early {
			f.Stop()
		}
		return err
	}
	n.relieve(ctx, were, beside)
	n.inherit() // a new pool may have a backend at which an older process has streams
	if c := n.cluster.Load(); c != nil {
		c.Update(func(m *gossip.Meta) { m.ConfigHash, m.Proxy = n.cfg().Hash(), n.ProxyAddrs()[0] })
	}
	return nil
}

// commit is the step of a reload that can fail, and after which it cannot.
func (n *Node) commit(ctx context.Context, next Config, beside attendants, lists map[string][]backend.Config) error {
	c := proxy.Config{Listeners: next.Listeners, Timeouts: next.Timeouts, Pools: map[string]proxy.PoolConfig{}}
	for name, pool := range next.Pools {
		pool.Backends = lists[name]
		c.Pools[name] = pool
	}
	if err := n.proxy.Reload(ctx, c); err != nil {
		return err
	}
	n.conf.Store(&next)
	for name, list := range lists {
		for _, b := range list {
			if next.Pools[name].Sticky != nil {
				n.homes.Store(b.ID, name) // it may have been another pool's
			}
		}
	}
	n.beside.Store(&beside)
	return nil
}

// relieve stops what runs beside no pool any more, and starts what is new.
func (n *Node) relieve(ctx context.Context, were, are attendants) {
	for _, f := range append(were.finders(are, false), were.finders(are, true)...) {
		f.Stop()
	}
	for _, r := range were.readers(are) {
		r.Stop()
	}
	for _, f := range are.finders(were, true) {
		if err := f.Start(ctx); err != nil { // ctx has ended, and with it the node
			n.log.Warn("backends are not looked for any more", "err", err)
		}
	}
	for _, r := range are.readers(were) {
		_ = r.Start(ctx) // it cannot fail
	}
}
