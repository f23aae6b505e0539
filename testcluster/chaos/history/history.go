// Package history is what a chaos run leaves behind: what was done to the
// cluster, what its clients and backends saw, and what its nodes said of
// themselves. One process writes all of it, so its times compare. It judges
// nothing.
package history

import (
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/testcluster/llm"
)

// Kind is what a fault is.
type Kind string

// The kinds of fault; the list is closed.
const (
	Partition  Kind = "partition" // what Target's nodes and the others send each other is lost
	OneWay     Kind = "one-way"   // what Target's nodes send to the others is lost
	Flap       Kind = "flap"      // a partition that comes and goes
	Loss       Kind = "loss"      // a share of what passes between nodes
	Delay      Kind = "delay"     // between nodes
	Duplicate  Kind = "duplicate" // a share of the packets between nodes comes twice
	Reorder    Kind = "reorder"   // a share of them comes behind others
	Corrupt    Kind = "corrupt"   // a share of them has a bit that is another
	Reset      Kind = "reset"     // connections between nodes, once
	Kill       Kind = "kill"      // a node: kill -9, started again when the fault ends
	Pause      Kind = "pause"     // a node: SIGSTOP, SIGCONT when the fault ends
	Disk       Kind = "disk"      // a node's: slow, stalled, full or failing
	Clock      Kind = "clock"     // a node's clock jumps
	Restart    Kind = "restart"   // nodes are drained and started again, one after the other
	Upgrade    Kind = "upgrade"   // the same, from an older binary to this one
	Twice      Kind = "twice"     // a second process is started with a node's data
	HandOver   Kind = "hand-over" // another process becomes a node that runs; that carries what it has begun
	Move       Kind = "move"      // a node comes back at other addresses
	Wipe       Kind = "wipe"      // a node comes back without its data
	Join       Kind = "join"      // nodes are added
	Leave      Kind = "leave"     // nodes leave for good
	Backend    Kind = "backend"   // a demo backend's switches: dead, hung, slow, flapping, breaking
	AddBackend Kind = "add"       // backends are added to the pool
	Traffic    Kind = "traffic"   // more of it, or clients that try again and again
	Drain      Kind = "drain"     // of a backend, by an operator
	Operate    Kind = "operate"   // anything else that an operator does
	Bootstrap  Kind = "bootstrap" // the cluster is founded while nodes are hurt
)

// Fault is one thing that was done to the cluster.
type Fault struct {
	ID     int       `json:"id"`
	Kind   Kind      `json:"kind"`
	Target []string  `json:"target"` // names of nodes and backends
	Detail string    `json:"detail"` // in words
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended"` // and what it had done was undone, so far as that can be

	// Breaks are the nodes and backends whose own running streams the fault may
	// break; of a fault without any, no stream may.
	Breaks []string `json:"breaks"`
}

// Entry is where clients can come in.
type Entry struct {
	Node string // name
	URL  string // without a slash at its end
}

// Turn is one request of a client, and one try: who tries again makes another.
type Turn struct {
	ID      string `json:"id"` // also the request's X-Request-ID
	Session string `json:"session"`
	Number  int    `json:"turn"` // of its session
	Attempt int    `json:"attempt"`
	Kind    string `json:"kind"` // sse, websocket, plain, upload
	Node    string `json:"node"` // that was asked
	Backend string `json:"backend"`
	Epoch   uint64 `json:"epoch"`

	Due   time.Time `json:"due"`
	Began time.Time `json:"began"`
	First time.Time `json:"first,omitzero"` // byte of the answer
	Ended time.Time `json:"ended"`

	Status int    `json:"status"` // 0: no answer
	End    string `json:"end"`    // clean, broken, refused, unreachable, left
	Code   string `json:"code"`   // of a refusal by starling
	Whole  bool   `json:"whole"`  // every byte is as it was sent
	Bytes  int64  `json:"bytes"`
	Note   string `json:"note"` // what went wrong, in words
}

