// Package consensus agrees: one Raft group per shard, many groups in a process,
// all on one port (consensus/transport) and in one store.
//
// Promise: a command that was reported as done is applied on every replica, in
// the same order, and survives the loss of any minority. What a group reports as
// failed was not done, except where the error is ErrUnknown. Nothing here ends
// the process or blocks who carries streams: a replica whose disk fails, or that
// meets an entry it cannot understand, ends alone and says so.
//
// A Group is one replica of one shard. What runs in it is a life: one raft.Raft
// with its transport, logs and state machine. Watchdogs end a life that is stuck
// in a way that Raft does not get out of by itself, and begin another on the same
// logs; who uses the Group sees an election.
//
// It must not know what a command means.
//
// Locks: Groups.mu, Group.mu, then batcher.mu or acks.mu; none is held while Raft
// or the disk is asked for something that may wait.
package consensus
