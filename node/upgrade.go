package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/handover"
	"github.com/starling-lb/starling/node/quorum"
)

// An upgrade has another process of the same program, or of what is by now at its
// path, become this node, with its sockets, directory and part in the cluster. This
// one goes on as its elder until its last stream ends. Until the very end it can take
// all back, and does so where the other one fails.

const (
	startTime = time.Minute      // for the new process to read its configuration and find its backends
	openTime  = 30 * time.Second // for it to open what it took over, and be as this one was
)

// upgrade is what a node keeps of one; the zero value has seen none.
type upgrade struct {
	one  sync.Mutex // held by the upgrade that runs, and by Stop
	mu   sync.Mutex // guards what follows
	end  context.CancelFunc
	over bool // the node stops: none begins any more

	trials []trial // that were under way when this one let go

	lives []uint64 // boots of this process that were undone and go on until their turns end

	startTime, openTime, mute time.Duration // 0: the usual

	heir *handover.Heir     // that is the node now
	link *handover.Link     // to whoever is the node by now
	stay *os.File           // says that this process lives
	boot uint64             // as which boot of the node
	told context.CancelFunc // ends the telling
	done sync.WaitGroup     // of the telling, and of what outlasts an upgrade that was undone
	from time.Time          // when this one let go
	gone time.Time          // when the other one became the node; set before Succeeded is closed

	until time.Time // when this one cuts what it still carries; zero: never. Node.mu guards it
}

// own are the boots under which this process is an elder to itself.
func (u *upgrade) own() []uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.lives)
}

func (u *upgrade) muteTime() time.Duration { return cmp.Or(u.mute, elderMute) }

// Succeeded is closed once another process has become this node: it is to stop, and
// carries what it carries to the end.
func (n *Node) Succeeded() <-chan struct{} { return n.succeeded }

// HandedOver tells whether Succeeded is closed.
func (n *Node) HandedOver() bool {
	select {
	case <-n.succeeded:
		return true
	default:
		return false
	}
}

// Upgrade answers POST /v1/upgrade, and SIGUSR2. It returns when the other process
// takes connections in, or with all as it was.
func (n *Node) Upgrade(ctx context.Context) (api.Upgraded, error) {
	if n.opt.Program.Path == "" {
		return api.Upgraded{}, refuse(admin.Conflict, "this node is not a process of its own; start it with starling serve")
	}
	if err := mayBeFollowed(os.Getpid()); err != nil {
		return api.Upgraded{}, err
	}
	u := &n.upgrade
	if !u.one.TryLock() {
		return api.Upgraded{}, refuse(admin.Conflict, "an upgrade is under way already")
	}
	defer u.one.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := n.mayUpgrade(cancel); err != nil {
		return api.Upgraded{}, err
	}
	n.endReloads()
	n.supply.freeze(true)
	began := time.Now()
	n.log.Info("upgrading", "program", n.opt.Program.Path, "streams", n.proxy.InFlight())
	n.sayUpgrade("", "", fmt.Sprintf("process %d has %s started, to take over", os.Getpid(), n.opt.Program.Path))
	waited, err := n.handOver(ctx)
	if err != nil {
		n.supply.freeze(false)
		n.beginReloads()
		n.log.Error("the upgrade failed, and this process goes on as before", "err", err)
		n.sayUpgrade("", "", fmt.Sprintf("the upgrade failed, and the node goes on as before: %v", err))
		return api.Upgraded{}, refuse(admin.Conflict, "the upgrade failed, and the node goes on as before: %v", err)
	}
	got := api.Upgraded{
		PID: u.heir.PID(), Version: u.heir.Version, Took: time.Since(began).Seconds(), Waited: waited.Seconds(), Streams: n.proxy.InFlight(),
	}
	n.log.Info("another process is the node now", "pid", got.PID, "version", got.Version, "took", time.Since(began).Round(time.Millisecond),
		"waited", waited.Round(time.Millisecond), "streams", got.Streams)
	n.notify(fmt.Sprintf("MAINPID=%d", got.PID), "READY=1", "STATUS=upgraded")
	n.sayUpgrade(Version().Version, got.Version, fmt.Sprintf("process %d is the node now; %d carries %d streams to their end", got.PID, os.Getpid(), got.Streams))
	u.gone = time.Now()
	close(n.succeeded)
	n.passReload()
	return got, nil
}

