package shards

import (
	"context"
	"log/slog"
	"time"
)

// Peers carries a question to another node.
type Peers interface {
	Call(ctx context.Context, node, service string, question []byte) ([]byte, error)
}

// Places says which nodes have a replica of a shard, in no order.
type Places interface {
	Replicas(shard uint32) []string
}

// Feeds keeps a feed of another node open until ctx ends, and opens it anew when
// it broke.
type Feeds interface {
	Follow(ctx context.Context, node, service string, r Reader)
}

// Reader is the receiving end of a feed.
type Reader struct {
	Open func() []byte              // the opening message, each time the feed is opened
	Take func(message []byte) error // each message, in order; an error opens the feed anew
	Lost func(err error)            // the feed broke, or could not be opened
}

// Rules say what holds for sessions: what was committed for their pool, and what a
// node knows of backends. They are asked often, and never wait.
type Rules interface {
	Pool(pool string) Rule
	Of(backend string) (pool string) // "": unknown
	Sets() []Set                     // the last committed backend sets that this node knows
}

// Rule is a pool's.
type Rule struct {
	TTL    time.Duration // how long a session is kept without a turn; 0: for ever
	Drain  time.Duration // how long a move waits for a session to be idle
	Wait   time.Duration // how long a turn waits for an answer about its binding
	Stay   time.Duration // after a move, before a heavy turn may move the session again
	Max    int           // sessions in a shard; 0: no limit
	Strict bool          // rather no answer than a second backend
}

// Fates say what has become of nodes and backends.
type Fates interface {
	Dead(node string) bool // by a committed entry of the cluster's own shard
	Leaving() []Leaver
	Usable(backend string) bool // a session may be moved there
}

// Leaver is a backend that its sessions are to leave.
type Leaver struct {
	Pool, Backend string
	Gone          bool // dead or removed, and its pool not in panic: at once; else when they are idle
}

// Options is what a Router gets from whoever builds it.
type Options struct {
	Node   string
	Boot   uint64          // of this process; a later one of the node has a higher one
	Elders func() []uint64 // boots of the node's older processes that live; nil: none does
	Hash   *Hasher
	Peers  Peers
	Feeds  Feeds
	Place  Places
	Rules  Rules
	Fates  Fates
	Log    *slog.Logger
	Pools  Pools // nil: no session is moved to even out load
	Eager  bool  // begin with a lease of every shard, if a pool has sessions
	Most   int   // sessions that the node keeps in mind; 0: a million

	// Now is a clock that goes on while the machine is suspended.
	Now func() time.Duration

	without cure // in tests
}
