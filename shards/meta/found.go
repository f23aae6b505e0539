package meta

import (
	"cmp"
	"crypto/rand"
	"fmt"
)

// Newcomer is a live node as gossip shows it to one that has no cluster yet.
type Newcomer struct {
	ID      string
	Name    string
	Zone    string
	Hosts   bool
	Level   uint32
	Cluster string // "": it has none either
	Expect  int    // its cluster.bootstrap_expect
	Sees    int    // newcomers that it says it sees, itself included
}

// Founding is what a node without a cluster shall do.
type Founding struct {
	Join   string // the cluster to ask to be let in; "": none
	Found  bool   // this node founds
	Sees   int    // newcomers that it shall say it sees
	Reason string // what it waits for, in words
}

// Found decides for the node self, which is among those seen. To join comes
// first, always. Else all have to see the same: exactly as many newcomers as each
// expects, so that two halves of a network cannot found two clusters.
func Found(self string, seen []Newcomer) Founding {
	var own Newcomer
	var fresh []Newcomer
	for _, n := range seen {
		if n.Cluster != "" {
			return Founding{Join: n.Cluster, Reason: fmt.Sprintf("asks to be let into cluster %s, which node %s is of", n.Cluster, n.Name)}
		}
		if n.ID == self {
			own = n
		}
		fresh = append(fresh, n)
	}
	f := Founding{Sees: len(fresh)}
	f.Reason = waits(own, fresh)
	f.Found = f.Reason == "" && self == founder(fresh)
	if f.Reason == "" && !f.Found {
		f.Reason = fmt.Sprintf("node %s founds the cluster", name(founder(fresh), fresh))
	}
	return f
}

// waits says what keeps a node from founding; "": nothing.
func waits(own Newcomer, fresh []Newcomer) string {
	switch {
	case len(fresh) < own.Expect:
		return fmt.Sprintf("sees %d of the %d nodes that found a cluster (cluster.bootstrap_expect)", len(fresh), own.Expect)
	case len(fresh) > own.Expect:
		return fmt.Sprintf("sees %d new nodes where cluster.bootstrap_expect says %d; set it to the number of nodes that start, on all of them, or start one of them without cluster.seeds first", len(fresh), own.Expect)
	case founder(fresh) == "":
		return "none of the nodes hosts shards; set shards.host on one at least"
	}
	for _, n := range fresh {
		switch {
		case n.Expect != own.Expect:
			return fmt.Sprintf("node %s expects %d nodes, this one %d; set cluster.bootstrap_expect to the same on both", n.Name, n.Expect, own.Expect)
		case n.Sees != own.Expect && n.ID != own.ID:
			return fmt.Sprintf("node %s sees %d of %d nodes by now", n.Name, n.Sees, own.Expect)
		}
	}
	return ""
}

// founder is the lowest id among those that host; "": none does.
func founder(fresh []Newcomer) (id string) {
	for _, n := range fresh {
		if n.Hosts && (id == "" || n.ID < id) {
			id = n.ID
		}
	}
	return id
}

func name(id string, of []Newcomer) string {
	for _, n := range of {
		if n.ID == id {
			return n.Name
		}
	}
	return id
}

// NewMap is a cluster at its beginning: founder holds meta, alone; the others are
// joining; the shards are planned. It draws the id and the secret.
func NewMap(founder string, count, replicas int, level uint32, nodes []Newcomer) *Map {
	m := &Map{
		Revision: 1, Cluster: newID(), Secret: make([]byte, 32), Replicas: replicas, Level: level,
		Nodes: make(map[string]Node), Pools: make(map[string]Pool), Shards: make([]Shard, count+1),
	}
	_, _ = rand.Read(m.Secret) // never fails
	for _, n := range nodes {
		state := Joining
		if n.ID == founder {
			state = Active
		}
		m.Nodes[n.ID] = Node{Name: n.Name, Zone: n.Zone, State: state, Hosts: n.Hosts, Level: n.Level, Revision: 1}
		m.Level = min(m.Level, cmp.Or(n.Level, level))
	}
	for i := range m.Shards {
		m.Shards[i] = Shard{Phase: Planned, Replicas: []Replica{}, Revision: 1}
	}
	m.Shards[0] = Shard{Incarnation: 1, Phase: Ready, Founder: founder, Replicas: []Replica{{Node: founder, Life: 1, Voter: true}}, Revision: 1}
	return m
}

// newID is a random UUID (RFC 9562 section 5.4).
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