// passTime is how long after an upgrade a supervisor may take this process for the node.
const passTime = 2 * time.Second

// PassEnd has the process that is the node end, after Succeeded, where whoever asked this
// one to cannot have known of it: a supervisor has only just been told. false: it can.
func (n *Node) PassEnd() bool {
	if n.opt.Notify == "" || time.Since(n.upgrade.gone) > passTime {
		return false // one that ends all processes of a service has told the other, too
	}
	n.upgrade.heir.End()
	return true
}

// mayBeFollowed refuses where the new process would end with this one.
func mayBeFollowed(pid int) error {
	if pid == 1 {
		return refuse(admin.Conflict, "this process is the first of its container, which ends with it, and the new process too; replace the container instead")
	}
	return nil
}

// passReload has the new process read its configuration again where somebody has asked
// this one to since it reads none: the other one may have read it before.
func (n *Node) passReload() {
	select {
	case <-n.reloads.soon:
		n.upgrade.heir.Reload()
	default:
	}
}

// mayUpgrade notes how an upgrade is given up, or says why there is to be none.
func (n *Node) mayUpgrade(end context.CancelFunc) error {
	n.mu.Lock()
	ready := n.ready
	n.mu.Unlock()
	u := &n.upgrade
	u.mu.Lock()
	defer u.mu.Unlock()
	if !ready || u.over || n.HandedOver() {
		return refuse(admin.Conflict, "this node is not up, or is about to end")
	}
	u.end = end
	return nil
}

// endUpgrades returns when no upgrade runs, or will any more.
func (n *Node) endUpgrades() {
	u := &n.upgrade
	u.mu.Lock()
	u.over = true
	if u.end != nil {
		u.end()
	}
	u.mu.Unlock()
	u.one.Lock()
	defer u.one.Unlock()
}

// handOver tells for how long nobody took connections in.
func (n *Node) handOver(ctx context.Context) (waited time.Duration, err error) {
	sockets, peers, err := n.share()
	if err != nil {
		return 0, err
	}
	spare := handover.NewSockets(peers)
	defer func() { _ = spare.Close() }()
	heir, err := handover.Start(n.opt.Program, n.dir.lock, append(sockets, peers...))
	handover.NewSockets(sockets).Close() // the new process has them
	if err != nil {
		return 0, err
	}
	limit := cmp.Or(n.upgrade.startTime, startTime)
	soon, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the new process was not ready to begin within %v", limit))
	defer cancel()
	if err := heir.AwaitTake(soon); err != nil {
		return 0, heir.Undo(err)
	}
	<-n.yield(ctx)
	began := time.Now()
	if err := n.letGo(ctx); err != nil {
		err = heir.Undo(err)
		return 0, errors.Join(err, n.takeAllBack(spare))
	}
	limit = cmp.Or(n.upgrade.openTime, openTime)
	soon, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("the new process did not serve within %v", limit))
	defer cancel()
	if err = n.cede(soon, heir); err != nil {
		err = heir.Undo(err)
		return 0, errors.Join(err, n.takeAllBack(spare))
	}
	n.upgrade.heir = heir
	if err := n.dir.close(); err != nil { // or the next one, if the heir ends, would find it locked
		n.log.Error("the data directory may stay locked until this process ends", "err", err)
	}
	n.upgrade.done.Go(n.passTurns)
	return time.Since(began), nil
}

// cede has the heir be the node; until it has heard the last word it takes nobody in.
func (n *Node) cede(ctx context.Context, heir *handover.Heir) error {
	if err := heir.Yours(n.bequeath()); err != nil {
		return err
	}
	if err := heir.AwaitReady(ctx); err != nil {
		return err
	}
	return heir.Go()
}

