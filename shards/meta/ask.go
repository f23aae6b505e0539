package meta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
)

// Service is the name of the calls between keepers, and MaxQuestion their size.
const (
	Service     = "meta"
	MaxQuestion = 1 << 20
)

// question is what a node tells another, and asks it. Fields that are not known
// are passed over: nodes of two versions talk.
type question struct {
	Node     Node   `json:"node"`         // who it is
	At       string `json:"at,omitempty"` // and where it is reached
	Revision uint64 `json:"revision"`     // of its map

	Generation uint32   `json:"generation,omitempty"` // of that
	Run        uint64   `json:"run,omitempty"`        // of the node, see Peer
	Runs       []uint64 `json:"runs,omitempty"`

	Groups  map[int]Group    `json:"groups,omitempty"`  // those it leads
	Hash    uint64           `json:"hash,omitempty"`    // of what it names
	Names   map[string]Named `json:"names,omitempty"`   // that, if the other does not have it
	Command []byte           `json:"command,omitempty"` // for the leader of meta to propose
	Look    *int             `json:"look,omitempty"`    // a shard: how much of it is there?
	Open    *Own             `json:"open,omitempty"`    // is that replica open there?
	Term    uint64           `json:"term,omitempty"`    // then: of the group that it is to be a member of
}

// reports tells whether a question is what a node says of itself in each round: no
// other one says who it is and what it names.
func (q question) reports() bool {
	return q.Revision > 0 && q.Command == nil && q.Look == nil && q.Open == nil
}

// reply is the answer.
type reply struct {
	Map      []byte    `json:"map,omitempty"`    // if it has a newer one
	Leader   string    `json:"leader,omitempty"` // of meta, as far as it knows
	Open     bool      `json:"open,omitempty"`
	Kept     []Kept    `json:"kept,omitempty"`     // of what was looked for
	Leads    uint32    `json:"leads,omitempty"`    // of that, the incarnation that it leads; 0: none
	Group    []Replica `json:"group,omitempty"`    // and the members of the group that is open there
	Hash     uint64    `json:"hash,omitempty"`     // of what it knows the asker to name
	Revision uint64    `json:"revision,omitempty"` // of the map that holds the command
	Refused  string    `json:"refused,omitempty"`  // why what was asked was not done
	Stale    bool      `json:"stale,omitempty"`    // Refused is ErrStale
	Invalid  bool      `json:"invalid,omitempty"`  // Refused is ErrInvalid

	Generation uint32 `json:"generation,omitempty"` // of its map, or a later one that it has heard of
	Place      string `json:"place,omitempty"`      // where it knows the asker, if that is elsewhere
}

// ErrElsewhere is a question to a node that cannot do what was asked.
var ErrElsewhere = errors.New("meta is led by another node, or by none now")

// Answer answers a question of the node from, which the transport has proven.
func (k *Keeper) Answer(ctx context.Context, from string, b []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(b, &q); err != nil {
		return nil, fmt.Errorf("question to meta %w: %w", errCode, err)
	}
	k.heed(q.Generation, from)
	if m := k.Map(); m != nil && m.Revision < q.Revision && k.knows(from) {
		k.Nudge() // it is asked for
	}
	r := reply{Generation: k.latest()}
	peer, seen := k.o.Neighbours.Peers()[from]
	astray := q.At != "" && peer.At != "" && q.At != peer.At // a copy of the node's directory, perhaps: it speaks for nobody
	switch leads := k.leads(); {
	case leads && seen && !astray && q.reports(): // a stranger may ask for the map, and is no node yet
		r.Hash = k.hear(from, q)
		r.Leader = k.o.Self
	case leads:
		r.Leader = k.o.Self
	default:
		r.Leader = k.metaLeader()
	}
	if astray {
		r.Place = peer.At
	}
	switch {
	case q.Command != nil && astray:
		r.refuse(fmt.Errorf("node %s says that it is at %s, and is known at %s; if it has not just moved, a data directory was copied: give each node its own", from, q.At, peer.At))
	case q.Command != nil && !k.knows(from):
		r.refuse(fmt.Errorf("%w: node %s is none of the cluster", ErrInvalid, from))
	case q.Command != nil:
		r.refuse(k.obey(ctx, q.Command, &r))
	}
	if q.Look != nil {
		var err error
		var here looked
		if here, err = k.look(*q.Look); err != nil {
			return nil, err
		}
		r.Kept, r.Leads, r.Group = here.kept, here.leads, here.group
	}
	if q.Open != nil {
		r.Open = k.isOpen(*q.Open) && k.knows(from) && !k.strange(*q.Open, from, q.Term)
	}
	if m := k.Map(); m != nil && (m.Revision > q.Revision || q.Generation > 0 && m.Generation() > q.Generation) {
		r.Map, r.Generation = k.encoded(m), max(r.Generation, m.Generation())
	}
	return marshal(r), nil
}

