// Package shards decides: which shard a session belongs to, and which backend it
// is bound to.
//
// The sessions of a cluster are cut into shards by the first bits of a keyed
// hash. Each shard has a Table, the same on every replica, that changes by
// committed commands alone; its leader's Owner answers for it, and every node's
// Router knows whom to ask.
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
// Locks: Machine.mu guards the table, and nothing is asked while it is held.
package shards
