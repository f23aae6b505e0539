// Package api holds the JSON forms of the admin API, as the contract gives
// them: what the server writes and what the commands read is one set of types.
// Times are RFC 3339, durations are seconds. Fields may be added; what stands
// here stays. It knows nothing of how the values come about.
package api

import (
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// Error is the form of every refusal, on the proxy's listeners and here.
type Error struct {
	Error ErrorBody `json:"error"`
}

// ErrorBody says what was refused.
type ErrorBody struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	RequestID string `json:"request_id"`
}

// Status answers GET /v1/status.
type Status struct {
	Node       Node    `json:"node"`
	Cluster    Cluster `json:"cluster"`
	Shards     Shards  `json:"shards"`
	Streams    Streams `json:"streams"`
	Drain      *Drain  `json:"drain"`
	ConfigHash string  `json:"config_hash"`

	NotReady string   `json:"not_ready"` // why the node shall get no traffic; empty: it may
	Faults   []string `json:"faults"`    // what a person should see to

	Elders []Elder `json:"elders"` // older processes of the node that still carry streams, which are counted above

	Nodes []NodeAnswer `json:"nodes,omitempty"` // with ?scope=cluster: every node's own status, by name
}

// Node is the node that answers.
type Node struct {
	ID      string              `json:"id"`
	Name    string              `json:"name"`
	Version string              `json:"version"`
	State   backend.MemberState `json:"state"`
	Started time.Time           `json:"started"`
	PID     int                 `json:"pid"` // of the process that answers

	Agreed Agreed `json:"agreed"`
}

// Cluster is what this node sees of its cluster.
type Cluster struct {
	ID         string `json:"id"`
	Members    int    `json:"members"`
	Alive      int    `json:"alive"`
	MetaQuorum bool   `json:"meta_quorum"`

	Revision     uint64 `json:"revision"`      // of the newest map that this node knows; 0: none
	Level        uint32 `json:"level"`         // what every node of the cluster can do
	Waits        string `json:"waits"`         // why there is no cluster yet; empty: there is, or this node is alone
	Paused       string `json:"paused"`        // why nothing is repaired now; empty: it would be
	ConfigHashes int    `json:"config_hashes"` // different configurations among the nodes that are alive
}

// Shards counts the shards and those that this node leads.
type Shards struct {
	Count         int `json:"count"`
	Led           int `json:"led"`
	WithoutLeader int `json:"without_leader"`

	Steps int `json:"steps"` // shards to which something is done
	Still int `json:"still"` // and of them those where it has stood still for long
}

// Streams counts what runs and what waits on this node.
type Streams struct {
	InFlight int64 `json:"in_flight"`
	Waiting  int64 `json:"waiting"`

	Ended map[backend.Reason]int64 `json:"ended"` // since the node started, by why
}

// Drain is a drain under way: when it ends at the latest, and in how many
// seconds.
type Drain struct {
	Deadline time.Time `json:"deadline,omitzero"` // zero: there is none
	Left     float64   `json:"left"`

	Phase    DrainPhase `json:"phase,omitempty"`    // of a node's
	Finished int64      `json:"finished,omitempty"` // streams that ended since it turns new ones away
	Cut      int64      `json:"cut,omitempty"`      // streams that its deadline ended
}

// DrainPhase is how far a node's drain is.
type DrainPhase string

// The phases of a node's drain, in their order; the list is closed.
const (
	NoticePhase  DrainPhase = "notice"       // not ready, and serving
	TurningPhase DrainPhase = "turning_away" // new streams are refused, running ones go on
	CuttingPhase DrainPhase = "cutting"      // the deadline has come
)

// Backends answers GET /v1/backends.
type Backends struct {
	Backends []Backend `json:"backends"`

	Nodes []NodeAnswer `json:"nodes,omitempty"` // with ?scope=cluster: who was asked
}

// Backend is one backend as this node sees it.
type Backend struct {
	ID           string            `json:"id"`
	Pool         string            `json:"pool"`
	URL          string            `json:"url"`
	State        backend.State     `json:"state"`
	Slow         bool              `json:"slow"`
	Reason       string            `json:"reason"` // why it is in this state
	Since        time.Time         `json:"since"`
	Weight       int               `json:"weight"`
	Cap          int               `json:"cap"` // 0: none
	CapSource    backend.CapSource `json:"cap_source"`
	InFlight     InFlight          `json:"in_flight"`
	Speed        float64           `json:"speed"`     // units per second of one stream alone; 0: not known yet
	StepTime     float64           `json:"step_time"` // predicted, in seconds; 0: not known yet
	EjectedUntil *time.Time        `json:"ejected_until"`
	Drain        *Drain            `json:"drain"`
	Sessions     int               `json:"sessions"` // that live there, in the shards of which the node has a replica
	Engine       *Engine           `json:"engine"`   // null: it says nothing

	Node string `json:"node,omitempty"` // with ?scope=cluster: name of the node that sees it so
}

// Engine is what the program behind a backend says of itself: requests of all
// its clients that run and that wait there.
type Engine struct {
	Name    string  `json:"name"` // vllm, sglang, tgi or llamacpp
	Running int     `json:"running"`
	Waiting int     `json:"waiting"`
	Cache   float64 `json:"cache"` // share of its cache for contexts in use, 0 to 1; 0 where it tells none
}

// NewBackend is the body of POST /v1/pools/{pool}/backends.
type NewBackend struct {
	ID         string `json:"id"` // default: host:port of the URL
	URL        string `json:"url"`
	Weight     int    `json:"weight"`      // default: 1
	MaxStreams int    `json:"max_streams"` // 0: what the pool says
}