// share makes a share of every socket that listens: for clients, and for other nodes.
func (n *Node) share() (clients, peers []handover.Socket, err error) {
	share := func(to *[]handover.Socket, network, address string, of any) {
		if err != nil {
			return
		}
		var s handover.Socket
		if s, err = handover.Share(network, address, of); err == nil {
			*to = append(*to, s)
		}
	}
	for _, s := range n.proxy.Sockets() {
		share(&clients, "tcp", s.Address, s.Listener)
	}
	share(&clients, "tcp", n.cfg().Admin.Address, n.admin.Socket())
	for _, s := range n.peers.all() {
		share(&peers, s.network, s.address, s.of)
	}
	if err != nil {
		handover.NewSockets(append(clients, peers...)).Close()
		return nil, nil, fmt.Errorf("hand over: %w", err)
	}
	return clients, peers, nil
}

// letGo has this process do nothing in the node's name any more but carry its
// streams. Whoever connects waits from here on, and so does who begins a turn.
func (n *Node) letGo(ctx context.Context) error {
	if err := errors.Join(n.proxy.Pause(), n.admin.Pause()); err != nil {
		return err
	}
	n.holdTurns()
	boot, q := uint64(time.Now().UnixMicro()), n.quorum.Load()
	if q != nil {
		boot = q.Boot()
	}
	u := &n.upgrade
	var err error
	if u.stay, err = handover.Stay(n.dir.path, boot); err != nil {
		return err
	}
	u.boot, u.link = boot, handover.NewLink(n.dir.path, boot)
	n.links.Load().Stop() // the next one there is the other's
	n.tell()
	now, cancel := context.WithCancel(ctx)
	cancel()
	err = n.leaveCluster(now) // without a word: the node does not leave
	if q != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fileTime)
		defer cancel()
		err = errors.Join(err, q.Release(ctx, beyond{n, q, u.link}))
	}
	return err
}

// takeAllBack undoes letGo, as far as it got.
func (n *Node) takeAllBack(peers *handover.Sockets) error {
	err := error(nil)
	if n.upgrade.stay != nil {
		err = n.becomeAgain(peers)
	}
	n.passTurns()
	n.proxy.Resume()
	n.admin.Resume()
	if err != nil {
		return fmt.Errorf("and what was let go of cannot be had again; start this node anew: %w", err)
	}
	return nil
}

// becomeAgain takes back what another process of the node may have had meanwhile. It
// is another life of the node all the same; the one before goes on until its turns end.
func (n *Node) becomeAgain(peers *handover.Sockets) error {
	u, before := &n.upgrade, n.quorum.Load()
	u.told()
	n.spare.Store(peers)
	n.peers.forget()
	n.roll.clear()
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	u.mu.Lock()
	u.lives = append(u.lives, u.boot)
	u.mu.Unlock()
	n.hostElders()
	stay, boot := u.stay, u.boot
	u.stay = nil
	u.done.Go(func() {
		n.outlast(before, stay)
		u.mu.Lock()
		defer u.mu.Unlock()
		u.lives = slices.DeleteFunc(u.lives, func(b uint64) bool { return b == boot })
	})
	if err := n.remember(ctx); err != nil {
		return err
	}
	if err := n.joinCluster(ctx); err != nil {
		return err
	}
	return n.agree(ctx)
}

// outlast ends a life of before an upgrade that was undone once its turns have
// ended, or the node does.
func (n *Node) outlast(q *quorum.Quorum, stay *os.File) {
	defer handover.Depart(stay)
	if q == nil {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for q.Turns() > 0 {
		select {
		case <-tick.C:
			continue
		case <-n.carried:
		}
		break
	}
	ctx, cancel := context.WithTimeout(context.Background(), fileTime)
	defer cancel()
	_ = q.Stop(ctx) // what it cannot say any more is found out
}
