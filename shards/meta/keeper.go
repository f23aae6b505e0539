package meta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// Host runs the replicas of this node.
type Host interface {
	// Open starts a replica. With Found it makes its group, with itself as the only
	// member, and begins with what the first of the Seeds has that has anything.
	// ErrHole says that its log is broken, or is gone though it was Kept.
	Open(e Errand) error
	Close(ctx context.Context, r Own)        // its data stays
	Delete(ctx context.Context, r Own) error // closes it, if it is open, and deletes its data
	Kept(shard int) ([]Kept, error)          // what there is of a shard on this node's disk, open or not
}

// ErrHole is a replica whose log lacks entries that it had: it must not vote again.
var ErrHole = errors.New("the replica's log has a hole")

// Groups is what the open replicas can do.
type Groups interface {
	Status(shard int) (Status, bool) // false: it is not open here
	Change(ctx context.Context, shard int, a Action) error
	Propose(ctx context.Context, command []byte) (any, error) // to shard 0, which is led here
}

// Neighbours is the other nodes.
type Neighbours interface {
	Peers() map[string]Peer // gossip's, of this cluster, this node too; without Gone and Heard
	Ask(ctx context.Context, node string, question []byte) ([]byte, error)
}

// Options is what a Keeper gets from whoever builds it.
type Options struct {
	Self       string   // own id
	Run        uint64   // numbers this run of the node: no two have the same
	Dir        string   // data directory
	Machine    *Machine // of shard 0: Host opens it with this one
	Host       Host
	Groups     Groups
	Neighbours Neighbours
	Log        *slog.Logger
	Names      func() map[string]Named // what this node's file and discovery say, by pool; nil: nothing
	Changed    func(*Map)              // hears of each newer map, one after the other; it must not wait
	Now        func() time.Duration    // a clock that never jumps, and goes on while the machine sleeps

	files files // Dir; tests keep it in memory
}

// Keeper is a node's part in what meta decides: it keeps the newest map, runs the
// replicas that it gives the node, takes the steps of the groups that the node
// leads, and decides while the node leads meta.
type Keeper struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	nudges []chan struct{} // one for each loop, of one place

	placing sync.Mutex            // one round of opening and deleting at a time, files and all; guards failed
	failed  map[Own]time.Duration // when to try a replica again that did not open
	runs    []uint64              // of this node, those that the map may know of last; never changed
	heeding sync.Mutex            // one later generation at a time, file and all
	taking  sync.Mutex            // one newer map at a time, file and all; may be taken while placing is held

	mu      sync.Mutex // guards what follows; the last to be taken, and held for no I/O or callback
	current *Map       // the newest; nil: none
	own     owned
	doubted map[Own]bool // replicas of this node that have forgotten, or may have, what they promised
	amnesia bool         // it was found that the directory is older than a run of this node
	open    map[int]Own
	gone    map[string]time.Duration // by node: since when gossip has not seen it alive
	leader  string                   // of meta, as others say
	knownAt string                   // see Place
	heeded  uint64                   // hash of the names that the leader of meta has of this node
	missed  bool                     // the last report did not find it
	abreast contact                  // with it
	turn    int                      // counts reports
	paces   map[int]pace             // of the groups led here
	handed  time.Duration            // when leadership was given away last, to spread it
	spread  struct {                 // who should lead what, of one map
		of      *Map
		leaders []string
	}
	generation uint32          // of meta, the latest heard of
	telling    map[string]bool // nodes that are being told of a newer map
	coded      struct {        // the map that was sent last, as it is sent
		of    *Map
		bytes []byte
	}

	announced uint64 // the revision of a map; announce alone uses it
	reign     uint32 // the latest generation of meta that another leads, as LookBack heard for resurrect

	busy   map[int]bool // shards whose next step is being taken
	stands map[int]stand
	office *office // while meta is led here
}

const (
	round    = time.Second      // between two looks, while all is as it should be
	hurry    = round / 4        // and while something is under way
	shortest = round / 20       // however often it is nudged
	stepTime = 10 * time.Second // for one change of a group, or one call
	openRest = 10 * time.Second // before a replica that did not open is tried again
	handRest = time.Second      // between two transfers that spread leaders
	fresh    = 5 * time.Second  // a report counts for so long
)

