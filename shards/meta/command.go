package meta

import (
	"errors"
	"fmt"
	"slices"
)

// Op is what a command does.
type Op string

// The commands of meta's log.
const (
	OpFound Op = "found" // the first one: Map is how the cluster begins
	OpNode  Op = "node"  // node Key becomes Node
	OpShard Op = "shard" // shard Number becomes Shard
	OpPool  Op = "pool"  // pool Key becomes Pool; nil: it goes
	OpLevel Op = "level" // the cluster works at Level
)

// Command is one decision. What it changes must be as the proposer has seen it:
// two controllers that do not know of each other, or one and an operator, cannot
// undo each other's work.
type Command struct {
	Op     Op     `json:"op"`
	Key    string `json:"key,omitempty"`
	Number int    `json:"number,omitempty"`
	Seen   uint64 `json:"seen,omitempty"` // revision of what is changed; 0: it is not there yet
	Map    *Map   `json:"map,omitempty"`
	Node   *Node  `json:"node,omitempty"`
	Shard  *Shard `json:"shard,omitempty"`
	Pool   *Pool  `json:"pool,omitempty"`
	Level  uint32 `json:"level,omitempty"`
}

// Result is what became of a command.
type Result struct {
	Revision uint64 // of the map that holds it
	Refused  error  // why nothing was changed: ErrStale, ErrFounded or ErrInvalid
}

var (
	// ErrStale is a command about something that has changed since: look again.
	ErrStale = errors.New("it has changed meanwhile")
	// ErrFounded is a second founding.
	ErrFounded = errors.New("the cluster is founded already")
	// ErrInvalid is a command that must never be done.
	ErrInvalid = errors.New("it breaks a rule")
)

// Bounds of a map.
const (
	maxNodes  = 1024
	maxShards = 1024
	maxPools  = 1024
	minSecret = 16 // bytes, as many as an attacker should have to guess
)

// Apply runs on every replica with the same commands in the same order, so it may
// use nothing but its arguments. It returns the next map, or the same one and why.
func Apply(m *Map, c Command) (*Map, Result) {
	next := m.clone()
	next.Revision++
	if err := next.change(c); err != nil {
		return m, Result{Revision: m.Revision, Refused: fmt.Errorf("%s %s%s: %w", c.Op, c.Key, number(c), err)}
	}
	return next, Result{Revision: next.Revision}
}

func number(c Command) string {
	if c.Op == OpShard {
		return fmt.Sprint(c.Number)
	}
	return ""
}

func (m *Map) change(c Command) error {
	if c.Op == OpFound {
		return m.found(c.Map)
	}
	if m.Cluster == "" {
		return fmt.Errorf("%w: there is no cluster yet", ErrInvalid)
	}
	switch c.Op {
	case OpNode:
		return m.setNode(c)
	case OpShard:
		return m.setShard(c)
	case OpPool:
		return m.setPool(c)
	case OpLevel:
		return m.setLevel(c.Level)
	}
	panic("BUG: a command that was decoded is not known")
}

// found is a no-op to who founds the same cluster again: it did not hear that it
// had.
func (m *Map) found(first *Map) error {
	if m.Cluster != "" {
		return ErrFounded
	}
	if err := first.check(); err != nil {
		return err
	}
	revision := max(m.Revision, first.Revision) // of a cluster that begins again, those before count
	*m = *first.clone()
	m.Revision = revision
	return nil
}

func (m *Map) setNode(c Command) error {
	was, known := m.Nodes[c.Key]
	switch {
	case was.Revision != c.Seen:
		return ErrStale
	case !known && !m.room():
		return fmt.Errorf("%w: there are %d nodes already", ErrInvalid, maxNodes)
	case c.Node.State == Removed && m.used(c.Key):
		return fmt.Errorf("%w: it still has replicas", ErrInvalid)
	case c.Node.Leaving && c.Node.State == Draining && !was.Leaving && m.used(c.Key) && !m.otherHost(c.Key):
		return fmt.Errorf("%w: the others that host shards leave, too", ErrStale) // who looks again sees that
	}
	n := *c.Node
	n.Revision = m.Revision
	m.Nodes[c.Key] = n
	return nil
}

// otherHost tells whether another node than this one may get replicas.
func (m *Map) otherHost(node string) bool {
	return slices.ContainsFunc(m.sorted(Node.fit), func(id string) bool { return id != node })
}

