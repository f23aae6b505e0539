package shards

import (
	"context"
	"errors"
	"time"
)

// Home is where a session's turn goes.
type Home struct {
	Backend     string // "": nowhere
	Epoch       Epoch
	Lookup      Lookup
	Provisional bool // nobody has agreed yet
	Stale       bool // last known: nobody could be asked, or it is a detour
}

// Lookup says how a home was found.
type Lookup string

// The results of a lookup; the list is closed.
const (
	LookupHit      Lookup = "hit"
	LookupNew      Lookup = "new"      // bound by this turn
	LookupLost     Lookup = "lost"     // bound by this turn; it is known to have been bound before
	LookupRepin    Lookup = "repin"    // its backend could not serve it
	LookupFallback Lookup = "fallback" // nobody could be asked in time
)

var (
	// ErrNoLeader is what a question gets that nobody could answer in its time.
	ErrNoLeader = errors.New("no leader answered for the shard")
	// ErrAgain says that a turn must not write: its session's binding changed, is
	// held, or is not known to stand any more. It ends, and another begins.
	ErrAgain = errors.New("the session's binding changed, or may have: begin the turn again")
)

const (
	heldTime  = time.Second           // the turns of a stream wait so long in all, or for the pool's wait if that is longer
	heldFor   = time.Second           // a hold that lasts longer: the leader is asked before a turn goes on
	heldRest  = 10 * time.Millisecond // before a leader that said "held" is asked again
	dropRest  = time.Millisecond      // after an answer that could not be kept
	quietTime = time.Second           // after a question without an answer, nobody is waited for so long
	mostWait  = time.Second           // for a binding, where a pool does not say
)

// Turn is one stream of a session, from before its home is looked up until its
// answer is read to the end, or its connection to the backend is closed. It is for
// one goroutine.
type Turn struct {
	r       *Router
	s       *section
	session Key
	pool    string

	home    Home
	counted bool
	l       *live         // while it is counted: the session's record, which lasts as long
	alone   bool          // its session was bound here for its sake, whatever ran elsewhere
	sent    bool          // its last look let it write
	looked  time.Duration // when that was
	waited  time.Duration // by its stream in all, for its session's home
}

// Turn begins a turn of a session. propose is asked at most once, for a session
// that has no binding, and names a backend; "" where none can be had. waited is how
// long the stream's turns before this one have waited: what is left is for this one.
func (r *Router) Turn(ctx context.Context, pool string, key []byte, waited time.Duration, propose func() string) (*Turn, error) {
	session, shard := r.Hash.Key(pool, string(key))
	t := &Turn{r: r, s: r.sections[shard-1], session: session, pool: pool, waited: waited}
	if state, _ := t.enter(r.glance()); state == current {
		return t, nil
	}
	if err := t.seek(ctx, propose); err != nil {
		return nil, err
	}
	return t, nil
}

// Home is where the turn goes.
func (t *Turn) Home() Home { return t.home }

// detour is a home beside the binding that stands.
func (h Home) detour() bool { return h.Stale && h.Lookup == LookupRepin }

// End says that the turn is over. It tells whether another may have run elsewhere
// meanwhile, which is one of the stated exceptions, and counted.
func (t *Turn) End() (stale bool) {
	if !t.counted {
		panic("BUG: a turn ends twice")
	}
	now := t.r.Now() // by the leases' own clock: a lease that lapsed in a machine's sleep lapsed
	lapsed := t.s.lapsed(t, now)
	seen := t.leave(now)
	return t.stale(lapsed || seen > t.home.Epoch)
}

// leave takes the turn's count back, and returns the highest epoch that is known by
// then.
func (t *Turn) leave(now time.Duration) (seen Epoch) {
	t.counted = false
	p := t.s.stripe(t.session)
	p.mu.Lock()
	l := t.l
	l.turns--
	tell := l.turns == 0 && l.wanted
	if tell {
		l.wanted = false
	}
	c, _ := t.r.cache.Use(t.session, now)
	if l.idle() {
		p.forget(t.session, l)
	}
	p.mu.Unlock()
	if tell {
		t.r.note(t.s, question{ask: askIdle, keys: []Key{t.session}})
	}
	return c.Epoch
}

// seek finds a home for a session that has none that stands here.
func (t *Turn) seek(ctx context.Context, propose func() string) error {
	t.r.pools.LoadOrStore(t.pool, struct{}{})
	k := t.seeker(propose)
	defer k.spent()
	for {
		what, over := t.enter(t.r.Now())
		switch what {
		case current:
			return nil
		case isHeld:
			t.r.counts.held.Add(1)
			if k.sleep(ctx, over, k.heldUntil) {
				continue
			}
			t.r.counts.heldOut.Add(1)
			return k.fallback(ctx)
		case leaseGap:
			if k.lease(ctx) {
				continue
			}
			return k.fallback(ctx)
		}
		if settled, err := k.ask(ctx, what == unused); settled || err != nil {
			return err
		}
	}
}

