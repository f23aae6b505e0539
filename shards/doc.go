// Package shards decides: which shard a session belongs to, and which backend it
// is bound to.
//
// The sessions of a cluster are cut into shards by the first bits of a keyed
// hash. Each shard has a Table, the same on every replica, that changes by
// committed commands alone; its leader's Owner answers for it, and every node's
// Router runs the turns of its sessions and knows whom to ask.
//
// What a node was told of a binding it may use for as long as it has a lease of the
// shard from a leader whose term it is in: its section. One feed from each leading
// node carries sections, grants, changes and holds, in order. A leader changes a
// binding that stands only after every node that may have turns of the session (the
// holders, which the log names) has said that none runs and none begins. What a
// leader knows besides the table is its reign's, and dies with the term.
//
// Promise: for a session and an epoch there is one backend, whoever asks, and
// epochs only grow, over letting go and binding again, too.
//
// What moves sessions on a leader's own account: TTLs and full shards (letgo.go),
// backends that drain or die, operators, heavy turns, and for even load the Planner,
// a pure function that is asked once in an interval (rebalance.go).
//
// It must not know Raft, memberlist or HTTP: a Log, Peers and Places are handed
// in. Table must not know clocks, random or the network either.
//
// Locks, in this order: section.order, Owner.mu, desk.mu, Machine.mu or outlet.mu;
// apart from these stripe.mu, then the Cache's. None is held while anything is asked
// or sent.
package shards