// NewKeeper reads what the node has kept.
func NewKeeper(o Options) (*Keeper, error) {
	if o.Self == "" || o.Machine == nil || o.Host == nil || o.Groups == nil || o.Neighbours == nil || o.Log == nil || o.Now == nil {
		return nil, errors.New("BUG: a seam of meta is not filled in")
	}
	if o.files == nil {
		o.files = directory(o.Dir)
	}
	k := &Keeper{o: o, gone: make(map[string]time.Duration), failed: make(map[Own]time.Duration), open: make(map[int]Own), paces: make(map[int]pace), busy: make(map[int]bool), stands: make(map[int]stand), telling: make(map[string]bool)}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	for range k.looks() {
		k.nudges = append(k.nudges, make(chan struct{}, 1))
	}
	var err error
	if k.current, err = loadMap(o.files); err != nil {
		return nil, err
	}
	if k.own, err = loadOwn(o.files); err != nil {
		return nil, err
	}
	if k.generation, err = loadFence(o.files); err != nil {
		return nil, err
	}
	if k.runs, err = countRun(o.files, k.current, o.Self, o.Run); err != nil {
		return nil, err
	}
	k.doubted = doubts(k.current, o.Self, k.own.Replicas)
	if k.current != nil {
		k.stepsOf(k.current)
	}
	return k, nil
}

// Start opens the replicas that the node had, without asking anybody, and begins
// to look after them.
func (k *Keeper) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := k.resurrect(); err != nil {
		return err
	}
	k.place(ctx)
	for i, look := range k.looks() {
		k.start(func() { k.lookLoop(look, k.nudges[i]) })
	}
	k.start(k.watchLoop)
	return nil
}

// looks is what each loop does. What one has begun and another must see is in the
// map, on disk, or in the groups themselves.
func (k *Keeper) looks() []func() {
	return []func(){k.arrange, k.advance, k.tell, k.decide, k.announce}
}

func (k *Keeper) start(task func()) { k.tasks.Go(task) } // Stop waits on tasks

// Stop ends the loops; the replicas are closed by whoever runs them.
func (k *Keeper) Stop(ctx context.Context) error {
	k.cancel()
	done := make(chan struct{})
	go func() { k.tasks.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the keeper of the map: %w", context.Cause(ctx))
	}
}

// Nudge has the keeper look now.
func (k *Keeper) Nudge() {
	for _, n := range k.nudges {
		select {
		case n <- struct{}{}:
		default: // it will
		}
	}
}

// Map is the newest map that is known here; nil: none.
func (k *Keeper) Map() *Map {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// Own returns the replicas of this node, open or not.
func (k *Keeper) Own() []Own {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]Own(nil), k.own.Replicas...)
}

// Take takes a newer map. It is on disk before anything is done about it, so that
// this node never goes back behind what it did.
func (k *Keeper) Take(m *Map) error {
	k.taking.Lock()
	defer k.taking.Unlock()
	current := k.Map()
	switch {
	case current != nil && current.Cluster != m.Cluster:
		return fmt.Errorf("%w: a map of cluster %s on a node of cluster %s", ErrInvalid, m.Cluster, current.Cluster)
	case current != nil && !m.after(current):
		return nil
	}
	if err := m.save(k.o.files); err != nil {
		return err
	}
	k.recognise(m)
	k.givesWay(current, m)
	k.mu.Lock()
	if current != nil && current.Generation() < m.Generation() {
		maps.Copy(k.doubted, dropped(m, k.o.Self, k.own.Replicas, current.Revision))
	}
	k.current = m
	k.stepsOf(m)
	k.mu.Unlock()
	if k.o.Changed != nil {
		k.o.Changed(m)
	}
	k.Nudge()
	return nil
}

// Found begins a cluster, of which the map is saved already. Its meta group is
// made here; the founding is proposed as soon as it is led.
func (k *Keeper) Found(ctx context.Context, m *Map) error {
	if err := k.Take(m); err != nil {
		return fmt.Errorf("found the cluster: %w", err)
	}
	k.place(ctx)
	return nil
}