// knows tells whether a node is one of the cluster.
func (k *Keeper) knows(node string) bool {
	m := k.Map()
	if m == nil {
		return false
	}
	n, known := m.Nodes[node]
	return known && n.State != Removed
}

func (r *reply) refuse(err error) {
	if err != nil {
		r.Refused, r.Stale, r.Invalid = err.Error(), errors.Is(err, ErrStale), errors.Is(err, ErrInvalid)
	}
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error()) // texts and numbers alone
	}
	return b
}

// obey proposes a command for another node.
func (k *Keeper) obey(ctx context.Context, command []byte, r *reply) error {
	c, err := DecodeCommand(command)
	if err != nil {
		return err
	}
	result, err := k.propose(ctx, c)
	r.Revision = result.Revision
	return err
}

// propose has a command done, on the leader of meta.
func (k *Keeper) propose(ctx context.Context, c Command) (Result, error) {
	if !k.leads() {
		return Result{}, ErrElsewhere
	}
	b := c.Encode()
	if _, err := DecodeCommand(b); err != nil { // in the log it would halt every replica
		return Result{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	done, err := k.o.Groups.Propose(ctx, b)
	if err != nil {
		return Result{}, fmt.Errorf("propose to meta: %w", err)
	}
	r := done.(Result)
	return r, r.Refused
}

// Propose has a command done, here or where meta is led. It was not done after
// ErrStale, ErrInvalid and ErrElsewhere; after any other error it may have been.
func (k *Keeper) Propose(ctx context.Context, c Command) (Result, error) {
	r, err := k.propose(ctx, c)
	if !errors.Is(err, ErrElsewhere) {
		return r, err
	}
	leader := k.metaLeader()
	if leader == "" || leader == k.o.Self {
		return Result{}, ErrElsewhere
	}
	a, err := k.ask(ctx, leader, question{Command: c.Encode()})
	switch {
	case err != nil:
		return Result{}, err
	case a.Stale:
		return Result{}, fmt.Errorf("%s: %w", a.Refused, ErrStale)
	case a.Invalid:
		return Result{}, fmt.Errorf("%s: %w", a.Refused, ErrInvalid)
	case a.Refused != "":
		return Result{}, errors.New(a.Refused)
	}
	return Result{Revision: a.Revision}, nil
}

// ask asks another node, and takes its map if it is newer.
func (k *Keeper) ask(ctx context.Context, node string, q question) (reply, error) {
	self := k.o.Neighbours.Peers()[k.o.Self]
	q.Node, q.At = self.Node, self.At
	if m := k.Map(); m != nil {
		q.Generation = m.Generation()
	}
	b, err := k.o.Neighbours.Ask(ctx, node, marshal(q))
	if err != nil {
		return reply{}, err
	}
	r, m, err := readReply(b)
	if err == nil && m != nil {
		err = k.Take(m)
	}
	k.heed(r.Generation, node)
	return r, err
}

func readReply(b []byte) (r reply, m *Map, err error) {
	if err := json.Unmarshal(b, &r); err != nil {
		return r, nil, fmt.Errorf("answer of meta %w: %w", errCode, err)
	}
	if r.Map != nil {
		m, err = DecodeMap(r.Map)
	}
	return r, m, err
}

// Ask asks a node for the map of its cluster, for one that has none yet.
func Ask(ctx context.Context, to Neighbours, node string, self Node) (*Map, error) {
	b, err := to.Ask(ctx, node, marshal(question{Node: self}))
	if err != nil {
		return nil, fmt.Errorf("ask node %s for the map: %w", node, err)
	}
	_, m, err := readReply(b)
	if err == nil && m == nil {
		err = errors.New("it has none")
	}
	if err != nil {
		return nil, fmt.Errorf("ask node %s for the map: %w", node, err)
	}
	return m, nil
}

// leads tells whether this node leads meta and may decide.
func (k *Keeper) leads() bool {
	st, open := k.o.Groups.Status(0)
	applied, _ := k.o.Machine.Map()
	return open && st.Open && applied.Cluster != "" && !k.fenced() && k.outlives(st)
}

// metaLeader is who leads meta, as far as this node knows.
func (k *Keeper) metaLeader() string {
	if st, open := k.o.Groups.Status(0); open && st.Leader != "" {
		return st.Leader
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leader
}

// tell tells the leader of meta who this node is and what it leads, and hears of
// newer maps in return.
func (k *Keeper) tell() {
	ctx, cancel := context.WithTimeout(k.ctx, 2*round)
	defer cancel()
	if err := k.report(ctx); err != nil && k.ctx.Err() == nil {
		k.o.Log.Debug("the leader of meta was not told", "err", err)
	}
}

// report tells the leader of meta, or, where none is known, one other node after
// the other.
func (k *Keeper) report(ctx context.Context) error {
	m := k.Map()
	if m == nil {
		return nil
	}
	place := "" // unless somebody says otherwise now
	defer func() { k.toldPlace(place) }()
	if k.listen(); k.fenced() {
		return k.succeed(ctx, m)
	}
	q := question{Revision: m.Revision, Groups: k.led(), Node: k.o.Neighbours.Peers()[k.o.Self].Node, Run: k.o.Run, Runs: k.runs}
	k.name(&q)
	if k.leads() {
		k.hear(k.o.Self, q)
		k.met()
		return nil
	}
	to := k.whom(m)
	if to == "" {
		return nil
	}
	r, err := k.ask(ctx, to, q)
	if err == nil && r.Leader == to {
		k.met()
	}
	place = r.Place
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heeded = r.Hash
	k.leader, k.missed = r.Leader, r.Leader == "" || r.Leader == k.o.Self
	return err
}

// Place is where the others know this node, if that is elsewhere: it has just moved, or
// its data directory is a copy. "": it is where they know it, or nobody was there to say
// so in the last round.
func (k *Keeper) Place() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.knownAt
}

func (k *Keeper) toldPlace(at string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.knownAt = at
}

// announce has the nodes that keep no replica of meta hear of a newer map at once,
// while it is led here; in their rounds they would a second later. Many maps in a
// moment are told of together. Who does not answer is waited for by nobody else.
func (k *Keeper) announce() {
	m := k.Map()
	if m == nil || m.Revision == k.announced || !k.leads() {
		return
	}
	k.announced = m.Revision
	told := false
	for id, p := range k.o.Neighbours.Peers() {
		if id != k.o.Self && p.Alive && !m.Shards[0].keeps(id) {
			k.announceTo(id, m.Revision)
			told = true
		}
	}
	if told {
		k.rest(hurry, nil)
	}
}

// announceTo tells a node of a revision, unless it has not answered yet what it was
// told before: then it asks for the newest map as soon as it hears, or in its round.
func (k *Keeper) announceTo(node string, revision uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.telling[node] {
		return
	}
	k.telling[node] = true
	k.start(func() {
		ctx, cancel := context.WithTimeout(k.ctx, round)
		defer cancel()
		_, _ = k.ask(ctx, node, question{Revision: revision})
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.telling, node)
	})
}

// encoded is the map as it is sent: a crowd asks for the same one.
func (k *Keeper) encoded(m *Map) []byte {
	k.mu.Lock()
	of, b := k.coded.of, k.coded.bytes
	k.mu.Unlock()
	if of == m {
		return b
	}
	b = m.Encode()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.coded.of, k.coded.bytes = m, b
	return b
}

// name puts into a report what this node names, if the leader does not have it.
func (k *Keeper) name(q *question) {
	if k.o.Names == nil {
		return
	}
	names := k.o.Names()
	h := fnv.New64a()
	_, _ = h.Write(marshal(names)) // never fails
	q.Hash = max(1, h.Sum64())
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.heeded != q.Hash {
		q.Names = names
	}
}

// whom says which node to report to: who led meta last, or after a miss another at
// each turn.
func (k *Keeper) whom(m *Map) string {
	k.mu.Lock()
	k.turn++
	to, missed, turn := k.leader, k.missed, k.turn
	k.mu.Unlock()
	if to == "" && !missed {
		to = k.metaLeader()
	}
	if to == "" || missed || to == k.o.Self {
		to = k.anyone(m, turn)
	}
	return to
}

// anyone is a node to ask, another at each turn: a live one. Those that hold meta
// come first, but the map may be so old that none of its nodes is left.
func (k *Keeper) anyone(m *Map, turn int) string {
	var holders, others []string
	for id, p := range k.o.Neighbours.Peers() {
		switch {
		case id == k.o.Self || !p.Alive:
		case m.Shards[0].keeps(id):
			holders = append(holders, id)
		default:
			others = append(others, id)
		}
	}
	slices.Sort(holders)
	slices.Sort(others)
	nodes := append(holders, others...)
	if len(nodes) == 0 {
		return ""
	}
	return nodes[turn%len(nodes)]
}

// led is the groups that this node leads.
func (k *Keeper) led() map[int]Group {
	groups := make(map[int]Group)
	for _, r := range k.Own() {
		if st, open := k.o.Groups.Status(r.Shard); open && st.Open && st.Incarnation == r.Incarnation {
			groups[r.Shard] = k.watch(r.Shard, st)
		}
	}
	return groups
}
