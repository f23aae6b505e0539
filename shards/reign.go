package shards

import (
	"math"
	"slices"
	"time"
)

const (
	lease      = 2 * time.Second        // a node may use what it cached for so long from its question on
	margin     = 250 * time.Millisecond // that a leader waits longer: clocks that drift by a tenth
	holdTime   = 500 * time.Millisecond // for a hold's answers; then it is called off
	wishTime   = time.Second            // for a change that somebody waits for
	wishRest   = 250 * time.Millisecond // before a busy session is asked about again, if it does not say that it is idle; doubles
	wishRestTo = 4 * time.Second
	rebindRest = 10 * time.Second // between two rebinds of a session at once

	maxWants = 65536 // changes that wait, per shard
	maxHold  = 256   // sessions in a hold
	maxHolds = 4     // holds that wait for answers, per shard
)

// reign is what a leader knows in memory, for one term: it dies with it, also when
// the same node is elected again. Owner.mu guards it.
type reign struct {
	o      *Owner
	term   uint64
	began  time.Duration // when the term was first proven here: its election was before
	proven time.Duration

	grants map[Holder]time.Duration // until when a holder's lease may last
	feeds  map[Holder]*outlet       // where the shard has a section
	left   map[Holder]uint64        // said that no turn runs and none will; renewals below that number are of before

	wants    map[Key]*want
	ready    map[kind]map[Key]*want // of wants, those that may be tried now
	unheard  map[bool]time.Duration // until then none that is strict, or is not, is tried: a holder cannot be asked
	holds    map[uint64]*hold
	heldBy   map[Key]*hold
	numbered uint64

	rebound recent           // when sessions were moved for the asking
	uses    map[string]*Uses // by pool
	swept   time.Duration
	ticked  time.Duration
	downs   map[string]bool // backends whose end is on its way
	copying map[string]bool // pools whose set is
	passing map[Holder]bool // an entry that takes the holder away is on its way
}

func newReign(o *Owner, term uint64) *reign {
	now := o.desk.now()
	r := &reign{
		o: o, term: term, began: now, proven: now, swept: now, ticked: now,
		grants: make(map[Holder]time.Duration), feeds: make(map[Holder]*outlet), left: make(map[Holder]uint64),
		wants: make(map[Key]*want), ready: make(map[kind]map[Key]*want), unheard: make(map[bool]time.Duration), holds: make(map[uint64]*hold), heldBy: make(map[Key]*hold),
		uses: make(map[string]*Uses), passing: make(map[Holder]bool), downs: make(map[string]bool), copying: make(map[string]bool),
	}
	r.afresh()
	return r
}

// afresh begins all timers anew, as with every new leader: what it does not know of
// uses shall let nobody go early.
func (r *reign) afresh() {
	r.o.machine.View(func(t *Table, _ Position) {
		pools := make(map[string]string)
		for k, b := range t.All() {
			pool, known := pools[b.Backend]
			if !known {
				pool = r.o.poolIn(t, b.Backend)
				pools[b.Backend] = pool
			}
			r.usesOf(pool).Begin(k, r.o.desk.now())
		}
	})
}

// touch notes that a session was used.
func (r *reign) touch(session Key, b Binding) {
	if b.Epoch > 0 {
		r.usesOf(r.o.pool(b.Backend)).Touch(session, r.o.desk.now())
	}
}

func (r *reign) usesOf(pool string) *Uses {
	u := r.uses[pool]
	if u == nil {
		u = new(Uses)
		r.uses[pool] = u
	}
	return u
}

// fresh says whether the term was proven a moment ago: a leader that nobody has
// confirmed for a lease had better not act of its own.
func (r *reign) fresh(now time.Duration) bool { return now < r.proven+lease }

// graced says whether a lease that another leader granted may still last.
func (r *reign) graced(now time.Duration) bool {
	return now >= r.began+lease+margin || r.o.desk.o.lacks(cureGrace)
}

// lapsed says whether the holder's lease is over, whoever granted it.
func (r *reign) lapsed(h Holder, now time.Duration) bool {
	until := r.began + lease + margin
	if r.o.desk.o.lacks(cureGrace) {
		until = 0
	}
	return now >= max(r.grants[h], until)
}

// heeds says whether the holder hears what is sent now.
func (r *reign) heeds(h Holder) bool {
	f := r.feeds[h]
	return f != nil && f == r.o.desk.feed(h)
}

// open begins the shard's section in a feed: with the holds in force first. A
// holder that opens its feed while a hold waits for answers is asked, too, and
// anew if it has answered: what it said was of the section before.
func (r *reign) open(h Holder, f *outlet) {
	items := []item{{kind: itemBegin, shard: r.o.shard, incarnation: r.o.incarnation, term: r.term, index: r.o.tapped}}
	for _, d := range r.holds {
		items = append(items, d.item(r.o.shard))
		if !d.proposed {
			d.asked[h] = true
		}
	}
	r.feeds[h] = f
	clear(r.unheard)
	f.put(items...)
}

