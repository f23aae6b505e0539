package meta

import (
	"maps"
	"slices"
)

// Map is all that the cluster has agreed on. A Map that was handed out never
// changes: a command makes a new one, which shares what stays the same.
type Map struct {
	Revision uint64          `json:"revision"`         // counts the commands that changed something; 0: there is no cluster yet
	Cluster  string          `json:"cluster"`          // a UUID, for ever
	Secret   []byte          `json:"secret,omitempty"` // of the hash of session keys, for ever; nil in what Public returns
	Replicas int             `json:"replicas"`         // of each shard, as soon as there are nodes for them
	Level    uint32          `json:"level"`            // what every node of the cluster can do; only grows
	Nodes    map[string]Node `json:"nodes"`            // by id
	Shards   []Shard         `json:"shards"`           // by number: 0 is meta's own, the sessions' are 1 to Count()
	Pools    map[string]Pool `json:"pools"`            // by name
}

// Node is a node of the cluster.
type Node struct {
	Name     string    `json:"name"`
	Zone     string    `json:"zone,omitempty"`
	State    NodeState `json:"state"`
	Hosts    bool      `json:"hosts"`             // replicas; a pure proxy does not
	Leaving  bool      `json:"leaving,omitempty"` // Draining ends in Removed
	Level    uint32    `json:"level,omitempty"`   // the highest it can work at
	Boot     uint64    `json:"boot,omitempty"`    // counts its starts
	Run      uint64    `json:"run,omitempty"`     // numbers its last run, as its data directory does
	Since    uint64    `json:"since,omitempty"`   // when it was declared dead, in milliseconds since 1970; 0 where it is not
	Revision uint64    `json:"revision"`          // of its last change
}

// NodeState is what the cluster has agreed on about a node. How it is at the
// moment is gossip's matter.
type NodeState string

// The states of a node.
const (
	Joining  NodeState = "joining" // seen, and not heard by rpc yet
	Active   NodeState = "active"
	Draining NodeState = "draining" // its replicas move away
	Dead     NodeState = "dead"     // its replicas are replaced where there is another node for them
	Removed  NodeState = "removed"  // remembered only; if it comes back it begins anew
)

// Shard is where a shard's replicas shall be.
type Shard struct {
	Incarnation uint32    `json:"incarnation"` // counts the lives of the shard; the replicas of an earlier one are fenced
	Phase       Phase     `json:"phase"`
	Founder     string    `json:"founder,omitempty"` // the one node that may make the group, while Phase is Creating
	Replicas    []Replica `json:"replicas"`          // as they shall be, by node
	Step        *Step     `json:"step,omitempty"`    // on the way there; nil: the group is known to be as Replicas says
	Revision    uint64    `json:"revision"`          // of its last change
}

// Phase says whether a shard's group has been made.
type Phase string

// The phases of an incarnation; Ready is for ever.
const (
	Planned  Phase = "planned"  // nobody makes it yet
	Creating Phase = "creating" // its founder makes it
	Ready    Phase = "ready"    // it was made: an empty replica of it only ever listens
)

// Replica is one wanted member of a shard's group.
//
// Life tells a node's replicas of a shard apart, the earlier and the later: it is
// the revision of the map that gave the node this one (0 in a command: a new one).
// To the group they are two members, for the later one knows nothing of what the
// earlier one has promised.
type Replica struct {
	Node  string `json:"node"`
	Life  uint64 `json:"life"`
	Voter bool   `json:"voter"`
}

// Step is what is done to a shard, for the reconciler and for people.
type Step struct {
	Kind    Kind     `json:"kind"`
	Node    string   `json:"node,omitempty"`    // that the step is about
	Reason  string   `json:"reason"`            // why, in words
	Leaving []string `json:"leaving,omitempty"` // nodes that keep their replica until the step is done
}

// Kind says what a step is for.
type Kind string

// The kinds of steps.
const (
	Create  Kind = "create"  // Node makes the group
	Grow    Kind = "grow"    // Node gets a replica, or a vote
	Shrink  Kind = "shrink"  // Node loses one
	Move    Kind = "move"    // Node gives its replica to another
	Replace Kind = "replace" // Node is dead
	Reset   Kind = "reset"   // the shard lost its majority; Node makes it anew
	Regain  Kind = "regain"  // shard 0 was recovered on Node, and nobody has said yet how the group is: nobody loses its replica
)

// Count is how many session shards there are; fixed when the cluster is founded.
func (m *Map) Count() int { return max(0, len(m.Shards)-1) }

// Public is the map without the secret, for what is not sealed.
func (m *Map) Public() *Map {
	p := *m
	p.Secret = nil
	return &p
}

// Wants returns the shard's wanted replica on a node.
func (s Shard) Wants(node string) (Replica, bool) {
	for _, r := range s.Replicas {
		if r.Node == node {
			return r, true
		}
	}
	return Replica{}, false
}

// has returns the shard's wanted replica that a member of its group is.
func (s Shard) has(m Member) (Replica, bool) {
	r, wanted := s.Wants(m.Node)
	if r.Life != m.Life {
		return Replica{}, false
	}
	return r, wanted
}

// Voters is how many replicas shall vote.
func (s Shard) Voters() (n int) {
	for _, r := range s.Replicas {
		if r.Voter {
			n++
		}
	}
	return n
}

// keeps tells whether the node still has a replica: a wanted one, or one that the
// group has not let go yet.
func (s Shard) keeps(node string) bool {
	_, wanted := s.Wants(node)
	return wanted || s.Step != nil && (s.Step.Kind == Regain || slices.Contains(s.Step.Leaving, node))
}

// keepsOwn is keeps for one life of a replica: one that another is to follow goes.
func (s Shard) keepsOwn(node string, life uint64) bool {
	r, wanted := s.Wants(node)
	return wanted && r.Life == life || !wanted && s.keeps(node) || s.Step != nil && s.Step.Kind == Regain
}

// name is what people call a node; its id where no name is known.
func (m *Map) name(id string) string {
	if n := m.Nodes[id].Name; n != "" {
		return n
	}
	return id
}

// clone is a copy whose tables may be changed; what they hold must be replaced,
// not changed.
func (m *Map) clone() *Map {
	c := *m
	c.Nodes, c.Pools, c.Shards = maps.Clone(m.Nodes), maps.Clone(m.Pools), slices.Clone(m.Shards)
	if c.Nodes == nil {
		c.Nodes = make(map[string]Node)
	}
	if c.Pools == nil {
		c.Pools = make(map[string]Pool)
	}
	return &c
}

// sorted returns the ids of the nodes that are as asked, in order.
func (m *Map) sorted(which func(Node) bool) (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(m.Nodes)) {
		if which(m.Nodes[id]) {
			ids = append(ids, id)
		}
	}
	return ids
}