// room tells whether one more node fits, and forgets the one that was removed
// longest ago if need be.
func (m *Map) room() bool {
	if len(m.Nodes) < maxNodes {
		return true
	}
	oldest := ""
	for _, id := range m.sorted(func(n Node) bool { return n.State == Removed }) {
		if oldest == "" || m.Nodes[id].Revision < m.Nodes[oldest].Revision {
			oldest = id
		}
	}
	delete(m.Nodes, oldest)
	return oldest != ""
}

// used tells whether a node is named as holder of a replica.
func (m *Map) used(node string) bool {
	return slices.ContainsFunc(m.Shards, func(s Shard) bool { return s.keeps(node) })
}

func (m *Map) setShard(c Command) error {
	if c.Number >= len(m.Shards) {
		return fmt.Errorf("%w: there are %d shards", ErrInvalid, len(m.Shards))
	}
	was, next := m.Shards[c.Number], *c.Shard
	if was.Revision != c.Seen {
		return ErrStale
	}
	if err := was.mayBecome(next); err != nil {
		return err
	}
	for _, r := range next.Replicas {
		if n, known := m.Nodes[r.Node]; !known || n.State == Removed {
			return fmt.Errorf("%w: node %s is none of the cluster", ErrInvalid, r.Node)
		}
	}
	next.Replicas = slices.Clone(next.Replicas)
	for i, r := range next.Replicas {
		if r.Life == 0 {
			next.Replicas[i].Life = m.Revision
		}
	}
	next.Revision = m.Revision
	m.Shards[c.Number] = next
	return nil
}

// mayBecome keeps the one rule that would split a shard if it were broken: what
// was created is not created again, but in a new incarnation.
func (s Shard) mayBecome(next Shard) error {
	if err := next.check(); err != nil {
		return err
	}
	switch {
	case next.Incarnation < s.Incarnation:
		return fmt.Errorf("%w: incarnation %d comes after %d", ErrInvalid, next.Incarnation, s.Incarnation)
	case next.Incarnation > s.Incarnation:
		return nil
	case s.Phase == Ready && next.Phase == Ready && s.drops(next):
		return fmt.Errorf("%w: a node would lose its replica before its group has let it go", ErrInvalid)
	case s.Phase == Ready && next.Phase != Ready:
		return fmt.Errorf("%w: incarnation %d was created already", ErrInvalid, s.Incarnation)
	case s.Phase == Creating && (next.Phase == Planned || next.Phase == Creating && next.Founder != s.Founder):
		return fmt.Errorf("%w: node %s may have created incarnation %d already", ErrInvalid, s.Founder, s.Incarnation)
	}
	return nil
}

// drops tells whether a node would lose its replica, and perhaps its vote, although
// nobody has said that the group is as it was to become.
func (s Shard) drops(next Shard) bool {
	same := func(a, b Replica) bool { return a.Node == b.Node && a.Voter == b.Voter }
	if s.Step != nil && next.Step == nil && slices.EqualFunc(s.Replicas, next.Replicas, same) {
		return false // it is done
	}
	kept := func(node string) bool { return next.keeps(node) }
	for _, r := range s.Replicas {
		if !kept(r.Node) {
			return true
		}
	}
	return s.Step != nil && !all(s.Step.Leaving, kept)
}

func all(nodes []string, are func(string) bool) bool {
	return !slices.ContainsFunc(nodes, func(n string) bool { return !are(n) })
}

// counts tells whether the level of the cluster waits for the node. One that is dead
// may be so for ever; if it comes back it has to be as new as the others first.
func (n Node) counts() bool { return n.State != Removed && n.State != Dead }

func (m *Map) setPool(c Command) error {
	was, known := m.Pools[c.Key]
	switch {
	case was.Revision != c.Seen:
		return ErrStale
	case !known && len(m.Pools) >= maxPools:
		return fmt.Errorf("%w: there are %d pools already", ErrInvalid, maxPools)
	case c.Pool == nil:
		delete(m.Pools, c.Key)
		return nil
	}
	p := *c.Pool
	p.Revision = m.Revision
	m.Pools[c.Key] = p
	return nil
}

func (m *Map) setLevel(level uint32) error {
	if level <= m.Level {
		return ErrStale
	}
	for id, n := range m.Nodes {
		if n.counts() && n.Level < level {
			return fmt.Errorf("%w: node %s (%s) can do %d at most", ErrInvalid, n.Name, id, n.Level)
		}
	}
	m.Level = level
	return nil
}
