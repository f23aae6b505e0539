package api

import "github.com/starling-lb/starling/proxy/backend"

// ShardList answers GET /v1/shards, by id. Shard 0 is the cluster's own.
type ShardList struct {
	Shards []Shard `json:"shards"`
}

// Shard is one shard, as its leader sees it where that answers, else as this
// node does.
type Shard struct {
	ID          int        `json:"id"`
	Incarnation uint32     `json:"incarnation"`
	Leader      string     `json:"leader"` // a node's name; empty: none is known
	Term        uint64     `json:"term"`
	LastIndex   uint64     `json:"last_index"`
	Applied     uint64     `json:"applied"`
	Sessions    int        `json:"sessions"`
	Replicas    []Replica  `json:"replicas"`
	Step        *ShardStep `json:"step"` // what is done to it; null: nothing

	LeaderID string `json:"leader_id"`
	Phase    string `json:"phase"` // planned, creating or ready

	Here []Digest `json:"here"` // of this node's own replica, the newest last; empty: it has none, or nothing to tell of it
}

// Digest is what a replica comes to in one number once it has applied all entries up to
// an index: replicas of one incarnation that are alike at an index have it in common.
type Digest struct {
	Applied uint64 `json:"applied"`
	Digest  string `json:"digest"` // after a number and a dash: which says how it is made; only those of one are compared
}

// Replica is one member of a shard's group.
type Replica struct {
	Node  string      `json:"node"` // its name
	Role  ReplicaRole `json:"role"`
	Match uint64      `json:"match"` // its log agrees with the leader's up to here; 0: not known
	Lag   uint64      `json:"lag"`   // committed entries that it lacks

	ID    string              `json:"id"`    // the node's
	State backend.MemberState `json:"state"` // the node's, as this one sees it; empty: it knows of none
}

// ReplicaRole is what a replica does in its group.
type ReplicaRole string

// The roles; the list is closed.
const (
	LeaderRole   ReplicaRole = "leader"
	VoterRole    ReplicaRole = "voter"
	NonvoterRole ReplicaRole = "nonvoter" // it gets the log and has no vote
	WantedRole   ReplicaRole = "wanted"   // the map wants it, and the group does not know it yet
)

// ShardStep is what is done to a shard, and why.
type ShardStep struct {
	Kind   string `json:"kind"`
	Node   string `json:"node"` // its name; empty: of no node
	Reason string `json:"reason"`

	NodeID string  `json:"node_id"`
	Age    float64 `json:"age"`   // seconds since it was seen first by a node that answers
	Waits  string  `json:"waits"` // why it does not go on now; empty: it does
	Still  bool    `json:"still"` // it takes longer than it should
}
