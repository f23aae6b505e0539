// Package handover has one process take a node's place from another: its listening
// sockets, its data directory and its part among the nodes, while no client is
// refused and no stream cut. The one before is the elder from then on: it carries
// what it carried to the end, tells how much that still is, and asks others about
// its sessions by way of its heir.
//
// How, in the order of time:
//
//	elder                                  heir
//	starts it (Start)                      finds that it was (Inherit)
//	                        ◀── take ────  its configuration is good, it could begin (Take)
//	lets go of directory,
//	gossip and replicas     ─── yours ──▶  opens them
//	                        ◀── ready ───  it serves, but takes no connection in (Ready)
//	closes its sockets      ─── go ─────▶  takes connections in
//
// Both hold the sockets all the while, so who connects waits in them. Until it has
// said "go" the elder takes all back where the heir ends, says "failed", or is slow: it
// ends the heir, and says "undone" to what may be left of it. An elder that is gone
// without that has left everything: the heir goes on as if it had said so.
//
// The words are lines of JSON on a socket pair, the sockets descriptors that are
// inherited over exec. What is said afterwards goes over a socket in the data
// directory (Links, Link), where an elder finds whoever is the heir by then; a
// file that it keeps locked (Stay) says that it still lives.
//
// It must not know what is handed over.
package handover
