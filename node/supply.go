package node

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards/meta"
)

// supply puts together the backends of every pool: those that the
// configuration lists, those that were found, and what operators decided, which
// beats both until it is taken back.
type supply struct {
	log      *slog.Logger
	apply    func(pool string, want wanted) error
	together func(pool string, change func(*meta.Pool) error) error // has the cluster agree; nil: there is none
	own      atomic.Pointer[map[string][]backend.Config]            // the lists as they would be without the cluster

	mu      sync.Mutex // held while a change is decided and applied
	listed  map[string][]backend.Config
	found   map[string][]backend.Config
	decided decisions
	path    string          // where they are kept
	doubled map[string]bool // ids that were said to stand in two pools
	agreed  map[string]meta.Pool
	frozen  bool                    // another process is about to be the node, and has read the decisions
	unlike  map[backend.Config]bool // said to be named otherwise than agreed
}

// wanted is what a pool is to be.
type wanted struct {
	list    []backend.Config
	drained map[string]bool      // ids that operators drain
	words   map[string]meta.Word // on their ejections, that operators said last; one for each of the list, or none while the cluster has agreed on nothing
	policy  api.Policy           // that operators chose
	rest    string               // on or off, of rebalancing, that operators chose
}

func newSupply(log *slog.Logger, apply func(string, wanted) error) *supply {
	s := &supply{
		log: log, apply: apply, doubled: map[string]bool{}, unlike: map[backend.Config]bool{},
		listed: map[string][]backend.Config{}, found: map[string][]backend.Config{},
	}
	s.own.Store(&map[string][]backend.Config{})
	return s
}

// start reads the decisions of former runs and applies the lists.
func (s *supply) start(path string, listed map[string][]backend.Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed, s.path = listed, path
	var err error
	if s.decided, err = readDecisions(path); err != nil {
		return err
	}
	return s.applyAll()
}

// freeze has decisions refused, or taken again.
func (s *supply) freeze(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = on
}

// find takes what discovery found for a pool.
func (s *supply) find(pool string, list []backend.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found[pool] = list
	if err := s.applyAll(); err != nil {
		s.log.Error("discovered backends are not used", "pool", pool, "err", err)
	}
}

// add brings an operator's backend to a pool.
func (s *supply) add(pool string, c backend.Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pool(pool) {
		return s.noPool(pool)
	}
	if at, _, ok := s.have(c.ID); ok {
		return refuse(admin.Conflict, "backend %q is in pool %s already; choose another id, or remove that first", c.ID, at)
	}
	d := s.decided.Backends[c.ID]
	if d.Removed && d.Pool != pool {
		return refuse(admin.Conflict, "backend %q was removed from pool %s, which would have it again; reset it, or choose another id", c.ID, d.Pool)
	}
	// That whoever else names it is not asked stays, or its URL would be theirs.
	return s.decide(c.ID, func(d *decision) { *d = decision{Pool: pool, Added: &c, Removed: d.Removed} })
}

// remove takes a backend out of a pool, whoever named it.
func (s *supply) remove(pool, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, _, ok := s.have(id)
	switch {
	case !s.pool(pool):
		return s.noPool(pool)
	case !ok || at != pool:
		return noBackend(id, "pool "+pool)
	}
	if s.ruled(pool) {
		return s.askOf(pool, id, func(d *decision) { *d = decision{Pool: pool, Removed: true} })
	}
	return s.decide(id, func(d *decision) {
		named := func(c backend.Config) bool { return c.ID == id }
		others := slices.ContainsFunc(s.listed[pool], named) || slices.ContainsFunc(s.found[pool], named)
		*d = decision{Pool: pool, Removed: others || d.Removed}
	})
}

// weigh gives a backend an operator's weight.
func (s *supply) weigh(id string, weight int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pool, c, ok := s.have(id)
	if !ok {
		return noBackend(id, "any pool")
	}
	c.Weight = weight
	if err := invalid(c); err != nil {
		return err
	}
	return s.decide(id, func(d *decision) { d.Pool, d.Weight = pool, weight })
}

// hold notes that operators drain a backend, or that they do so no more.
func (s *supply) hold(id string, drained bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pool, _, ok := s.have(id)
	if !ok {
		return noBackend(id, "any pool")
	}
	return s.decide(id, func(d *decision) { d.Pool, d.Drained = pool, drained })
}

// say notes an operator's word on a backend's ejection: out for so long, or back at
// once.
func (s *supply) say(id string, length time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pool, _, ok := s.have(id)
	if !ok {
		return noBackend(id, "any pool")
	}
	if s.together != nil && !s.ruled(pool) {
		return refuse(admin.Conflict, "the cluster has not agreed on the backends of pool %s yet; ask again in a moment", pool)
	}
	return s.decide(id, func(d *decision) {
		d.Pool, d.Out = pool, meta.Word{Number: max(d.Out.Number+1, uint64(time.Now().UnixMilli())), Length: int64(length)}
	})
}

// rule has an operator's policies choose in a pool.
func (s *supply) rule(pool string, want api.Policy) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pool(pool) {
		return s.noPool(pool)
	}
	if s.ruled(pool) {
		return s.ask(pool, func(p *meta.Pool) error {
			p.Policy, p.Second, p.Share = want.Policy, want.Second, want.Share
			return nil
		})
	}
	return s.put(s.decided.withPolicy(pool, want))
}

// rest has an operator switch a pool's rebalancing.
func (s *supply) rest(pool, word string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pool(pool) {
		return s.noPool(pool)
	}
	if s.ruled(pool) {
		return s.ask(pool, func(p *meta.Pool) error { p.Rest = word; return nil })
	}
	return s.put(s.decided.withRest(pool, word))
}

