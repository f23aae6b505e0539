package shards

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
)

// Epoch counts the bindings of a session; 0 is none.
type Epoch uint32

// Binding says where a session lives.
type Binding struct {
	Backend string
	Epoch   Epoch
}

// Table is the state of one shard. It holds, per session, 24 bytes in one block: a
// backend is a number while sessions are bound to it, and the same on every
// replica.
type Table struct {
	sessions dense[spot]
	backends names
	holders  map[Holder]struct{}
	sets     map[string]Set // by pool
	floor    Epoch          // the highest epoch ever let go; a new binding starts above it
	sum      uint64         // of all sessions' weights; see Digest
}

// spot is a Binding as the table keeps it.
type spot struct {
	backend uint32
	epoch   Epoch
}

// Holder is a boot of a node that may have leases of the shard, and turns.
type Holder struct {
	Node string
	Boot uint64
}

// NewTable is the table of a shard at its beginning.
func NewTable() *Table {
	return &Table{holders: make(map[Holder]struct{}), sets: make(map[string]Set)}
}

// Result is what became of a command.
type Result struct {
	Binding  Binding  // of bind and rebind: what stands now
	Conflict bool     // not done: what the command rests on is no more so
	Changes  []Change // in the order of the command; a target that is not here had moved on
}

// Moved says whether a session that stood has another home.
func (r Result) Moved() bool {
	return slices.ContainsFunc(r.Changes, func(c Change) bool { return c.Was > 0 && c.Binding.Epoch > 0 })
}

// Change is what a command made of a session.
type Change struct {
	Session Key
	Was     Epoch   // 0: it had no binding
	Binding Binding // zero: it was let go
}

// Apply runs on every replica with the same commands in the same order, so it may
// use nothing but its arguments: no clock, no random, no gossip. The term is that
// of the command's entry.
func (t *Table) Apply(term uint64, c Command) Result {
	switch c.Op {
	case OpBind, OpRebind:
		return t.bind(c)
	case OpMove: // a hold dies with its term: who heard of it in an older one may have let turns begin since
		return t.move(c, c.Term == term, "")
	case OpDown:
		s, ok := t.sets[c.Pool]
		return t.move(c, ok && s.Revision == c.Revision, c.Backend)
	case OpHolder:
		t.holders[Holder{c.Node, c.Boot}] = struct{}{}
		return Result{}
	case OpUnholder:
		delete(t.holders, Holder{c.Node, c.Boot})
		return Result{}
	case OpSet:
		if s, ok := t.sets[c.Pool]; ok && s.Revision >= c.Revision {
			return Result{Conflict: true}
		}
		t.sets[c.Pool] = Set{c.Pool, c.Revision, c.Backends}
		return Result{}
	}
	panic("BUG: a command that was decoded is not known")
}

func (t *Table) bind(c Command) Result {
	cur := t.sessions.get(c.Session)
	if c.Seen != cur.epoch || t.spent(cur.epoch) {
		return Result{Binding: t.binding(cur), Conflict: true} // another was faster; the proposer takes what stands
	}
	next := t.set(c.Session, cur, c.Backend)
	return Result{Binding: next, Changes: []Change{{c.Session, cur.epoch, next}}}
}

// move sends each session to its target that has the epoch which was seen, and is
// on the backend that it is to leave, if one is named.
func (t *Table) move(c Command, holds bool, from string) (r Result) {
	r.Conflict = !holds
	if !holds {
		return r
	}
	for _, to := range c.Targets {
		cur := t.sessions.get(to.Session)
		if cur.epoch == 0 || cur.epoch != to.Seen || from != "" && t.backends.text[cur.backend] != from {
			continue
		}
		change := Change{Session: to.Session, Was: cur.epoch}
		switch {
		case to.Backend == "":
			t.sessions.drop(to.Session)
			t.sum -= weight(&to.Session, cur)
			t.backends.give(cur.backend)
			t.floor = max(t.floor, cur.epoch)
		case t.spent(cur.epoch):
			continue
		default:
			change.Binding = t.set(to.Session, cur, to.Backend)
		}
		r.Changes = append(r.Changes, change)
	}
	return r
}

// spent says that there is no epoch left above this one. At a thousand changes of
// one session a second that takes seven weeks.
func (t *Table) spent(cur Epoch) bool { return max(cur, t.floor) == math.MaxUint32 }

func (t *Table) set(k Key, cur spot, backend string) Binding {
	next := spot{backend: t.backends.take(backend), epoch: max(cur.epoch, t.floor) + 1}
	if cur.epoch != 0 {
		t.backends.give(cur.backend) // after take: a backend that stays keeps its number
		t.sum -= weight(&k, cur)
	}
	t.sessions.put(k, next)
	t.sum += weight(&k, next)
	return t.binding(next)
}

// Get returns a session's binding, if it has one.
func (t *Table) Get(k Key) (Binding, bool) {
	s := t.sessions.get(k)
	return t.binding(s), s.epoch != 0
}

// Len is how many sessions are bound.
func (t *Table) Len() int { return t.sessions.n }

func (t *Table) binding(s spot) Binding {
	if s.epoch == 0 {
		return Binding{}
	}
	return Binding{Backend: t.backends.text[s.backend], Epoch: s.epoch}
}

// All goes through the sessions, always in the same order.
func (t *Table) All() iter.Seq2[Key, Binding] {
	return func(yield func(Key, Binding) bool) {
		for k, s := range t.sessions.all() {
			if !yield(k, t.binding(s)) {
				return
			}
		}
	}
}

// Count is how many sessions are bound to a backend.
func (t *Table) Count(backend string) int { return t.backends.count(backend) }

// On returns the sessions of a backend, as targets that let them stay. It looks at
// all sessions of the shard: a millisecond for 200,000.
func (t *Table) On(backend string) []Target {
	at, ok := t.backends.number[backend]
	if !ok {
		return nil
	}
	all := make([]Target, 0, t.backends.uses[at])
	for k, s := range t.sessions.all() {
		if s.backend == at {
			all = append(all, Target{k, s.epoch, backend})
		}
	}
	return all
}

// Holders returns who may have leases, by node and boot.
func (t *Table) Holders() []Holder {
	return slices.SortedFunc(maps.Keys(t.holders), func(a, b Holder) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), cmp.Compare(a.Boot, b.Boot))
	})
}

// Set returns the backends of a pool.
func (t *Table) Set(pool string) (Set, bool) {
	s, ok := t.sets[pool]
	return s, ok
}

// Sets returns the backends of all pools, by name.
func (t *Table) Sets() []Set {
	return slices.SortedFunc(maps.Values(t.sets), func(a, b Set) int { return strings.Compare(a.Pool, b.Pool) })
}
