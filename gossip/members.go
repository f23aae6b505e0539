package gossip

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/starling-lb/starling/proxy/backend"
)

const (
	suspectFor = 30 * time.Second // a suspicion that nobody repeats is over
	udpLostFor = 15 * time.Second // after the last ping that only TCP answered
	reclaim    = 10 * time.Second // after which a dead node's id may come back elsewhere
	maxGone    = 256              // dead and left members that are remembered
	maxKnown   = 768              // members at all; with a key, or on an open port, anybody can invent some
	reaped     = 5 * time.Minute  // after which memberlist, too, has forgotten whoever is gone
	maxLeap    = 1 << 20          // that one message may add to an incarnation: at its end, which is 2^32, a node could never contradict
)

// Member is what a node knows of another, or of itself.
type Member struct {
	ID      string
	Address netip.AddrPort // of gossip
	Meta    Meta
	State   backend.MemberState
	Since   time.Time     // of the state, where it is alive, dead or left
	RTT     time.Duration // of the last ping over UDP; 0: none yet
	UDPLost bool          // only TCP reaches it: its reports may be lost
	Self    bool
}

// Change is one member's change, as it is when it is told: what came between
// is left out.
type Change struct {
	Member Member
	Was    backend.MemberState // empty: not known before
}

// members is what is known of every node. memberlist tells it with its own lock
// held, so nothing here calls memberlist or waits.
type members struct {
	self   string
	now    func() time.Time
	refuse func(peer string, err error)
	moved  chan struct{} // holds one when a change waits
	peers  atomic.Pointer[peers]

	mu      sync.Mutex
	cluster string // our cluster's id; empty: not known yet
	all     map[string]*member
	changed map[string]backend.MemberState // what it was when it was last told
}

type member struct {
	Member
	alive     bool
	inc       uint64 // highest incarnation it was seen alive with, since it joined
	suspected uint64 // and suspected
	departed  uint64 // and said to have left
	top       uint64 // highest incarnation that was ever seen alive
	listed    bool   // memberlist takes it for alive
	expelled  uint64 // incarnation at which it was put out
	doubted   time.Time
	tcpOnly   time.Time
	zombie    bool // of another cluster by its newest metadata
}

// peers is the others that are alive, by their marks. It never changes.
type peers struct {
	list   []peer // by id
	byMark map[uint64]int
}

// peer is one of them.
type peer struct {
	id, name string
	addr     string
	mark     uint64
	boot     uint64
	zone     string
	draining bool
}

func newMembers(self string, now func() time.Time, refuse func(string, error)) *members {
	m := &members{self: self, now: now, refuse: refuse, moved: make(chan struct{}, 1)}
	m.all, m.changed = map[string]*member{}, map[string]backend.MemberState{}
	m.peers.Store(&peers{})
	return m
}

// check refuses a node whose metadata cannot be read or names another cluster.
func (m *members) check(n *memberlist.Node) (Meta, error) {
	meta, err := decodeMeta(n.Meta)
	if err != nil {
		return meta, &refusal{causeBroken, fmt.Sprintf("node %s: %v", n.Name, err)}
	}
	if ours := m.clusterID(); foreign(meta, ours) {
		return meta, &refusal{causeCluster, fmt.Sprintf("node %s (%s) is of cluster %s, this one of %s; mend its cluster.seeds or ours", n.Name, meta.Name, meta.Cluster, ours)}
	}
	return meta, nil
}

func foreign(meta Meta, ours string) bool {
	return ours != "" && meta.Cluster != "" && meta.Cluster != ours
}

// clusterID is our cluster's id; empty: not known yet.
func (m *members) clusterID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cluster
}

// NotifyAlive implements memberlist.AliveDelegate: what it refuses changes
// nothing.
func (m *members) NotifyAlive(n *memberlist.Node) error {
	_, err := m.check(n)
	if err == nil && !m.hasRoom(n.Name) {
		err = &refusal{causeFull, fmt.Sprintf("node %s; %d are known", n.Name, maxKnown)}
	}
	if err != nil {
		m.refuse(n.Address(), err)
	}
	return err
}

// hasRoom tells whether a node is known, or may become so: what memberlist
// remembers is bounded by what we do.
func (m *members) hasRoom(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[id] != nil || len(m.all) < maxKnown {
		return true
	}
	m.forget(func(e *member) bool { return m.now().Sub(e.Since) > reaped })
	return len(m.all) < maxKnown
}

// NotifyMerge implements memberlist.MergeDelegate: a join is whole or not at
// all.
func (m *members) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		if n.State != memberlist.StateAlive && n.State != memberlist.StateSuspect {
			continue
		}
		if _, err := m.check(n); err != nil {
			m.refuse(n.Address(), err)
			return err
		}
	}
	return nil
}

// NotifyJoin implements memberlist.EventDelegate.
func (m *members) NotifyJoin(n *memberlist.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.all[n.Name]
	if e == nil {
		e = &member{Member: Member{ID: n.Name, Self: n.Name == m.self}}
		m.all[n.Name] = e
		m.trim()
	}
	e.inc, e.suspected, e.departed, e.zombie, e.listed = 0, 0, 0, false, true
	m.describe(e, n)
	m.set(e, true, backend.MemberAlive)
}

// NotifyUpdate implements memberlist.EventDelegate.
func (m *members) NotifyUpdate(n *memberlist.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.all[n.Name]; e != nil {
		was := e.state(m.now())
		m.describe(e, n)
		m.tell(e, was)
	}
}

