package consensus

import (
	"io"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"github.com/starling-lb/starling/consensus/store"
	"github.com/starling-lb/starling/consensus/transport"
)

// Logs is what one replica keeps on disk: its entries, its term and its vote.
//
// Calls may take as long as the disk takes: a group watches how long. An error
// of Set, SetUint64 or GetLog ends the life, never the process; one of StoreLogs
// costs a leader its office. GetLog says raft.ErrLogNotFound for an entry that is
// not there, Get and GetUint64 an error whose text is exactly "not found".
type Logs interface {
	raft.LogStore
	raft.StableStore
	Align(snapshot uint64) error // before Raft starts: the log must go on from there
	Close()                      // lets go of calls that wait
}

// Store keeps the logs of all replicas of a node.
type Store interface {
	Open(store.Key) (Logs, error)
	Drop(store.Key) error // deletes all that a replica has kept; it is closed
}

// OnDisk is the real Store.
func OnDisk(s *store.Store) Store { return onDisk{s} }

type onDisk struct{ *store.Store }

func (d onDisk) Open(k store.Key) (Logs, error) {
	s, err := d.Store.Open(k)
	if err != nil {
		return nil, err // not a nil *store.Slot in an interface
	}
	return s, nil
}

// StateMachine is what the entries of one group mean. Calls come one at a time;
// what Snapshot returned is written while Apply goes on.
type StateMachine interface {
	// Apply takes the commands of one entry and returns one result each. Their
	// bytes belong to the log: whoever keeps some copies them. An error says that
	// the entry cannot be understood: the replica halts, for it must not guess.
	Apply(term, index uint64, commands [][]byte) ([]any, error)
	Snapshot() (io.WriterTo, error)
	Restore(io.Reader) error // replaces all that there is
}

// Options is what Groups gets from whoever builds it.
type Options struct {
	Node      string // own id, which is the Raft address, too
	Dir       string // for snapshots; "": they are kept in memory
	Transport *transport.Transport
	Store     Store
	Log       *slog.Logger
	Timing    Timing // zero: DefaultTiming
	LongLog   int    // entries after which a log is cut, where a look finds so many; 0: 4096

	// Committed, if set, hears how long each entry of this node took from its
	// proposal until it was applied here. It must not wait.
	Committed func(time.Duration)

	tune func(*Group) // tests switch cures off before a group starts
}

// Timing is Raft's clockwork. All replicas of a group should have the same.
type Timing struct {
	Heartbeat time.Duration // a follower that hears nothing for so long, to twice that, wants to lead; leaders speak five to ten times in it
	Lease     time.Duration // a leader without a majority steps down after it
	Commit    time.Duration // an idle leader tells followers of commits after it, to twice that
	Stall     time.Duration // a leader's write to its log may take so long; then another shall lead
	Behind    time.Duration // a follower that hears its leader and does not catch up for so long is started anew
	Snapshot  time.Duration // between two looks whether the log is long enough to be cut, to twice that
}

// DefaultTiming was measured with 64 groups on three nodes. Shorter heartbeats
// made leaders flap under load; longer ones make failover longer by twice as
// much. A short Commit costs two RPCs per follower and group each.
func DefaultTiming() Timing {
	return Timing{
		Heartbeat: time.Second, Lease: 500 * time.Millisecond, Commit: 250 * time.Millisecond,
		Stall: time.Second, Behind: 10 * time.Second, Snapshot: 2 * time.Minute,
	}
}
