package api

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// EventKind says what changed.
type EventKind string

// The kinds of event; the list is closed.
const (
	StateEvent    EventKind = "state"    // of a backend
	PanicEvent    EventKind = "panic"    // of a pool: it began or ended
	PoolEvent     EventKind = "pool"     // its policy, its rebalancing, or its list of backends
	MoveEvent     EventKind = "move"     // of sessions, between their turns
	MemberEvent   EventKind = "member"   // of the cluster, as gossip sees it
	NodeEvent     EventKind = "node"     // of the cluster, as it is agreed
	LeaderEvent   EventKind = "leader"   // of a shard
	StepEvent     EventKind = "step"     // of what is done to a shard
	ReadyEvent    EventKind = "ready"    // this node may get traffic, or shall not any more
	DrainEvent    EventKind = "drain"    // of this node
	ReloadEvent   EventKind = "reload"   // of the configuration: reason says what came of it
	UpgradeEvent  EventKind = "upgrade"  // of this node's process and program: reason says how far it is
	OperatorEvent EventKind = "operator" // somebody had this node do something
	LostEvent     EventKind = "lost"     // the reader missed some
)

// EventKinds lists every EventKind.
func EventKinds() []EventKind {
	return []EventKind{
		StateEvent, PanicEvent, PoolEvent, MoveEvent, MemberEvent, NodeEvent, LeaderEvent, StepEvent, ReadyEvent, DrainEvent, ReloadEvent, UpgradeEvent, OperatorEvent, LostEvent,
	}
}

// Event is one change, as GET /v1/events streams them.
type Event struct {
	ID       string    `json:"id,omitempty"` // to go on behind it; of LostEvent none
	Kind     EventKind `json:"kind"`
	Time     time.Time `json:"time"`
	Node     string    `json:"node,omitempty"`  // name of the member that it is about
	Shard    *int      `json:"shard,omitempty"` // likewise; 0 is the cluster's own
	Pool     string    `json:"pool,omitempty"`
	Backend  string    `json:"backend,omitempty"`
	From     string    `json:"from,omitempty"` // as to where an ejection went on, or a drain was over
	To       string    `json:"to,omitempty"`
	Panic    bool      `json:"panic,omitempty"`    // of PanicEvent: it began
	Sessions int64     `json:"sessions,omitempty"` // of MoveEvent: how many
	Reason   string    `json:"reason,omitempty"`
	Lost     int       `json:"lost,omitempty"` // of LostEvent: how many, before the next
}

// Text says an event in a line, for people.
func (e Event) Text() string {
	var about []string
	if e.Pool != "" && e.Backend == "" {
		about = append(about, "pool "+e.Pool)
	}
	for _, name := range []string{e.Backend, e.Node} {
		if name != "" {
			about = append(about, name)
		}
	}
	if e.Shard != nil {
		about = append(about, fmt.Sprintf("shard %d", *e.Shard))
	}
	switch {
	case e.Kind == PanicEvent && e.Panic:
		about = append(about, "is in panic")
	case e.Kind == PanicEvent:
		about = append(about, "is no longer in panic")
	case e.Kind == MoveEvent:
		about = append(about, fmt.Sprintf("%d sessions %s", e.Sessions, e.To))
	case e.Lost > 0:
		about = append(about, fmt.Sprintf("%d missed", e.Lost))
	case e.Kind == StepEvent:
		about = append(about, cmp.Or(e.To, e.From)) // the reason says whether it is over
	case e.Kind == LeaderEvent && e.To == "":
		about = append(about, "has lost its leader "+e.From)
	case e.Kind == LeaderEvent && (e.From == "" || e.From == e.To): // or elected again
		about = append(about, "led by "+e.To)
	case e.Kind == UpgradeEvent && e.From == e.To: // the reason says all
	case e.From != "" && e.From == e.To:
		about = append(about, "stays "+e.To)
	case e.From != "" && e.To != "":
		about = append(about, e.From+" -> "+e.To)
	case e.To != "":
		about = append(about, e.To)
	case e.From != "":
		about = append(about, "no longer "+e.From)
	}
	text := strings.Join(about, " ")
	if e.Reason != "" && text != "" {
		text += ": "
	}
	return text + e.Reason
}
