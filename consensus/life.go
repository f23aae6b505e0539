package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// cause is why a life ends.
type cause struct {
	kind causeKind
	err  error
}

type causeKind int

const (
	stopped causeKind = iota // by whoever owns the group
	renewed                  // it was stuck; the next begins at once
	parked                   // its disk failed; the next is tried later
	halted                   // an entry cannot be understood; there is no next
)

// life is one raft.Raft on a replica's logs, with all that belongs to it.
type life struct {
	g     *Group
	raft  *raft.Raft
	wire  *wire
	logs  *guard
	fsm   *machine
	batch batcher

	open   atomic.Uint64 // the last term of which an own entry is applied
	ending chan struct{} // closed when the life begins to end
	dead   chan struct{} // closed when all of Raft's goroutines are gone
	ended  chan struct{} // closed when our own are, too
	once   sync.Once
	tasks  sync.WaitGroup // own goroutines; ended comes after them

	seen *raft.Observer
	led  uint64 // the last term that was asked to be opened; watchLoop's

	mu        sync.Mutex    // guards what follows
	over      bool          // start takes no more
	hastening bool          // somebody waits to ask for a heartbeat
	hurried   time.Duration // when one was last asked for
}

// start runs a task that ended waits for; none once the life ends.
func (l *life) start(task func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.tasks.Go(task)
	}
	return !l.over
}

// begin starts a life, or leaves nothing behind.
func (g *Group) begin() (l *life, err error) {
	logs, err := g.o.Store.Open(g.key)
	if err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	l = &life{g: g, ending: make(chan struct{}), dead: make(chan struct{}), ended: make(chan struct{})}
	l.batch.l = l
	l.logs = &guard{Logs: logs, broken: g.report(l)}
	l.fsm = &machine{StateMachine: g.newMachine(), halt: func(err error) { g.report(l)(cause{halted, err}) }}
	door, err := g.o.Transport.Group(g.ID, g.name)
	if err != nil {
		logs.Close()
		return nil, err
	}
	l.wire = newWire(g, door, l.logs)
	if err := l.run(); err != nil {
		_ = l.wire.Close()
		logs.Close()
		return nil, err
	}
	return l, nil
}

// run makes the raft.Raft in a goroutine of its own: an unreadable log ends it,
// and a disk that does not come back holds it and nobody else.
func (l *life) run() error {
	type result struct {
		raft *raft.Raft
		err  error
	}
	done := make(chan result, 1)
	l.g.tasks.Go(func() {
		r := result{err: errors.New("the log cannot be read")}
		defer func() { done <- r }()
		r.raft, r.err = l.make()
	})
	over := time.NewTimer(l.g.birth)
	defer over.Stop()
	select {
	case r := <-done:
		if r.err != nil {
			return r.err
		}
		l.raft = r.raft
	case <-over.C:
		return l.abandon(func() *raft.Raft { return (<-done).raft }, fmt.Errorf("the disk has not answered for %v", l.g.birth))
	case <-l.g.ctx.Done():
		return l.abandon(func() *raft.Raft { return (<-done).raft }, ErrStopped)
	}
	l.seen = raft.NewObserver(l.g.observed, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.RaftState, raft.LeaderObservation:
			return true
		}
		return false
	})
	l.raft.RegisterObserver(l.seen)
	return nil
}

// abandon lets go of a raft.Raft in the making; what comes of it all the same is
// ended at once.
func (l *life) abandon(born func() *raft.Raft, why error) error {
	l.logs.Close() // ends a call that is parked
	l.g.tasks.Go(func() {
		if r := born(); r != nil {
			_ = r.Shutdown().Error() // always nil
		}
	})
	return why
}

func (l *life) make() (*raft.Raft, error) {
	g := l.g
	newest := uint64(0)
	if err := l.plant(); err != nil {
		return nil, err
	}
	snaps, err := g.snaps.List()
	if err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	if len(snaps) > 0 {
		newest = snaps[0].Index
		l.fsm.config.Store(snaps[0].ConfigurationIndex)
	}
	if err := l.logs.Align(newest); err != nil {
		return nil, err
	}
	if err := l.bootstrap(); err != nil {
		return nil, err
	}
	l.recall()
	if g.noCures.guard.Load() {
		return raft.NewRaft(g.raftConfig(), l.fsm, l.logs.Logs, l.logs.Logs, g.snaps, l.wire)
	}
	return raft.NewRaft(g.raftConfig(), l.fsm, l.logs, l.logs, g.snaps, l.wire)
}

