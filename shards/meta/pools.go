package meta

import (
	"cmp"
	"maps"
	"slices"
)

// Pool is the agreed record of a pool: every node picks from the same backends,
// whatever its own file says.
type Pool struct {
	Revision uint64    `json:"revision"`         // of the map with its last change
	Number   uint64    `json:"number"`           // grows with each change, and with the time, so that it is newer than what a node made up alone
	Policy   string    `json:"policy,omitempty"` // operators' choices; "": what the files say
	Second   string    `json:"second,omitempty"`
	Share    float64   `json:"share,omitempty"` // of streams, that go by Second
	Rest     string    `json:"rest,omitempty"`  // on or off, of rebalancing
	Sticky   *Sticky   `json:"sticky,omitempty"`
	Backends []Backend `json:"backends"` // by id, also those that operators removed
}

// Sticky is how the sessions of a pool are kept, so that one node with another
// file cannot void it.
type Sticky struct {
	TTL         int64 `json:"ttl"` // nanoseconds
	MaxSessions int   `json:"max_sessions"`
	Strict      bool  `json:"strict,omitempty"`
}

// Backend is one backend of a pool.
type Backend struct {
	ID         string `json:"id"`
	URL        string `json:"url"`
	Weight     int    `json:"weight"`
	MaxStreams int    `json:"max_streams,omitempty"`

	// Decisions of operators, until they are taken back.
	Added   bool `json:"added,omitempty"`   // it stays, and stays as it is, whoever names it
	Removed bool `json:"removed,omitempty"` // it is out, whoever names it
	Drained bool `json:"drained,omitempty"`
	Fixed   bool `json:"fixed,omitempty"` // its weight is theirs
	Out     Word `json:"out,omitzero"`    // their last one on its ejection; only where the level is WordLevel
}

// WordLevel is the feature level from which on a record may hold a Word: programs
// before it do not know the field.
const WordLevel = 2

// Word is what operators said last of a backend's ejection: that it is out for a
// time, or back at once. It is not a state but news: each node heeds it once.
type Word struct {
	Number uint64 `json:"number,omitempty"` // grows with each; milliseconds since 1970, by the clock of the node that was asked
	Length int64  `json:"length,omitempty"` // nanoseconds for which it is out; 0: it is back
}

// Named is what one node's file and discovery say of a pool.
type Named struct {
	Sticky   *Sticky   `json:"sticky,omitempty"`
	Backends []Backend `json:"backends"`
}

// planPools makes the pools' records what the live nodes name, operators'
// decisions first. What is agreed stays as it is until all have spoken and all who
// name it say the same other thing, so that files that are changed one after the other, or are
// unlike by mistake, make nothing flap.
func (p *plan) planPools() {
	pools := slices.Collect(maps.Keys(p.m.Pools))
	for _, named := range p.seen.Named {
		pools = slices.AppendSeq(pools, maps.Keys(named))
	}
	slices.Sort(pools)
	for _, pool := range slices.Compact(pools) {
		p.planPool(pool)
	}
}

func (p *plan) planPool(pool string) {
	was, known := p.m.Pools[pool]
	voices := p.voices(pool)
	if !known && p.seen.Led < joinWait && !p.allSaid() {
		return // or what only the silent ones name would be out for a moment
	}
	next := was
	next.Backends = p.union(pool, was.Backends, voices)
	switch {
	case len(voices) == 0 && len(next.Backends) == 0 && next.bare():
		if known {
			p.propose(Command{Op: OpPool, Key: pool, Seen: was.Revision})
		}
		return
	case len(voices) > 0 && (!known || p.allSaid()):
		next.Sticky = agreed(was.Sticky, !known, voices, func(n Named) *Sticky { return n.Sticky }, samePlace)
	}
	if known && slices.Equal(next.Backends, was.Backends) && samePlace(next.Sticky, was.Sticky) {
		return
	}
	next.Number = max(was.Number+1, p.seen.Wall)
	p.propose(Command{Op: OpPool, Key: pool, Seen: was.Revision, Pool: &next})
}

// allSaid tells whether all nodes that are there or to come have said what they
// name.
func (p *plan) allSaid() bool {
	for id, n := range p.m.Nodes {
		if _, said := p.seen.Named[id]; !said && n.State != Dead && n.State != Removed {
			return false
		}
	}
	for id, peer := range p.seen.Peers {
		if _, said := p.seen.Named[id]; peer.Alive && !said {
			return false
		}
	}
	return true
}

// bare says that operators decided nothing of the whole pool.
func (p Pool) bare() bool { return p.Policy == "" && p.Second == "" && p.Rest == "" }

func samePlace(a, b *Sticky) bool { return a == b || a != nil && b != nil && *a == *b }

// voices is what the live nodes say of a pool, by the order of their ids.
func (p *plan) voices(pool string) (all []Named) {
	for _, id := range slices.Sorted(maps.Keys(p.seen.Named)) {
		if n, names := p.seen.Named[id][pool]; names {
			all = append(all, n)
		}
	}
	return all
}

// union is a pool's backends from now on.
func (p *plan) union(pool string, was []Backend, voices []Named) []Backend {
	all := make(map[string]Backend)
	named := make(map[string][]Backend)
	for _, b := range was {
		all[b.ID] = b
	}
	for _, v := range voices {
		for _, b := range v.Backends {
			named[b.ID] = append(named[b.ID], b)
		}
	}
	for id, by := range named {
		b, known := all[id]
		if known && (b.Added || !p.allSaid()) {
			continue // the first to speak after a restart is not all
		}
		now := Backend{ID: id, Added: b.Added, Removed: b.Removed, Drained: b.Drained, Fixed: b.Fixed, Out: b.Out}
		now.URL = agreed(b.URL, !known, by, func(b Backend) string { return b.URL }, equal)
		now.MaxStreams = agreed(b.MaxStreams, !known, by, func(b Backend) int { return b.MaxStreams }, equal)
		now.Weight = b.Weight
		if !b.Fixed {
			now.Weight = agreed(b.Weight, !known, by, func(b Backend) int { return b.Weight }, equal)
		}
		all[id] = now
	}
	for id, b := range all {
		if named[id] == nil && !b.Added && !b.Removed && p.seen.Missed[pool][id] >= deadAfter {
			delete(all, id)
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b Backend) int { return cmp.Compare(a.ID, b.ID) })
}

func equal[V comparable](a, b V) bool { return a == b }

// agreed is what all voices say, if they say the same; else what stands, or where
// nothing does, what most of them say.
func agreed[V, S any](stands V, fresh bool, voices []S, of func(S) V, same func(a, b V) bool) V {
	most, count := stands, 0
	for _, v := range voices {
		n := 0
		for _, o := range voices {
			if same(of(v), of(o)) {
				n++
			}
		}
		if n > count {
			most, count = of(v), n
		}
	}
	if !fresh && count < len(voices) {
		return stands
	}
	return most
}