// Sample is what a node said of itself at one moment.
type Sample struct {
	At       time.Time `json:"at"`
	Node     string    `json:"node"`
	Up       bool      `json:"up"` // it answered
	InFlight int64     `json:"in_flight"`
	Waiting  int64     `json:"waiting"`
	Alive    int       `json:"alive"` // members that it sees
	Led      int       `json:"led"`   // shards
	NoLeader int       `json:"no_leader"`
	Routines int       `json:"goroutines"`
	Files    int       `json:"open_files"`
	Memory   int64     `json:"memory"` // resident bytes
	Disk     int64     `json:"disk"`   // bytes in its data directory

	Unhealthy []string `json:"unhealthy"` // backends that it takes for unhealthy: the nodes' common verdict
}

// Dump is all that a node says of itself, once nothing runs.
type Dump struct {
	Node     string         `json:"node"`
	At       time.Time      `json:"at"`
	Status   api.Status     `json:"status"`
	Members  api.Members    `json:"members"`
	Backends api.Backends   `json:"backends"`
	Shards   api.ShardList  `json:"shards"`
	Streams  api.StreamList `json:"streams"`
	Metrics  string         `json:"-"` // as Prometheus reads them

	// Sessions are the bindings that the node has of the sessions that turns were
	// of, by key.
	Sessions map[string]api.Session `json:"sessions"`
}

// Leader is one reign that was seen: who says that it leads a shard in a term.
type Leader struct {
	Shard       int    `json:"shard"`
	Incarnation uint32 `json:"incarnation"`
	Term        uint64 `json:"term"`
	Node        string `json:"node"`
}

// State is what a node said that its replica of a shard comes to, once all entries up
// to one are applied.
type State struct {
	At          time.Time `json:"at"`
	Node        string    `json:"node"`
	Shard       int       `json:"shard"`
	Incarnation uint32    `json:"incarnation"`
	Applied     uint64    `json:"applied"`
	Digest      string    `json:"digest"`
}

// Voting is who has a vote in a shard by the word of who leads it, from when it was
// first said until it was last said.
type Voting struct {
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	Shard       int       `json:"shard"`
	Incarnation uint32    `json:"incarnation"`
	Term        uint64    `json:"term"`
	Leader      string    `json:"leader"`
	Voters      []string  `json:"voters"`
	Live        int       `json:"live"` // nodes that were meant to be there
}

// Twin is a second process that was started with a running node's data.
type Twin struct {
	At     time.Time `json:"at"`
	Node   string    `json:"node"`
	Served bool      `json:"served"` // it did not end
	Words  string    `json:"words"`  // with which it ended
}

// Run is a whole run.
type Run struct {
	Scenario    string    `json:"scenario"`
	Seed        uint64    `json:"seed"`
	Level       string    `json:"level"` // inside, processes, namespaces
	Nodes       int       `json:"nodes"`
	Backends    int       `json:"backends"`
	Consistency string    `json:"consistency"`
	Spread      bool      `json:"spread"`  // sessions are moved to even out load
	Command     string    `json:"command"` // repeats it
	Began       time.Time `json:"began"`
	Healed      time.Time `json:"healed"` // the last fault ended
	Ended       time.Time `json:"ended"`  // traffic ended

	// Recovered is how long it took from Healed on until a thing was as it should be
	// at every node; what never came is not there.
	Recovered map[string]time.Duration `json:"recovered"` // members, leaders, map, bindings, counters
	Wanted    map[string]time.Duration `json:"wanted"`    // what was awaited, and how long at most

	Faults  []Fault    `json:"faults"`
	Turns   []Turn     `json:"turns"`
	Served  []llm.Turn `json:"served"` // as the backends saw them
	Lines   []Line     `json:"lines"`  // as the nodes' access logs have them
	Reads   []Read     `json:"reads"`  // while the traffic ran
	Samples []Sample   `json:"samples"`
	Leaders []Leader   `json:"leaders"`
	States  []State    `json:"states"`
	Votings []Voting   `json:"votings"`
	Twins   []Twin     `json:"twins"`
	First   []Dump     `json:"first"` // before the traffic began
	Last    []Dump     `json:"last"`
	Trouble []string   `json:"trouble"` // what the harness itself could not do
}

// Verdict is what became of one promise.
type Verdict struct {
	Promise string   `json:"promise"` // P1 to P12, or another short name
	Words   string   `json:"words"`   // what was promised
	Held    bool     `json:"held"`
	Numbers string   `json:"numbers"` // what was looked at
	Story   []string `json:"story"`   // of a breach: the shortest that shows it
}