// describe copies: memberlist changes its nodes later on.
func (m *members) describe(e *member, n *memberlist.Node) {
	if addr, ok := netip.AddrFromSlice(n.Addr); ok {
		e.Address = netip.AddrPortFrom(addr.Unmap(), n.Port)
	}
	if meta, err := decodeMeta(n.Meta); err == nil {
		e.Meta = meta
	}
}

// NotifyLeave implements memberlist.EventDelegate, for the dead and those that
// left alike.
func (m *members) NotifyLeave(n *memberlist.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.all[n.Name]
	if e == nil {
		return
	}
	e.listed = false
	state := backend.MemberDead
	if e.departed > 0 && e.departed >= e.inc {
		state = backend.MemberLeft
	}
	m.set(e, false, state)
}

// NotifyConflict implements memberlist.ConflictDelegate.
func (m *members) NotifyConflict(known, other *memberlist.Node) {
	m.refuse(other.Address(), fmt.Errorf("node id %s is already at %s; if it has not just moved, a data directory was copied: stop one of the two and give it a directory of its own", known.Name, known.Address()))
}

// NotifyPingComplete implements memberlist.PingDelegate.
func (m *members) NotifyPingComplete(n *memberlist.Node, rtt time.Duration, _ []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.all[n.Name]; e != nil {
		e.RTT, e.tcpOnly = rtt, time.Time{}
	}
}

// AckPayload implements memberlist.PingDelegate.
func (m *members) AckPayload() []byte { return nil }

// answeredTCP notes that the member at an address answered over TCP what it had
// not answered over UDP.
func (m *members) answeredTCP(address string) (id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.all {
		if e.alive && e.Address.String() == address {
			e.tcpOnly = m.now()
			return e.ID
		}
	}
	return ""
}

// set is called with the lock held.
func (m *members) set(e *member, alive bool, state backend.MemberState) {
	was := e.state(m.now())
	if e.alive != alive || e.State != state {
		e.Since = m.now()
	}
	e.alive, e.State = alive, state
	m.tell(e, was)
}

// tell is called with the lock held.
func (m *members) tell(e *member, was backend.MemberState) {
	if _, waits := m.changed[e.ID]; !waits {
		m.changed[e.ID] = was
	}
	m.publish()
	wake(m.moved)
}

// publish makes the list of those that reports go to; the lock is held.
func (m *members) publish() {
	p := &peers{byMark: map[uint64]int{}}
	for _, id := range slices.Sorted(maps.Keys(m.all)) {
		e := m.all[id]
		if !e.alive || id == m.self {
			continue
		}
		n := peer{id: id, name: e.Meta.Name, addr: e.Address.String(), mark: markOf(id), boot: e.Meta.Boot, zone: e.Meta.Zone, draining: e.Meta.Draining}
		p.byMark[n.mark] = len(p.list)
		p.list = append(p.list, n)
	}
	m.peers.Store(p)
}

// trim forgets those that have been gone longest, as far as memberlist may have
// forgotten them; the lock is held.
func (m *members) trim() {
	var gone []*member
	for _, e := range m.all {
		if !e.alive && !e.listed && e.State != "" {
			gone = append(gone, e)
		}
	}
	slices.SortFunc(gone, func(a, b *member) int { return a.Since.Compare(b.Since) })
	if over := len(gone) - maxGone; over > 0 {
		m.forget(func(e *member) bool { return e.Since.Before(gone[over].Since) && m.now().Sub(e.Since) > reaped })
	}
}

// forget drops those that are gone and meet a condition; the lock is held.
func (m *members) forget(which func(*member) bool) {
	for id, e := range m.all {
		if !e.alive && !e.listed && e.State != "" && which(e) {
			delete(m.all, id)
			delete(m.changed, id)
		}
	}
}

// state is what the member is now.
func (e *member) state(now time.Time) backend.MemberState {
	switch {
	case !e.alive:
		return e.State
	case e.suspected > 0 && e.suspected >= e.inc && now.Sub(e.doubted) < suspectFor:
		return backend.MemberSuspect
	case e.Meta.Draining:
		return backend.MemberDraining
	}
	return backend.MemberAlive
}

// view is the member as others may keep it.
func (e *member) view(now time.Time) Member {
	v := e.Member
	v.State = e.state(now)
	v.UDPLost = !e.tcpOnly.IsZero() && now.Sub(e.tcpOnly) < udpLostFor
	return v
}

// list is everyone, by name and id; without those of other clusters.
func (m *members) list() []Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Member
	for _, e := range m.all {
		if !e.zombie {
			out = append(out, e.view(m.now()))
		}
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Meta.Name, b.Meta.Name), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// drain takes the changes that wait.
func (m *members) drain() []Change {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Change
	for _, id := range slices.Sorted(maps.Keys(m.changed)) {
		out = append(out, Change{m.all[id].view(m.now()), m.changed[id]})
	}
	clear(m.changed)
	return out
}

// adopt sets our cluster's id, once known; members of others are out, and their
// addresses are returned.
func (m *members) adopt(id string) (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cluster = id
	for _, e := range m.all {
		if e.ID != m.self && e.alive && foreign(e.Meta, id) {
			m.expel(e, e.top)
			out = append(out, e.Address.String())
		}
	}
	return out
}
