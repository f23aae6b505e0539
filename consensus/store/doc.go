// Package store keeps the logs and votes of all raft groups of a node in one
// file.
//
// Sixty-four groups with a file each wait for sixty-four times as many fsyncs;
// here one committer puts what all groups want written into one transaction.
// A group gets a Slot, which is its raft.LogStore and raft.StableStore:
//
//	st, err := store.New(store.Options{Path: "…/raft.db", Log: log, Failed: fence})
//	err = st.Start(ctx)
//	slot, err := st.Open(store.Key{Shard: 7, Incarnation: 1, Life: 3})
//	err = slot.Align(newestSnapshot)
//	… raft.NewRaft(conf, fsm, slot, slot, snapshots, transport)
//	slot.Close() // before the wait for raft's shutdown
//	err = st.Stop(ctx)
//
// Promise: what a write reported as done survives a crash of the process and of
// the machine, in order and without holes; votes included. What was not
// reported may be there or not.
//
// When the disk fails, raft must not see an error where it would panic (saving
// the term, reading its log): the call is parked instead, for as long as the
// slot is open. Closing the slot ends the parked goroutine (runtime.Goexit,
// deferred calls run), for it may neither go on as if the vote were saved nor
// be told. So only raft's own goroutines should call Set, SetUint64 and GetLog.
//
// The file is raft-boltdb's. Its key is slot<<48 | index. Slot numbers are this
// file's own and mean nothing elsewhere; a number is free again only once all
// data under it is gone. Indexes from 1<<47 up hold what a group needs besides
// its log (whose slot it is, term, vote, commit index).
//
// It must not know what an entry means, nor who the other nodes are. One owner
// per file: the lock on the data directory is the node's.
//
// Locks: Store.mu, then lane.mu; neither is held while the disk works.
package store