// Weight is the body of POST /v1/backends/{id}/weight.
type Weight struct {
	Weight int `json:"weight"`
}

// Policies are the words that a Policy may hold.
func Policies() []string { return backend.Policies() }

// Policy is the body of POST /v1/pools/{pool}/policy: how a pool's backends are
// chosen. What is empty is as the configuration says.
type Policy struct {
	Policy string  `json:"policy"`
	Second string  `json:"second,omitempty"` // measured beside it
	Share  float64 `json:"share,omitempty"`  // of the streams, 0 to 1, that the second places
}

// Pools answers GET /v1/pools.
type Pools struct {
	Pools []Pool `json:"pools"`

	Nodes []NodeAnswer `json:"nodes,omitempty"` // with ?scope=cluster: who was asked
}

// Pool is one pool as this node sees it.
type Pool struct {
	Name       string    `json:"name"`
	Policy     string    `json:"policy"`
	Revision   uint64    `json:"revision"` // grows with every change of its backends or their terms
	Usable     int       `json:"usable"`   // backends that take streams
	InFlight   int64     `json:"in_flight"`
	Waiting    int64     `json:"waiting"`
	StepTimeCV float64   `json:"step_time_cv"` // coefficient of variation over the usable backends
	InFlightCV float64   `json:"in_flight_cv"`
	Panic      bool      `json:"panic"`        // health is ignored, since too few backends look well
	Second     string    `json:"second"`       // policy that is measured beside the first; "": none
	Share      float64   `json:"second_share"` // of the streams that it places
	Rebalance  Rebalance `json:"rebalance"`
	Sessions   int       `json:"sessions"` // that are bound, in the shards that this node leads
	Moves      Moves     `json:"moves"`

	Node string `json:"node,omitempty"` // with ?scope=cluster: name of the node that sees it so
}

// Moves counts what became of sessions in the shards that this node leads, since
// it started.
type Moves struct {
	Done      int64 `json:"done"`      // moved between two of their turns
	Cancelled int64 `json:"cancelled"` // stayed, for a turn of theirs ran on
	Rebound   int64 `json:"rebound"`   // live elsewhere since their backend is gone
}

// Rebalance is what moves sessions between backends, as the shards that this node
// leads see it.
type Rebalance struct {
	Enabled      bool       `json:"enabled"`
	LastDecision *time.Time `json:"last_decision"` // null: this node leads no shard with sessions of the pool
	Reason       string     `json:"reason"`        // why it moved sessions, or none
}

// Session answers GET /v1/sessions/{pool}/{key}.
type Session struct {
	Shard       uint32     `json:"shard"`
	Backend     string     `json:"backend"`
	Epoch       uint64     `json:"epoch"`       // grows with every change of the backend
	Provisional bool       `json:"provisional"` // the backend is this node's choice, which nobody has agreed to yet
	LastUse     *time.Time `json:"last_use"`    // on this node; null: it had no turn here
	Held        bool       `json:"held"`        // a change is on its way
	LastKnown   *LastKnown `json:"last_known"`  // what this node can tell by itself; null: nothing
}

// LastKnown is a binding as one node's replica has applied it, or, on a node without a
// replica of the shard, as it was last told.
type LastKnown struct {
	Backend string `json:"backend"`
	Epoch   uint64 `json:"epoch"`
}

// Destination is the body of POST /v1/sessions/{pool}/{key}/move.
type Destination struct {
	Backend string `json:"backend"`
}

// Rebalancing is the body of POST /v1/pools/{pool}/rebalance.
type Rebalancing struct {
	Enabled bool `json:"enabled"`
}

// InFlight counts streams at a backend: of this node, of the cluster, and of
// those that wait for it.
type InFlight struct {
	Local   int64 `json:"local"`
	Cluster int64 `json:"cluster"`
	Waiting int64 `json:"waiting"`
}

// StreamList answers GET /v1/streams, oldest first.
type StreamList struct {
	Streams []Stream `json:"streams"`

	Nodes []NodeAnswer `json:"nodes,omitempty"` // with ?scope=cluster: who was asked, and how many it has
}

// Stream is one stream that runs on this node.
type Stream struct {
	ID           string    `json:"id"`
	Pool         string    `json:"pool"`
	Backend      string    `json:"backend"`       // empty until one is picked
	SessionEpoch uint64    `json:"session_epoch"` // 0: no session
	Started      time.Time `json:"started"`
	Phase        string    `json:"phase"`     // the step of its road that it is in
	Client       string    `json:"client"`    // address, without the port where a trusted proxy told it
	BytesOut     int64     `json:"bytes_out"` // of the answer, to the client

	PID int `json:"pid,omitempty"` // of the older process that carries it; 0: of none

	Node string `json:"node,omitempty"` // with ?scope=cluster: name of the node that carries it
}

// Config answers GET /v1/config. Secrets are masked.
type Config struct {
	Hash   string         `json:"hash"`
	File   string         `json:"file"`   // empty: the node was started without one
	Read   time.Time      `json:"read"`   // when what is in force was read
	Config map[string]any `json:"config"` // with every key, as in the file
	YAML   string         `json:"yaml"`   // the same, as a file
}

// Reloaded answers POST /v1/reload.
type Reloaded struct {
	ConfigHash string `json:"config_hash"` // of what is in force now
	Changed    bool   `json:"changed"`     // it is not what was in force before

	Nodes []NodeReloaded `json:"nodes,omitempty"` // with ?scope=cluster: every node, in the order in which they were asked
}
