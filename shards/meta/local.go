package meta

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Own is one replica of this node.
type Own struct {
	Shard       int    `json:"shard"`
	Incarnation uint32 `json:"incarnation"`
	Life        uint64 `json:"life"`
	Founded     bool   `json:"founded,omitempty"` // this node has made the group, or tried to: never again
	Again       bool   `json:"again,omitempty"`   // but for once: it has not opened yet, and nobody else has any of it
	Map         uint64 `json:"map"`               // revision of the map that asked for it
}

// Errand is what a node shall do with one of its replicas.
type Errand struct {
	Do    Verb
	Own   Own
	Found bool  // of OpenIt: it makes the group
	Kept  bool  // of OpenIt: it ran here before, so its data must be here
	Seeds []Own // then: what this node kept of earlier incarnations, the last one first, to begin with
}

// Verb is what to do with a replica.
type Verb string

// The verbs.
const (
	OpenIt   Verb = "open"   // it is new here: note it first
	CloseIt  Verb = "close"  // its data stays, as it may be needed to make the shard anew
	DeleteIt Verb = "delete" // it and its data
)

// Local says what a node does so that its replicas, own, become what the map
// says. An older map than the one that asked for a replica cannot take it away,
// and a group's founder makes it once, whatever happens. What open says is open
// and no more is closed.
func Local(m *Map, self string, own []Own, open func(Own) bool) (errands []Errand) {
	for _, o := range own {
		s := Shard{}
		if o.Shard < len(m.Shards) {
			s = m.Shards[o.Shard]
		}
		switch {
		case m.Revision <= o.Map:
		case o.Incarnation > s.Incarnation:
			if s.settled(self) && m.foreign(o) {
				errands = append(errands, Errand{Do: DeleteIt, Own: o})
			}
		case o.Incarnation < s.Incarnation && s.Phase != Ready:
			if open(o) {
				errands = append(errands, Errand{Do: CloseIt, Own: o})
			}
		case o.Incarnation == s.Incarnation && s.Phase == Creating && m.foreign(o): // it was made since, and has members by now; its leader says so
		case o.Incarnation < s.Incarnation, !s.keepsOwn(self, o.Life):
			errands = append(errands, Errand{Do: DeleteIt, Own: o})
		}
	}
	for i, s := range m.Shards {
		r, wanted := s.Wants(self)
		if wanted && s.Phase != Planned && !slices.ContainsFunc(own, func(o Own) bool {
			return o.Shard == i && (o.Incarnation > s.Incarnation || o.Incarnation == s.Incarnation && o.Life >= r.Life)
		}) {
			found := s.Founder == self && (s.Phase == Creating || m.atFounding(i))
			e := Errand{Do: OpenIt, Own: Own{Shard: i, Incarnation: s.Incarnation, Life: r.Life, Founded: found, Again: found && i > 0, Map: m.Revision}, Found: found}
			if found {
				e.Seeds = seeds(own, e.Own)
			}
			errands = append(errands, e)
		}
	}
	return errands
}

// foreign tells whether another generation than the map's asked for a replica.
func (m *Map) foreign(o Own) bool {
	return m.Generation() > 1 && o.Map < uint64(m.Generation())*leap
}

// runs tells whether one of a node's replicas, own, is to be open: that of its shard's
// incarnation; or, after a recovery from a map that may not know of the last ones, the
// latest that ever ran here, until some group of the shard says how it is.
func (m *Map) runs(r Own, own []Own) bool {
	s := m.Shards[min(r.Shard, len(m.Shards)-1)]
	last := s.Incarnation
	if s.Step != nil && s.Step.Kind == Regain {
		for _, o := range own {
			if o.Shard == r.Shard && !o.Again && m.foreign(o) {
				last = max(last, o.Incarnation)
			}
		}
	}
	return r.Incarnation == last
}

// settled tells whether a node is to have a replica of a shard as its group is by now.
// What it has of a later incarnation, which only a generation that gave way knew, is
// in the way then: were it more than a remnant, its leader would have said so.
func (s Shard) settled(self string) bool {
	_, wanted := s.Wants(self)
	return wanted && s.Phase == Ready && (s.Step == nil || s.Step.Kind != Regain)
}

// doubts are the replicas that a map gives a node, when it starts, and that it has
// not noted: it ended before it could, or the note is lost, and perhaps the log.
func doubts(m *Map, self string, own []Own) map[Own]bool {
	doubted := make(map[Own]bool)
	if m == nil {
		return doubted
	}
	for i, s := range m.Shards {
		r, wanted := s.Wants(self)
		o := Own{Shard: i, Incarnation: s.Incarnation, Life: r.Life}
		if wanted && s.Phase != Planned && !m.atFounding(i) && !slices.ContainsFunc(own, func(k Own) bool { return k.id() == o }) {
			doubted[o] = true
		}
	}
	return doubted
}

// dropped are the replicas that the map of a later generation gives a node which
// has given them up since, for what an earlier generation decided: they were there
// before the revision that it knew last, and it has none of them.
func dropped(m *Map, self string, own []Own, knew uint64) map[Own]bool {
	doubted := doubts(m, self, own)
	maps.DeleteFunc(doubted, func(o Own, _ bool) bool { return o.Life > knew })
	return doubted
}

// id is what makes a replica another one.
func (o Own) id() Own { return Own{Shard: o.Shard, Incarnation: o.Incarnation, Life: o.Life} }

// seeds is what is left here of a shard's earlier incarnations, the last one first.
func seeds(own []Own, of Own) (all []Own) {
	for _, o := range own {
		if o.Shard == of.Shard && o.Incarnation < of.Incarnation {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b Own) int {
		return cmp.Or(cmp.Compare(b.Incarnation, a.Incarnation), cmp.Compare(b.Life, a.Life))
	})
	return all
}

// atFounding tells whether shard i is meta's own, of which nothing is known but
// that it shall be: nobody can have joined it yet.
func (m *Map) atFounding(i int) bool { return i == 0 && m.Revision == 1 }

// ownFile is the file of a node's replicas in its data directory. A replica is
// written there before it begins and taken out after its data is gone, so that
// none is forgotten.
const ownFile = "replicas.json"

// owned is its content.
type owned struct {
	Replicas []Own `json:"replicas"`
}

func saveOwn(f files, o owned) error {
	if err := f.write(ownFile, append(encode(o), '\n')); err != nil {
		return fmt.Errorf("note this node's replicas: %w", err)
	}
	return nil
}

func loadOwn(f files) (o owned, err error) {
	b, err := f.read(ownFile)
	if err == nil && b != nil {
		o, err = decode[owned]("list of replicas", b)
	}
	if err != nil {
		return owned{}, fmt.Errorf("load this node's replicas: %v/%s: %w; move the data directory away to start as a new node", f, ownFile, err)
	}
	return o, nil
}
