// Package gossip spreads what every node must know of the others, fresh and
// cheap: who is a member, what each carries to each backend, what its health
// checks found, and small records of the cluster. It promises that whoever has
// another key, label or cluster id never becomes a member, that what comes from
// the network is bounded and checked before memberlist or anybody else sees it,
// and that no caller waits for the network. It must not know sessions, Raft or
// HTTP.
//
// Two locks are never held together with memberlist's: members.mu and
// reports.mu are leaves; nothing is called and nothing sent while one is held.
package gossip
