// Package meta decides where the shards of a cluster live.
//
// Shard 0 holds one Map, the same on every replica: the cluster's id and secret,
// its nodes, which of them replicate which shard, and the pools' backends. It
// changes by committed commands alone. On the leader of shard 0 a controller
// (Plan) says what should be; on the leader of each shard a reconciler (Next)
// takes the one next step towards it; on each node Local says which replicas to
// run. All three look at what is and remember nothing, so whoever comes after one
// that died goes on where it was.
//
// Promise: no step leaves the live voters of a shard without a majority; a shard
// that was once created is never made anew by an empty replica; a node is dead
// when it is written here, never because gossip says so.
//
// It must not know Raft, memberlist or HTTP. Map, Plan, Next and Local must not
// know clocks, random or the network either.
package meta
