package shards

import (
	"sync"
	"sync/atomic"
	"time"
)

// section is one shard as the turns of this node see it: what the feed of the
// shard's leader said, and which turns run.
type section struct {
	shard uint32

	head   atomic.Pointer[head]
	until  atomic.Int64 // the lease, by this node's clock
	lasts  atomic.Int64 // the same, also over the begin of another section
	since  atomic.Int64 // from when on it was there without a gap
	wanted atomic.Int64 // when a turn last asked for the lease to be there
	remade atomic.Bool  // and its next life has not been told of what runs here
	silent atomic.Int64 // until then nobody is waited for: the last question had no answer

	offering atomic.Bool // provisional choices are being offered

	order sync.Mutex // one item of any feed at a time; taken first

	mu      sync.Mutex // guards what follows
	number  uint64     // of the last renewal
	asked   map[uint64]time.Duration
	next    time.Duration // the next renewal
	tries   int           // renewals that nobody answered, since one was
	busy    bool          // one is under way
	changed chan struct{} // closed, and another made, when a grant or a new section comes

	stripes [stripes]stripe
}

// stripes spreads the sessions of a shard over so many locks: two hits meet in one
// by chance only, and hold it for as long as two look-ups take.
const stripes = 32

// head names a section: what comes belongs to it only if it comes in the same life
// of the same feed. It is never changed, only replaced.
type head struct {
	node        string // whose feed
	life        uint64 // which life of the feed
	incarnation uint32
	term        uint64
	index       uint64 // answers that have seen less are of before
	gen         uint32 // counts the sections; what another one said is last known
	first       uint32 // the first of the incarnation, if this node has seen another before
}

// stripe is what goes on about some of a section's sessions. Its mu is taken
// before the cache's.
type stripe struct {
	mu    sync.Mutex
	live  map[Key]*live
	spare *live // one that was forgotten
}

// nowhere is where a session is that was let go: its epoch is remembered, for it
// never falls. No backend has this name.
const nowhere = "\x00nowhere"

// live is what goes on about a session.
type live struct {
	turns       int // that run
	asks        int // questions under way
	spoke       int // how often the feed spoke of it meanwhile
	held        uint64
	since       time.Duration // of the hold
	over        chan struct{} // closed when the hold is
	wanted      bool          // a hold found it busy: say so when it is idle
	provisional string        // chosen without a leader; to be offered
}

func (l *live) idle() bool {
	return l.turns == 0 && l.asks == 0 && l.held == 0 && l.provisional == ""
}

func newSection(shard uint32) *section {
	s := &section{shard: shard, asked: make(map[uint64]time.Duration), changed: make(chan struct{})}
	s.head.Store(&head{})
	for i := range s.stripes {
		s.stripes[i].live = make(map[Key]*live)
	}
	return s
}

// stripe is the one of a key; the first bytes name the shard, the last this.
func (s *section) stripe(k Key) *stripe { return &s.stripes[k[15]%stripes] }

// alive returns the session's record, made if need be; mu is held.
func (p *stripe) alive(k Key) *live {
	l := p.live[k]
	if l == nil {
		if l, p.spare = p.spare, nil; l == nil {
			l = new(live)
		}
		p.live[k] = l
	}
	return l
}

// tidy forgets a record about which nothing goes on; mu is held.
func (p *stripe) tidy(k Key, l *live) {
	if l.idle() && p.live[k] == l {
		p.forget(k, l)
	}
}

func (p *stripe) forget(k Key, l *live) {
	delete(p.live, k)
	*l = live{}
	p.spare = l
}

// leased says whether the lease lasts.
func (s *section) leased(now time.Duration) bool { return now < time.Duration(s.until.Load()) }