// reset takes every decision on a backend back.
func (s *supply) reset(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, known := s.have(id)
	if _, decided := s.decided.Backends[id]; !known && !decided && s.poolOf(id) == "" {
		return noBackend(id, "any pool, and nothing was decided of it")
	}
	return s.decide(id, func(d *decision) { *d = decision{} })
}

// decide changes the decision on a backend; mu is held.
func (s *supply) decide(id string, change func(*decision)) error {
	var d decision
	change(&d)
	if pool := cmp.Or(d.Pool, s.poolOf(id)); s.ruled(pool) {
		return s.askOf(pool, id, change)
	}
	return s.put(s.decided.with(id, change))
}

// put has decisions in force, on disk first. What cannot be applied is taken
// back; mu is held.
func (s *supply) put(next decisions) error {
	if s.frozen {
		return refuse(admin.Conflict, "an upgrade of this node is under way; try again in a moment")
	}
	if err := next.write(s.path); err != nil {
		return err
	}
	before := s.decided
	s.decided = next
	if err := s.applyAll(); err != nil {
		s.decided = before
		return errors.Join(err, before.write(s.path), s.applyAll())
	}
	return nil
}

// relist has another configuration's lists in force. commit is handed what they come
// to; where it fails, nothing has changed.
func (s *supply) relist(listed map[string][]backend.Config, sourced func(pool string) bool, commit func(map[string][]backend.Config) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed, s.listed = s.listed, listed
	found := s.found
	s.found = maps.Clone(found)
	maps.DeleteFunc(s.found, func(pool string, _ []backend.Config) bool { return !sourced(pool) })
	if err := commit(s.sums()); err != nil {
		s.listed, s.found = listed, found
		return err
	}
	s.compare()
	if err := s.applyAll(); err != nil {
		s.log.Error("what operators decided is not in force in all pools", "err", err)
	}
	return nil
}

// sums are the lists of all pools, each id in one; mu is held.
func (s *supply) sums() map[string][]backend.Config {
	owner, all := map[string]string{}, map[string][]backend.Config{}
	for _, pool := range slices.Sorted(maps.Keys(s.listed)) {
		all[pool] = slices.DeleteFunc(s.sum(pool), func(c backend.Config) bool {
			other, twice := owner[c.ID]
			if !twice {
				owner[c.ID] = pool
				return false
			}
			if !s.doubled[c.ID] {
				s.doubled[c.ID] = true
				s.log.Warn("a backend's id stands in two pools, and ids are unique over all; it serves only the first", "backend", c.ID, "first", other, "second", pool)
			}
			return true
		})
	}
	return all
}

// applyAll hands every pool its backends; mu is held.
func (s *supply) applyAll() error {
	sums, own := s.sums(), map[string][]backend.Config{}
	for _, pool := range slices.Sorted(maps.Keys(sums)) {
		own[pool] = s.ownSum(pool)
		list := sums[pool]
		want := wanted{list: list, drained: map[string]bool{}, words: map[string]meta.Word{}, policy: s.decided.policy(pool), rest: s.decided.Rests[pool]}
		for _, c := range list {
			want.drained[c.ID] = s.decided.Backends[c.ID].Drained
			if s.together == nil {
				want.words[c.ID] = s.decided.Backends[c.ID].Out
			}
		}
		if p, ruled := s.agreed[pool]; ruled {
			_, want.drained = agreedList(p)
			for _, b := range p.Backends {
				want.words[b.ID] = b.Out
			}
			want.policy, want.rest = agreedPolicy(p), p.Rest
		}
		if err := s.apply(pool, want); err != nil {
			return err
		}
	}
	s.own.Store(&own)
	return nil
}

// sum is a pool's list: the agreed one, or else its own.
func (s *supply) sum(pool string) []backend.Config {
	if p, ruled := s.agreed[pool]; ruled {
		list, _ := agreedList(p)
		return list
	}
	return s.ownSum(pool)
}

// ownSum is a pool's list as this node alone has it: the file's first, then what was found, then what was
// added; each id once.
func (s *supply) ownSum(pool string) []backend.Config {
	var list []backend.Config
	seen := map[string]bool{}
	take := func(c backend.Config) {
		d := s.decided.Backends[c.ID]
		if seen[c.ID] {
			return
		}
		seen[c.ID] = true
		if d.Weight > 0 {
			c.Weight = d.Weight
		}
		list = append(list, c)
	}
	for _, c := range slices.Concat(s.listed[pool], s.found[pool]) {
		if d := s.decided.Backends[c.ID]; !d.Removed || d.Pool != pool {
			take(c)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.decided.Backends)) {
		if d := s.decided.Backends[id]; d.Added != nil && d.Pool == pool {
			take(*d.Added)
		}
	}
	return list
}

// have finds a backend that is in use; mu is held.
func (s *supply) have(id string) (pool string, c backend.Config, ok bool) {
	for pool := range s.listed {
		for _, c := range s.sum(pool) {
			if c.ID == id {
				return pool, c, true
			}
		}
	}
	return "", c, false
}

// pool tells whether there is such a pool; mu is held.
func (s *supply) pool(name string) bool {
	_, ok := s.listed[name]
	return ok
}

func (s *supply) noPool(pool string) error {
	return refuse(admin.NotFound, "there is no pool %q; there are %v", pool, slices.Sorted(maps.Keys(s.listed)))
}

func noBackend(id, where string) error {
	return refuse(admin.NotFound, "there is no backend %q in %s; GET /v1/backends lists what there is", id, where)
}

// invalid is the first thing that is wrong with a backend; nil if nothing is.
func invalid(c backend.Config) (err error) {
	c.Validate(func(key, format string, args ...any) {
		if err == nil {
			err = refuse(admin.BadRequest, key+": "+format, args...)
		}
	})
	return err
}
