package gossip

import "github.com/starling-lb/starling/proxy/backend"

// seen hears what messages say of nodes, in and out, before memberlist does. It
// refuses what would take a node's incarnation out of its own reach.
func (m *members) seen(s sighting) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.all[s.node]
	if e == nil {
		return nil
	}
	if e.top > 0 && s.incarnation > e.top+maxLeap {
		return refuse(causeBroken, "node %s is said to be at incarnation %d, it was at %d", s.node, s.incarnation, e.top)
	}
	if s.state == wireAlive {
		m.judge(e, s)
		e.top = max(e.top, s.incarnation)
	}
	if s.node == m.self {
		return nil
	}
	was := e.state(m.now())
	switch s.state {
	case wireAlive:
		e.inc = max(e.inc, s.incarnation)
	case wireLeft:
		e.departed = max(e.departed, s.incarnation)
		return nil // memberlist decides, and tells
	default:
		e.suspected, e.doubted = max(e.suspected, s.incarnation), m.now()
	}
	if e.state(m.now()) != was {
		m.tell(e, was)
	}
	return nil
}

// judge puts a member out that says of itself that it is of another cluster, or
// that cannot be understood any more, and takes it back once it says otherwise.
// Only its newest words count, or its own answer: older ones go round for a
// while, and may have been recorded. The lock is held.
func (m *members) judge(e *member, s sighting) {
	meta, err := decodeMeta(s.meta)
	switch bad := err != nil || foreign(meta, m.cluster); {
	case e.ID == m.self:
	case bad && e.alive && s.incarnation >= e.top:
		m.expel(e, s.incarnation)
	case !bad && e.zombie && e.listed && (s.incarnation > e.expelled || s.from == e.Address.String()):
		e.zombie, e.Meta = false, meta
		m.set(e, true, backend.MemberAlive)
	}
}

// expel takes a member out that memberlist may keep: it refuses the member's
// words from now on, but still gets its answers. The lock is held.
func (m *members) expel(e *member, incarnation uint64) {
	e.zombie, e.expelled = true, incarnation
	m.set(e, false, backend.MemberDead)
}
