package shards

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Cache is what a node knows of the sessions that it uses. A session takes 40 to
// 60 bytes. Hits of different sessions hardly meet: each locks one of 256 parts
// for some tens of nanoseconds, and nothing is done under that lock but to look.
//
// It knows nothing of feeds: whoever fills it numbers the sections in which it was
// told, and judges by that number whether a binding holds or is the last known one.
type Cache struct {
	parts [cacheParts]part
	names shared
	most  int // sessions in one part
}

const (
	cacheParts = 256
	cacheTick  = 24 // bits: a use is known to 2^24 ns, and for a year
	cacheShare = 16 // a full part lets go of this part of its sessions
)

type part struct {
	mu       sync.Mutex // guards sessions; before names.mu
	sessions dense[known]
	_        [16]byte // fills up 64 bytes, that no two locks share a cache line
}

// known is a Cached as it is kept.
type known struct {
	backend uint32
	epoch   Epoch
	section uint32
	used    uint32 // in ticks, of which only differences count
}

// idle is how long ago the last use was. Who has read the clock before another's use
// may come after it: that is no time.
func (s *known) idle(now time.Duration) time.Duration {
	return time.Duration(max(0, int32(ticks(now)-s.used))) << cacheTick
}

// Cached is a binding as this node was told of it.
type Cached struct {
	Binding
	Section uint32
	Idle    time.Duration // since it was last used here, rounded down to 17 ms or so
}

// NewCache keeps up to about so many sessions; where there are more, those go that
// were not used for longest.
func NewCache(most int) *Cache {
	return &Cache{most: max(most/cacheParts, cacheShare)}
}

func (c *Cache) part(k *Key) *part { return &c.parts[place(k)%cacheParts] }

func ticks(t time.Duration) uint32 { return uint32(t >> cacheTick) }

// Use returns what is known of a session and notes the use.
func (c *Cache) Use(k Key, now time.Duration) (Cached, bool) { return c.look(k, now, true) }

// Peek is Use without one.
func (c *Cache) Peek(k Key, now time.Duration) (Cached, bool) { return c.look(k, now, false) }

func (c *Cache) look(k Key, now time.Duration, use bool) (Cached, bool) {
	p := c.part(&k)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions.at(k)
	if s == nil {
		return Cached{}, false
	}
	found := c.found(s, now)
	if use {
		s.use(now)
	}
	return found, true
}

// Take is Use if the session is known by a section and was used less than a time ago,
// and Peek if not.
func (c *Cache) Take(k Key, section uint32, now, rest time.Duration) (found Cached, used bool) {
	p := c.part(&k)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions.at(k)
	if s == nil {
		return Cached{}, false
	}
	found = c.found(s, now)
	if used = s.section == section && found.Idle < rest; used {
		s.use(now)
	}
	return found, used
}

// found is what is known, as it is told.
func (c *Cache) found(s *known, now time.Duration) Cached {
	return Cached{Binding{c.names.get(s.backend), s.epoch}, s.section, s.idle(now)}
}

// use notes one, but never goes back.
func (s *known) use(now time.Duration) {
	if int32(ticks(now)-s.used) > 0 {
		s.used = ticks(now)
	}
}

// Put notes a binding, as used now, if it is not older than what is known; it says
// whether it was noted.
func (c *Cache) Put(k Key, b Binding, section uint32, now time.Duration) bool {
	if b.Epoch == 0 {
		panic("BUG: an epoch that no binding has")
	}
	p := c.part(&k)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch s := p.sessions.at(k); {
	case s == nil:
		if p.sessions.n >= c.most {
			c.thin(p, ticks(now))
		}
		p.sessions.put(k, known{c.names.take(b.Backend), b.Epoch, section, ticks(now)})
	case s.epoch > b.Epoch:
		return false
	default:
		c.rebind(s, b, section)
		s.use(now)
	}
	return true
}

// Hear notes what became of a session that is known, if that is not older. It is no use
// of it; but where one was let go is known from now on.
func (c *Cache) Hear(k Key, b Binding, section uint32, now time.Duration) {
	p := c.part(&k)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions.at(k)
	if s == nil || s.epoch > b.Epoch {
		return
	}
	c.rebind(s, b, section)
	if b.Backend == nowhere {
		s.use(now)
	}
}

func (c *Cache) rebind(s *known, b Binding, section uint32) {
	was := s.backend
	s.backend, s.epoch, s.section = c.names.take(b.Backend), b.Epoch, section
	c.names.give(was) // after take: a name that stays keeps its number
}

// Drop forgets a session that is known by no higher epoch.
func (c *Cache) Drop(k Key, epoch Epoch) bool {
	p := c.part(&k)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions.at(k)
	if s == nil || s.epoch > epoch {
		return false
	}
	c.names.give(s.backend)
	p.sessions.drop(k)
	return true
}

// thin is called with the part's lock held.
func (c *Cache) thin(p *part, now uint32) {
	for _, k := range oldest(&p.sessions, max(1, c.most/cacheShare), func(s known) int64 { return -int64(int32(now - s.used)) }) {
		c.names.give(p.sessions.get(k).backend)
		p.sessions.drop(k)
	}
}

// Each calls f for every session, without a lock; f may use the cache. It takes
// about 20 ns a session.
func (c *Cache) Each(now time.Duration, f func(Key, Cached)) {
	type pair struct {
		key Key
		is  Cached
	}
	var all []pair
	for i := range c.parts {
		p := &c.parts[i]
		all = all[:0]
		p.mu.Lock()
		for k, s := range p.sessions.all() {
			all = append(all, pair{k, c.found(&s, now)})
		}
		p.mu.Unlock()
		for _, one := range all {
			f(one.key, one.is)
		}
	}
}

// Len is how many sessions are known.
func (c *Cache) Len() (n int) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		n += p.sessions.n
		p.mu.Unlock()
	}
	return n
}

// shared is names for many goroutines. A number may be read by whoever keeps one
// use of it from being given back.
type shared struct {
	mu    sync.Mutex // guards names
	names names
	text  atomic.Pointer[[]string] // by number; another one with every new name
}

func (s *shared) get(at uint32) string { return (*s.text.Load())[at] }

func (s *shared) take(text string) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.names.take(text)
	if s.names.uses[at] == 1 {
		all := slices.Clone(s.names.text)
		s.text.Store(&all)
	}
	return at
}

func (s *shared) give(at uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names.give(at)
}