// bootstrap writes the first configuration, once in a replica's time.
func (l *life) bootstrap() error {
	if len(l.g.founders) == 0 {
		return nil
	}
	var c raft.Configuration
	for _, node := range l.g.founders {
		if node == l.g.o.Node {
			node = l.g.name
		}
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(node), Address: raft.ServerAddress(node)})
	}
	used, err := raft.HasExistingState(l.logs, l.logs, l.g.snaps)
	switch {
	case err != nil:
		return err
	case !used:
		return raft.BootstrapCluster(l.g.raftConfig(), l.logs, l.logs, l.g.snaps, l.wire, c)
	case l.halfMade():
		return l.logs.StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(c)})
	}
	return nil
}

// halfMade tells whether a first configuration was begun, which Raft does by its
// term, and not written, since the process ended just then. Raft would take that
// for a replica that is in use, and wait for others for ever. No other way leads
// to term 1 with an empty log: the first leader has term 2.
func (l *life) halfMade() bool {
	term, err := l.logs.GetUint64([]byte("CurrentTerm"))
	last, err2 := l.logs.LastIndex()
	snaps, err3 := l.g.snaps.List()
	return errors.Join(err, err2, err3) == nil && term == 1 && last == 0 && len(snaps) == 0
}

func (g *Group) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(g.name)
	c.HeartbeatTimeout, c.ElectionTimeout = g.o.Timing.Heartbeat, g.o.Timing.Heartbeat
	c.LeaderLeaseTimeout = g.o.Timing.Lease
	c.CommitTimeout = g.o.Timing.Commit
	c.SnapshotInterval = g.o.Timing.Snapshot
	long := uint64(cmp.Or(g.o.LongLog, 4096))
	c.SnapshotThreshold, c.TrailingLogs = long, long/4
	c.ShutdownOnRemove = false
	c.NoLegacyTelemetry = true
	c.Logger = g.hlog
	if g.noCures.notify.Load() {
		c.NotifyCh = make(chan bool)
	}
	return c
}

// applied notes that an entry of that term, proposed here, is applied here.
func (l *life) applied(term uint64) {
	if l.open.Load() < term {
		l.open.Store(term) // one entry flies at a time
		l.wire.acks.kick()
		l.g.kick()
	}
}

// end begins to end the life, in the order in which nothing waits for another:
// commands get their answer, Raft is told, connections break, calls to the disk
// are let go, then all is waited for.
func (l *life) end(ctx context.Context, why error) {
	l.once.Do(func() {
		flying := l.batch.stop(why)
		select {
		case <-flying: // what is committed is answered before Raft forgets it
		case <-ctx.Done():
		case <-time.After(l.g.grace):
		}
		close(l.ending)
		l.mu.Lock()
		l.over = true
		l.mu.Unlock()
		l.raft.DeregisterObserver(l.seen)
		f := l.raft.Shutdown()
		if l.g.noCures.order.Load() {
			_ = f.Error()
		}
		_ = l.wire.Close()
		l.logs.Close()
		l.wire.acks.kick()
		go func() {
			_ = f.Error() // always nil
			close(l.dead)
			l.wire.door.serving.Wait()
			l.tasks.Wait()
			close(l.ended)
		}()
	})
	select {
	case <-l.ended:
	case <-ctx.Done():
	}
}

var _ raft.WithClose = (*wire)(nil)

// outcome waits for a future. Raft leaves those unanswered whose entries its state
// machine has not taken when it is shut down, and such a wait would never end. So
// it is told when nobody is left to answer: by a field that Raft has for this and
// sets in other futures, exported in a type that is not. TestUnanswered tells if
// it has gone. The outcome is then unknown.
func (l *life) outcome(f raft.Future) error {
	if over := reflect.Indirect(reflect.ValueOf(f)).FieldByName("ShutdownCh"); over.CanSet() {
		over.Set(reflect.ValueOf(l.dead))
	}
	return f.Error()
}
