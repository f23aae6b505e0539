package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/starling-lb/starling/consensus/store"
	"github.com/starling-lb/starling/consensus/transport"
)

// Spec says which replica to run.
type Spec struct {
	ID       transport.GroupID
	Life     uint64   // grows when the replica was deleted here and comes back; a part of its Name
	Founders []string // nodes of the first configuration; only where the group is made, and the same everywhere
	Seeds    []Seed   // where the group is made: what it begins with, the first that has anything
	Remake   func()   // where the group is made anew: changes what Machine returned last, after the seeds are read, and before the group begins with it

	// Memory, if set, is told by Open all that an earlier run of the replica has left,
	// committed or not: it may serve as a hint until there is a leader.
	Memory StateMachine

	// Machine returns an empty state machine. It is called again when a watchdog
	// starts the replica anew: the log tells it everything once more. The last one
	// gets no call by then, so it may be the same, emptied.
	Machine func() StateMachine

	// Changed, if set, hears of every change of leader, term or condition. It
	// gets the latest state, not each one, from a goroutine of the group, and may
	// take its time: Raft never waits for it.
	Changed func(State)
}

// State is what a replica is at a moment.
type State struct {
	Leader string // a node's id; "": none is known
	Term   uint64
	Led    bool  // by this node
	Open   bool  // and an entry of this term is applied here, so that it may answer
	Fault  error // why it does not run; nil: it does
}

// Group is one replica of one shard. Its methods may be called at any time, also
// between two lives.
type Group struct {
	ID transport.GroupID

	o          *Options
	log        *slog.Logger
	hlog       hclog.Logger
	key        store.Key
	name       string // in the group
	founders   []string
	seeds      []Seed
	remake     func()
	memory     StateMachine // until it is told
	newMachine func() StateMachine
	changed    func(State)
	snaps      raft.SnapshotStore

	inFlight int           // RPCs per peer: 1, but for the test that shows why
	rpc      time.Duration // for one RPC; a snapshot gets as much per 256 KiB
	rest     time.Duration // before a replica whose disk failed is tried again; doubles
	grace    time.Duration // what is in flight may take when a life ends
	birth    time.Duration // the reading of the log may take when one begins
	noCures  cures

	ctx      context.Context
	cancel   context.CancelFunc
	tasks    sync.WaitGroup
	observed chan raft.Observation // one place: that there is something to see is enough
	causes   chan report
	hints    chan string // nodes that are gone

	mu    sync.Mutex // guards what follows
	life  *life      // nil: none
	fault error
	told  State
}

// cures are switched off, one at a time, by the tests that show what they cure.
type cures struct {
	fence, jam, behind, guard, notify, order, hint atomic.Bool
}

type report struct {
	from *life
	cause
}

const (
	graceTime = 500 * time.Millisecond
	birthTime = 30 * time.Second
)

func newGroup(o *Options, s Spec, log hclog.Logger) (*Group, error) {
	if s.Machine == nil {
		return nil, errors.New("BUG: a group without a state machine")
	}
	g := &Group{
		ID: s.ID, o: o, founders: s.Founders, seeds: s.Seeds, remake: s.Remake, memory: s.Memory, newMachine: s.Machine, changed: s.Changed,
		key:      keyOf(s.ID, s.Life),
		name:     Name(o.Node, s.Life),
		log:      o.Log.With("shard", s.ID.Shard),
		hlog:     log.With("shard", s.ID.Shard),
		inFlight: 1, rpc: rpcTime, rest: parkedRest, grace: graceTime, birth: birthTime,
		observed: make(chan raft.Observation, 1),
		causes:   make(chan report, 4),
		hints:    make(chan string, 1),
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if o.tune != nil {
		o.tune(g)
	}
	if o.Dir == "" {
		g.snaps = raft.NewInmemSnapshotStore()
		return g, nil
	}
	var err error
	g.snaps, err = raft.NewFileSnapshotStoreWithLogger(snapshotsOf(o.Dir, g.key), 2, g.hlog.Named("snapshots"))
	if err != nil {
		return nil, fmt.Errorf("snapshots of %v: %w", s.ID, err)
	}
	return g, nil
}

// keyOf names what a replica keeps.
func keyOf(id transport.GroupID, life uint64) store.Key {
	return store.Key{Shard: uint64(id.Shard), Incarnation: uint64(id.Incarnation), Life: life}
}

// snapshotsOf is where a replica's snapshots are.
func snapshotsOf(dir string, k store.Key) string {
	return filepath.Join(dir, fmt.Sprintf("%d-%d-%d", k.Shard, k.Incarnation, k.Life))
}

func (g *Group) stall() time.Duration {
	if g.noCures.fence.Load() {
		return 0
	}
	return g.o.Timing.Stall
}

// start begins the first life.
func (g *Group) start() error {
	l, err := g.begin()
	if err != nil {
		g.cancel()
		return fmt.Errorf("start %v: %w", g.ID, err)
	}
	g.mu.Lock()
	g.life = l
	g.mu.Unlock()
	g.tasks.Go(g.watchLoop)
	return nil
}

// stop ends the replica; its data stays. The life is ended here for its grace,
// which is ctx's, and waited for by watchLoop.
func (g *Group) stop(ctx context.Context) {
	if l := g.current(); l != nil {
		l.end(ctx, ErrStopped)
	}
	g.cancel()
	done := make(chan struct{})
	go func() { g.tasks.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (g *Group) current() *life {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life
}

// living returns the life, or why there is none.
func (g *Group) living() (*life, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life == nil {
		return nil, fmt.Errorf("%v: %w: %w", g.ID, ErrStopped, orElse(g.fault, errors.New("it starts anew")))
	}
	return g.life, nil
}

func orElse(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// Propose has a command applied on every replica and returns its result here. It
// works on the leader alone; NotLeaderError says where that is. After an error
// that is ErrUnknown the command may have been done, or may yet be; after any
// other it was not, and will not be. The command's bytes must not change.
func (g *Group) Propose(ctx context.Context, command []byte) (any, error) {
	l, err := g.living()
	if err != nil {
		return nil, err
	}
	return l.batch.propose(ctx, command)
}

// Spread has the other replicas apply soon what is committed now, by an entry more;
// else they hear of it with the next one, or after Timing.Commit to twice that. It
// does nothing but on the leader.
func (g *Group) Spread() {
	if l := g.current(); l != nil && l.raft.State() == raft.Leader {
		l.batch.tell()
	}
}

// Leader is the node that leads, as far as this replica knows; "": none is known.
func (g *Group) Leader() string { return g.State().Leader }

// State is the replica's state now.
func (g *Group) State() State {
	g.mu.Lock()
	l, fault := g.life, g.fault
	g.mu.Unlock()
	if l == nil {
		return State{Fault: orElse(fault, ErrStopped)}
	}
	var s State
	for again := true; again; { // raft forgets who led before the term changes; a follower may still be told by a late heartbeat
		s.Term = l.raft.CurrentTerm()
		_, leader := l.raft.LeaderWithID()
		s.Leader, s.Led = nodeOf(leader), l.raft.State() == raft.Leader
		again = l.raft.CurrentTerm() != s.Term
	}
	s.Open = s.Led && l.open.Load() == s.Term
	return s
}
