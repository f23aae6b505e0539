// Package proxy carries one stream between a client and a backend: it reads a
// request, chooses where it goes, opens the exchange, relays the answer and
// settles the count, in that order; handler.go tells it from top to bottom. It
// promises that a stream's count is given back exactly once, that no ending is
// invented, and that a client that leaves frees its backend at once. It does
// not know who owns sessions, nor anything of Raft or gossip.
//
// Locks, in order: Server.mu, errand.mu, Stream.mu. None is held across I/O.
package proxy