// seeker is a turn that looks for its home.
type seeker struct {
	t         *Turn
	propose   func() string // nil: it was asked
	proposal  string
	told      bool          // what the shard's life before had said
	began     time.Duration // later by what the proposal took
	until     time.Duration
	heldUntil time.Duration
	whole     bool // it has the pool's whole wait: no answer in that says that nobody answers
}

// seeker has as much time as is left to the stream.
func (t *Turn) seeker(propose func() string) *seeker {
	now, wait := t.r.Now(), t.r.wait(t.pool)
	left := max(0, max(wait, heldTime)-t.waited)
	return &seeker{t: t, propose: propose, began: now, until: now + min(wait, left), heldUntil: now + min(heldTime, left), whole: left >= wait}
}

// spent notes what the search took.
func (k *seeker) spent() { k.t.waited += k.t.r.Now() - k.began }

// sleep waits for what closes the channel, and says whether that came in time.
func (k *seeker) sleep(ctx context.Context, wake <-chan struct{}, until time.Duration) bool {
	timer := time.NewTimer(until - k.t.r.Now())
	defer timer.Stop()
	select {
	case <-wake:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// lease waits for one.
func (k *seeker) lease(ctx context.Context) bool {
	s, now := k.t.s, k.t.r.Now()
	wake := s.waiting()
	s.wanted.Store(int64(now))
	if s.leased(now) {
		return true
	}
	k.t.r.hurry(s)
	if now >= k.until || now < time.Duration(s.silent.Load()) {
		return false
	}
	if !k.sleep(ctx, wake, k.until) {
		k.quiet(ctx)
		return false
	}
	return true
}

// quiet has nobody waited for a while: a question had no answer in its time. One
// whose asker left, or had little time, says nothing.
func (k *seeker) quiet(ctx context.Context) {
	s, now := k.t.s, k.t.r.Now()
	if k.whole && ctx.Err() == nil && now >= time.Duration(s.silent.Load()) {
		s.silent.Store(int64(now + quietTime))
	}
}

// ask asks the leader. It says whether the turn has its home; without one, and
// without an error, the turn looks again.
func (k *seeker) ask(ctx context.Context, unused bool) (settled bool, err error) {
	t, now := k.t, k.t.r.Now()
	if now >= k.until || now < time.Duration(t.s.silent.Load()) {
		return true, k.fallback(ctx)
	}
	t.s.wanted.Store(int64(now))
	q := k.question(unused)
	before := t.unboundLookup()
	a, kept, err := t.put(ctx, q, k.until)
	switch {
	case err != nil:
		k.quiet(ctx)
		return true, k.fallback(ctx)
	case a.verdict == unbound && q.ask == askAssert: // it is to be bound elsewhere
	case a.verdict == unbound && k.propose == nil:
		return true, t.settle(Home{Lookup: before}) // nothing stands and nothing was proposed
	case a.verdict == unbound:
		k.ponder()
	case a.verdict == created && kept:
		t.home.Lookup = before
	case a.binding.Epoch > 0 && !kept: // the feed knows better, or will in a moment
		k.sleep(ctx, nil, t.r.Now()+dropRest)
	case a.verdict == held || a.verdict == unknown:
		if t.r.Now() >= k.heldUntil {
			t.r.counts.heldOut.Add(1)
			return true, k.fallback(ctx)
		}
		k.until = max(k.until, min(k.heldUntil, t.r.Now()+k.t.r.wait(t.pool)))
		k.sleep(ctx, nil, t.r.Now()+heldRest)
	case a.verdict == full:
		return true, k.fallback(ctx)
	}
	if ctx.Err() != nil {
		return true, context.Cause(ctx)
	}
	return false, nil
}

// ponder asks for a proposal, where this node has not made a choice before; the time
// that takes is the caller's.
func (k *seeker) ponder() {
	before := k.t.r.Now()
	if k.proposal = k.t.chosen(); k.proposal == "" {
		k.proposal = k.propose()
	}
	k.propose = nil
	spent := k.t.r.Now() - before
	k.began += spent
	k.until += spent
	k.heldUntil += spent
}

// put asks the leader and keeps the answer, if the feed does not know better.
func (t *Turn) put(ctx context.Context, q question, until time.Duration) (a answer, kept bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(until-t.r.Now(), time.Millisecond))
	defer cancel()
	p := t.s.stripe(t.session)
	p.mu.Lock()
	l := p.alive(t.session)
	l.asks++
	spoke := l.spoke
	p.mu.Unlock()
	a, err = t.r.ask(ctx, q)
	if err == nil && a.binding.Epoch > 0 {
		kept = t.s.install(t.r, t.session, a, spoke)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.asks--; kept && l.provisional != "" {
		l.provisional = ""
		t.r.counts.provisional.Add(-1)
	}
	p.tidy(t.session, l)
	return a, kept, err
}

// unboundLookup says whether a session without a binding is known to have had one.
func (t *Turn) unboundLookup() Lookup {
	if _, known := t.r.cache.Peek(t.session, t.r.Now()); known {
		return LookupLost
	}
	return LookupNew
}

// settle counts the turn for a home that the section does not vouch for.
func (t *Turn) settle(h Home) error {
	p := t.s.stripe(t.session)
	p.mu.Lock()
	defer p.mu.Unlock()
	t.l = p.alive(t.session)
	t.l.turns++
	t.home, t.counted, t.looked = h, true, t.r.Now()
	return nil
}

// Rebind asks for another home: the one that was seen cannot serve the session. No
// connection of this turn is open, so it does not run meanwhile. The turn lasts,
// also after an error.
func (t *Turn) Rebind(ctx context.Context, seen Home, reason string, propose func() string) (Home, error) {
	if reason == ReasonHeavy && t.others() {
		return seen, nil
	}
	t.leave(t.r.Now())
	proposal := propose()
	switch {
	case proposal == "" || proposal == seen.Backend:
		return seen, t.settle(seen)
	case seen.Epoch == 0:
		return t.another(seen, proposal)
	}
	q := question{ask: askRebind, shard: t.s.shard, session: t.session, seen: seen.Epoch, backend: proposal, heavy: reason == ReasonHeavy}
	stands, err := t.beg(ctx, q)
	switch {
	case stands:
		return t.resettle(ctx, seen, proposal)
	case q.heavy:
		return seen, t.settle(seen) // it is well where it is
	case t.r.Rules.Pool(t.pool).Strict:
		return seen, errors.Join(ErrNoLeader, err, t.settle(seen))
	}
	t.r.counts.detours.Add(1)
	h := Home{Backend: proposal, Epoch: seen.Epoch, Lookup: LookupRepin, Stale: true}
	return h, t.settle(h)
}

// another makes another provisional choice, which is remembered instead of the one
// that cannot serve.
func (t *Turn) another(seen Home, proposal string) (Home, error) {
	h := Home{Lookup: LookupFallback, Backend: proposal, Provisional: true}
	p := t.s.stripe(t.session)
	p.mu.Lock()
	if l := p.live[t.session]; l != nil && l.provisional == seen.Backend {
		l.provisional = proposal
	}
	p.mu.Unlock()
	return h, t.settle(h)
}

// ReasonHeavy is Rebind's for a turn that would cost more where its session is than
// elsewhere, what is lost there counted in. Such a turn is moved in one round, or
// stays.
const ReasonHeavy = "heavy"

// others says whether other turns of the session run here.
func (t *Turn) others() bool {
	p := t.s.stripe(t.session)
	p.mu.Lock()
	defer p.mu.Unlock()
	return t.l.turns > 1
}

// beg asks for a rebind until the leader says what stands.
func (t *Turn) beg(ctx context.Context, q question) (stands bool, err error) {
	began := t.r.Now()
	until := began + max(t.r.wait(t.pool), wishTime)
	defer func() { t.waited += t.r.Now() - began }()
	for t.r.Now() < until && ctx.Err() == nil {
		a, _, err := t.put(ctx, q, until)
		if err != nil || a.verdict == bound {
			return err == nil, err
		}
		if a.verdict == detour || a.verdict == full || q.heavy {
			return false, nil
		}
		_ = rest(ctx, heldRest) // the loop looks at ctx
	}
	return false, context.Cause(ctx)
}

// resettle goes by what stands, after a rebind.
func (t *Turn) resettle(ctx context.Context, seen Home, proposal string) (Home, error) {
	t.home = Home{}
	if err := t.seek(ctx, nil); err != nil {
		return seen, errors.Join(err, t.settle(seen))
	}
	if t.home.Backend != seen.Backend {
		t.home.Lookup = LookupRepin
	}
	t.alone = t.alone || t.home.Backend == proposal && !t.r.Rules.Pool(t.pool).Strict
	return t.home, nil
}
