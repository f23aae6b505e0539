// Package quorum is a node's part in what the cluster agrees on: it founds the
// cluster or joins it, keeps the cluster's map, and opens the replicas that the
// map places here.
//
// Promise: two clusters are never made of one; an empty replica never founds a
// shard that was once made; and whatever fails here, streams go on: nothing of
// the data path waits for it.
//
// It must not know HTTP, memberlist or Raft: who else there is comes in by an
// interface, and consensus keeps the logs.
package quorum
