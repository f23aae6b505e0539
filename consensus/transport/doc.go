// Package transport is the one port that nodes talk to each other on: the Raft
// groups of all shards, calls (a question and its answer) and feeds (a long
// stream of messages one way), side by side.
//
// Every connection opens with a hello that says who calls whom about what: the
// cluster, both nodes, the shard and its incarnation or the name of a service,
// and the versions that the caller speaks. Whatever does not fit is refused with
// a reason, which both sides log. Nodes are named by id; a Resolver says where a
// node is now, so addresses may change while everything runs. With TLS both
// sides show a certificate of the cluster's CA.
//
// Promise: nothing here is unbounded. Connections, handshakes, frames, calls at
// work, bytes that wait to be written and the time of each have a limit, and
// whoever comes over it hears so at once.
//
// It must not know what is said over it.
//
// Locks: Transport.mu, then line.mu; outbox.mu is taken last and alone.
package transport