// tell sends to every open section.
func (r *reign) tell(items ...item) {
	for h, f := range r.feeds {
		if f != r.o.desk.feed(h) {
			delete(r.feeds, h) // the feed broke: its next renewal begins the section anew
			continue
		}
		f.put(items...)
	}
}

// changed tells the feeds of bindings that stood and changed. First bindings are
// not told: nobody knows of the session yet but who asked.
func (r *reign) changed(index uint64, changes []Change) {
	var items []item
	for _, c := range changes {
		if c.Was == 0 {
			continue
		}
		b := c.Binding
		if b.Epoch == 0 {
			b = Binding{Epoch: c.Was} // let go
			for _, u := range r.uses {
				u.Drop(c.Session)
			}
		}
		items = append(items, item{kind: itemChange, shard: r.o.shard, index: index, session: c.Session, binding: b})
	}
	if len(items) > 0 {
		r.tell(items...)
	}
}

// tick does what is due. sets are the pools'.
func (r *reign) tick(sets []Set) {
	now := r.o.desk.now()
	if gap := now - r.ticked; gap > jump {
		r.resume(now, gap)
	}
	r.ticked = now
	for _, d := range r.holds {
		if (!d.proposed || r.o.desk.o.lacks(cureOutcome)) && now >= d.deadline {
			r.callOff(d)
		}
	}
	r.review(now)
	r.launch()
	r.copySets(sets)
	r.unhold(now)
	if now-r.swept >= sweepEvery {
		r.swept = now
		r.sweep(now)
	}
}

// sweepEvery is how often a reign looks for what nobody asked for.
const sweepEvery = 500 * time.Millisecond

// sweep looks for sessions to let go or to move.
func (r *reign) sweep(now time.Duration) {
	if r.graced(now) {
		r.expire(now)
		r.evict()
		r.vacate(now)
	}
}

// unhold takes holders away that have left empty, or are dead by an entry of the
// cluster's own shard and have no lease any more.
func (r *reign) unhold(now time.Duration) {
	for _, h := range r.o.machine.Holders() {
		gone := r.left[h] > 0 || r.o.desk.dead(h.Node) && r.lapsed(h, now)
		if !gone || r.passing[h] {
			continue
		}
		r.passing[h] = true
		r.o.desk.work(func() { r.takeAway(h) })
	}
}

// takeAway proposes until the holder is surely none any more. It gets no lease
// meanwhile: it would have one, and not be asked.
func (r *reign) takeAway(h Holder) {
	if !r.press(Command{Op: OpUnholder, Node: h.Node, Boot: h.Boot}) {
		return // the term is over, and with it whatever this reign would grant
	}
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	delete(r.passing, h)
	clear(r.unheard)
	if !r.o.desk.o.lacks(cureGivenBack) {
		delete(r.feeds, h) // if it becomes one again, it begins a section: it was asked nothing meanwhile
	}
}

// press proposes a command until its outcome is known; it must be one that can be
// done twice. false: the term ended before.
func (r *reign) press(c Command) bool {
	command := c.encode()
	for {
		if _, err := r.o.log.Propose(r.o.desk.ctx, command); err == nil {
			return true
		}
		if r.over() || !rest(r.o.desk.ctx, proposeRest) {
			return false
		}
	}
}

// outlived notes that older lives of a node have ended: it runs once at a time, but
// for upgrades, and a process that ended has no turns. Which of them live is said by
// boot; where it is not, those since the elder may.
func (r *reign) outlived(h Holder, elder uint64, living []uint64) {
	for _, old := range r.o.machine.Holders() {
		if old.Node != h.Node || old.Boot >= h.Boot {
			continue
		}
		lives := elder > 0 && old.Boot >= elder
		if len(living) > 0 {
			lives = slices.Contains(living, old.Boot)
		}
		if !lives {
			r.left[old] = math.MaxUint64
		}
	}
}

// copySets has the log know the pools' backend sets, which its machines cannot see.
func (r *reign) copySets(sets []Set) {
	for _, s := range sets {
		if known, ok := r.o.machine.Set(s.Pool); ok && known.Revision >= s.Revision || r.copying[s.Pool] {
			continue
		}
		r.copying[s.Pool] = true
		s.Backends = r.o.withLeft(s)
		r.o.desk.work(func() {
			_, err := r.o.log.Propose(r.o.desk.ctx, Command{Op: OpSet, Pool: s.Pool, Revision: s.Revision, Backends: s.Backends}.encode()) // if it failed, the next tick tries again
			r.o.mu.Lock()
			defer r.o.mu.Unlock()
			delete(r.copying, s.Pool)
			if now := r.o.desk.now(); err == nil && r.o.reign == r && r.fresh(now) && r.graced(now) {
				r.vacate(now) // whoever lived at a backend that is gone
			}
		})
	}
}
