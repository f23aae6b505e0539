package consensus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/starling-lb/starling/consensus/transport"
)

// renewService is how a leader asks a follower to start a replica anew.
const renewService = "consensus.renew"

// Groups is all replicas of a node.
type Groups struct {
	o   Options
	log hclog.Logger

	transferring chan struct{} // one place: leaderships leave one at a time

	mu     sync.Mutex
	groups map[uint32]*Group // by shard; nil while one starts
	ended  bool
}

// New checks and allocates. The transport is not started yet.
func New(o Options) (*Groups, error) {
	if o.Node == "" || o.Transport == nil || o.Store == nil || o.Log == nil {
		return nil, errors.New("BUG: a seam of consensus is not filled in")
	}
	if o.Timing == (Timing{}) {
		o.Timing = DefaultTiming()
	}
	gs := &Groups{o: o, log: newBridge(o.Log), groups: make(map[uint32]*Group), transferring: make(chan struct{}, 1)}
	o.Transport.Serve(renewService, transport.Service{MaxQuestion: 64, Concurrent: 16, Answer: gs.renew})
	return gs, nil
}

// Open starts a replica.
func (gs *Groups) Open(s Spec) (*Group, error) {
	g, err := newGroup(&gs.o, s, gs.log)
	if err != nil {
		return nil, err
	}
	if err := gs.reserve(s.ID); err != nil {
		return nil, err
	}
	err = g.start()
	if gs.enter(g, err == nil) {
		return g, nil
	}
	if err == nil { // Stop came meanwhile, and could not know of it
		g.stop(context.Background())
		err = ErrStopped
	}
	return nil, err
}

// enter gives a replica the place that is reserved, or gives that back: for one that
// does not run, or after Stop.
func (gs *Groups) enter(g *Group, runs bool) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if !runs || gs.ended {
		delete(gs.groups, g.ID.Shard)
		return false
	}
	gs.groups[g.ID.Shard] = g
	return true
}

func (gs *Groups) reserve(id transport.GroupID) error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.ended {
		return ErrStopped
	}
	if _, open := gs.groups[id.Shard]; open {
		return fmt.Errorf("open %v: a replica of that shard runs already", id)
	}
	gs.groups[id.Shard] = nil
	return nil
}

// Close stops a replica; its data stays.
func (gs *Groups) Close(ctx context.Context, g *Group) {
	g.stop(ctx)
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.groups[g.ID.Shard] == g {
		delete(gs.groups, g.ID.Shard)
	}
}

// Delete stops a replica and deletes all its data here, for good.
func (gs *Groups) Delete(ctx context.Context, g *Group) error {
	gs.Close(ctx, g)
	return gs.Drop(g.ID, g.key.Life)
}

// Drop deletes all that a replica has kept here, for good. It does not run.
func (gs *Groups) Drop(id transport.GroupID, life uint64) error {
	key := keyOf(id, life)
	if err := gs.o.Store.Drop(key); err != nil {
		return fmt.Errorf("delete the log of %v: %w", id, err)
	}
	if gs.o.Dir == "" {
		return nil
	}
	if err := os.RemoveAll(snapshotsOf(gs.o.Dir, key)); err != nil {
		return fmt.Errorf("delete the snapshots of %v: %w", id, err)
	}
	return nil
}

// Group returns the replica of a shard, or nil.
func (gs *Groups) Group(shard uint32) *Group {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.groups[shard]
}

// All returns the replicas in the order of their shards.
func (gs *Groups) All() []*Group {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	var all []*Group
	for _, shard := range slices.Sorted(maps.Keys(gs.groups)) {
		if g := gs.groups[shard]; g != nil {
			all = append(all, g)
		}
	}
	return all
}

// Gone hears that a node's process has ended, for transport.Options.Gone: groups
// that it led elect another now instead of when their timers say.
func (gs *Groups) Gone(node string) {
	for _, g := range gs.All() {
		select {
		case g.hints <- node:
		default: // one waits already
		}
	}
}

// Failed hears that the store is lost until the node starts again, for
// store.Options.Failed: every replica ends its life, so that none of Raft's calls
// stays parked, and says why.
func (gs *Groups) Failed(err error) {
	for _, g := range gs.All() {
		if l := g.current(); l != nil {
			g.report(l)(cause{parked, fmt.Errorf("store: %w", err)})
		}
	}
}

// Transfer hands leadership to another node; of one node's, one at a time.
func (gs *Groups) Transfer(ctx context.Context, g *Group, node string) error {
	select {
	case gs.transferring <- struct{}{}:
		defer func() { <-gs.transferring }()
		return g.transfer(ctx, node)
	case <-ctx.Done():
		return fmt.Errorf("transfer of %v waited for another: %w", g.ID, context.Cause(ctx))
	}
}

// Stop ends all replicas, at once and side by side; their data stays.
func (gs *Groups) Stop(ctx context.Context) error {
	gs.mu.Lock()
	gs.ended = true
	gs.mu.Unlock()
	var all sync.WaitGroup
	for _, g := range gs.All() {
		all.Go(func() { gs.Close(ctx, g) })
	}
	all.Wait()
	return ctx.Err()
}

func encodeRenew(id transport.GroupID, term uint64) []byte {
	b := binary.BigEndian.AppendUint32(nil, id.Shard)
	b = binary.BigEndian.AppendUint32(b, id.Incarnation)
	return binary.BigEndian.AppendUint64(b, term)
}

func decodeRenew(b []byte) (id transport.GroupID, term uint64, err error) {
	if len(b) != 16 {
		return id, 0, fmt.Errorf("a request of %d bytes, want 16", len(b))
	}
	id = transport.GroupID{Shard: binary.BigEndian.Uint32(b), Incarnation: binary.BigEndian.Uint32(b[4:])}
	return id, binary.BigEndian.Uint64(b[8:]), nil
}

// renew starts a replica anew that its leader says is stuck. A replica whose disk
// is at work would only be stuck again.
func (gs *Groups) renew(_ context.Context, from string, question []byte) ([]byte, error) {
	id, term, err := decodeRenew(question)
	if err != nil {
		return nil, err
	}
	g := gs.Group(id.Shard)
	if g == nil || g.ID != id {
		return nil, fmt.Errorf("%v does not run here", id)
	}
	l, err := g.living()
	if err != nil {
		return nil, err
	}
	_, leader := l.raft.LeaderWithID()
	switch {
	case l.raft.State() != raft.Follower || l.raft.CurrentTerm() != term || nodeOf(leader) != from:
		return nil, fmt.Errorf("%v does not follow node %s in term %d", id, from, term)
	case l.logs.sick(g.stall()):
		return nil, errors.New("its disk does not keep up")
	}
	g.report(l)(cause{renewed, fmt.Errorf("node %s leads term %d and says that this replica does not catch up", from, term)})
	return nil, nil
}