// change wakes who waits for a grant or a section; mu is held.
func (s *section) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *section) waiting() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// begin starts the section anew. What was known is last known from here on; holds
// of before are over, those in force follow at once. A term that is over begins
// nothing.
func (s *section) begin(r *Router, h head) {
	old := s.head.Load()
	past := h.incarnation < old.incarnation || h.incarnation == old.incarnation && h.term < old.term
	if past && !r.lacks(cureOldTerm) {
		return
	}
	h.gen, h.first = old.gen+1, old.first
	if remade := h.incarnation > old.incarnation && old.incarnation > 0; remade {
		h.first = h.gen
		s.remade.Store(true)
	}
	s.until.Store(0) // a lease is of its section: the grant follows
	s.head.Store(&h)
	for i := range s.stripes {
		p := &s.stripes[i]
		p.mu.Lock()
		for k, l := range p.live {
			if l.held != 0 {
				l.free()
				p.tidy(k, l)
			}
		}
		p.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change()
}

func (l *live) free() {
	l.held = 0
	close(l.over)
}

// hold stops the turns of keys, and returns which are busy: those go on.
func (s *section) hold(r *Router, i item) (busy []Key) {
	now := r.Now()
	for _, k := range i.keys {
		p := s.stripe(k)
		p.mu.Lock()
		l := p.live[k]
		running := l != nil && l.turns > 0
		if running || i.idle > 0 && r.recent(k, now, time.Duration(i.idle)*time.Millisecond) {
			busy = append(busy, k)
			if running {
				l.wanted = true
			}
			p.mu.Unlock()
			continue
		}
		l = p.alive(k)
		if l.held != 0 {
			l.free() // another number: the later one counts
		}
		l.held, l.since, l.over = i.number, now, make(chan struct{})
		l.spoke++
		p.mu.Unlock()
	}
	return busy
}

// recent says whether a session was used here within a time.
func (r *Router) recent(k Key, now, within time.Duration) bool {
	c, ok := r.cache.Peek(k, now)
	return ok && r.idle(c, now) < within
}

// release ends a hold for keys, if it is the one.
func (s *section) release(i item) {
	for _, k := range i.keys {
		p := s.stripe(k)
		p.mu.Lock()
		if l := p.live[k]; l != nil {
			l.spoke++
			if l.held == i.number {
				l.free()
			}
			p.tidy(k, l)
		}
		p.mu.Unlock()
	}
}

// learn takes a binding that changed, if this node knows of the session.
func (s *section) learn(r *Router, i item, gen uint32) {
	p := s.stripe(i.session)
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.live[i.session]; l != nil {
		l.spoke++
	}
	if i.binding.Backend == "" {
		i.binding.Backend = nowhere
	}
	r.cache.Hear(i.session, i.binding, gen, r.Now())
}

// grant lengthens the lease, from the moment at which the question was asked.
func (s *section) grant(r *Router, number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, ok := s.asked[number]
	if !ok {
		return
	}
	for n := range s.asked {
		if n <= number {
			delete(s.asked, n)
		}
	}
	if r.lacks(cureAskTime) {
		asked = r.Now()
	}
	s.lengthen(int64(asked+lease), int64(r.Now()))
	s.silent.Store(0)
	s.change()
}

// install keeps a leader's answer, unless the feed knows better: it has spoken of
// the session since the question, or its section is another term's or begins after
// what the answer has seen. The epoch never falls.
func (s *section) install(r *Router, k Key, a answer, spoke int) bool {
	now := r.Now()
	p := s.stripe(k)
	p.mu.Lock()
	defer p.mu.Unlock()
	h, l := s.head.Load(), p.live[k]
	if h.incarnation != a.incarnation || h.term != a.term || a.index < h.index && !r.lacks(cureGap) {
		return false
	}
	if (l == nil || l.spoke != spoke) && !r.lacks(cureSilence) {
		return false
	}
	if c, known := r.cache.Peek(k, now); known && c.Backend == nowhere && c.Epoch >= a.binding.Epoch {
		return false
	}
	return r.cache.Put(k, a.binding, h.gen, now)
}
