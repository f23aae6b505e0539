package shards

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Log is a shard's replicated log, as this node has it.
type Log interface {
	// Propose has a command applied on every replica, and returns its result; on
	// the leader alone. It returns once the outcome is known, or ctx ends, or the
	// leader's term.
	Propose(ctx context.Context, command []byte) (any, error)
	// Proven returns once this node is proven to have been the leader at a moment
	// after the call, with all applied that was committed before.
	Proven(ctx context.Context) (term uint64, err error)
	// Leader is a node's id, this one's too; "": none is known.
	Leader() string
}

// Owner answers for a shard, on its leader. What stands is in the machine; what it
// knows besides (leases, holds, last uses, wishes) is its reign's, and dies with
// the term.
type Owner struct {
	log         Log
	machine     *Machine
	incarnation uint32
	last        atomic.Pointer[Machine] // what an earlier run knew, until the machine is as far; nil: nothing more

	shard uint32 // from here on: set by Router.Own
	desk  *desk

	mu     sync.Mutex // guards what follows; the machine may be asked under it
	reign  *reign     // the last proven term's; nil: none yet
	tapped uint64     // the last entry whose changes went to the feeds

	proving bool   // for ends of its own
	round   *round // the next proof that many share; nil: nobody waits for one
}

// NewOwner joins a replica's log and its machine; incarnation is the shard's.
func NewOwner(log Log, machine *Machine, incarnation uint32) *Owner {
	return &Owner{log: log, machine: machine, incarnation: incarnation}
}

// Recall gives the owner what an earlier run of this node knew: until there is a
// leader, the machine knows less.
func (o *Owner) Recall(last *Machine) { o.last.Store(last) }

// answer is what the owner says to a question of node from.
func (o *Owner) answer(ctx context.Context, from string, q question) answer {
	a, err := o.reply(ctx, Holder{Node: from, Boot: q.boot}, q)
	if err == nil {
		return a
	}
	leader := o.log.Leader()
	if leader == o.desk.node || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return answer{verdict: unknown}
	}
	return answer{verdict: elsewhere, leader: leader}
}

// reply notes a use where a turn asks.
func (o *Owner) reply(ctx context.Context, from Holder, q question) (answer, error) {
	a, err := o.decide(ctx, from, q)
	if turns := q.ask == askBind || q.ask == askRebind || q.ask == askAssert; turns && err == nil {
		o.used(q.session, a.binding)
	}
	return a, err
}

func (o *Owner) decide(ctx context.Context, from Holder, q question) (answer, error) {
	switch q.ask {
	case askBind:
		return o.bind(ctx, q)
	case askRead:
		return o.look(ctx, q.session)
	case askApplied:
		return o.applied(q.session), nil
	case askRebind:
		return o.rebind(ctx, q)
	case askMove:
		return o.move(ctx, q)
	case askAssert:
		return o.assert(ctx, q)
	case askRenew:
		return o.renew(ctx, from, q)
	}
	return o.note(from, q), nil
}

// bind tells what stands, or binds. A session that has no binding here needs no
// proof: what is proposed for it is decided by the log.
func (o *Owner) bind(ctx context.Context, q question) (answer, error) {
	a, ruled := o.peek(q.session)
	if a.verdict != unbound || !ruled {
		var err error
		if a, err = o.look(ctx, q.session); err != nil {
			return answer{}, err
		}
	}
	if a.verdict == bound && q.unused {
		a = o.letGo(ctx, q.session, a)
	}
	if a.verdict != unbound || q.backend == "" {
		return a, nil
	}
	if !o.room(q.backend) {
		return answer{verdict: o.crowded()}, nil
	}
	got, err := o.log.Propose(ctx, Command{Op: OpBind, Session: q.session, Backend: q.backend}.encode())
	if err != nil {
		return answer{}, err
	}
	a, _ = o.peek(q.session)
	if a.verdict == bound && !got.(Result).Conflict {
		a.verdict = created
	}
	return a, o.still(a)
}

// still says why a peek means nothing: the replica was closed meanwhile, and with it
// the reign. Another one knows.
func (o *Owner) still(a answer) error {
	if a.term == 0 {
		return errOldTerm
	}
	return nil
}

// look tells what stands, proven to have stood at a moment after the call. The
// proof comes first and the look second: what another leader committed before the
// question is then applied here.
func (o *Owner) look(ctx context.Context, session Key) (answer, error) {
	if _, err := o.prove(ctx); err != nil {
		return answer{}, err
	}
	a, _ := o.peek(session)
	return a, o.still(a)
}

// prove returns the reign of a term that is proven to have lasted at a moment
// after the call. A replica that started anew in between proves nothing: its table
// may be empty.
func (o *Owner) prove(ctx context.Context) (*reign, error) {
	_, before := o.machine.At(nil)
	term, err := o.log.Proven(ctx)
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_, at := o.machine.At(nil)
	switch {
	case at.Life != before.Life:
		return nil, errRenewed
	case o.reign != nil && o.reign.term > term:
		return nil, errOldTerm
	case o.reign == nil || o.reign.term < term:
		o.reign = newReign(o, term)
	}
	o.reign.proven = o.desk.now()
	return o.reign, nil
}

var (
	errRenewed = errors.New("the replica started anew meanwhile")
	errOldTerm = errors.New("the proof is of a term that is over")
)

// peek is what stands as it is applied here. The answer's term is that of the
// last proven reign; ruled is false where there is none, or it was not proven for
// a lease.
func (o *Owner) peek(session Key) (a answer, ruled bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, at := o.machine.At([]Key{session})
	a = answer{verdict: unbound, incarnation: o.incarnation, index: at.Index}
	r := o.reign
	if r == nil {
		return a, false
	}
	a.term = r.term
	switch {
	case r.heldBy[session] != nil:
		a.verdict = held
	case b[0].Epoch > 0:
		a.verdict, a.binding = bound, b[0]
	}
	return a, r.fresh(o.desk.now())
}

func (o *Owner) used(session Key, b Binding) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reign != nil {
		o.reign.touch(session, b)
	}
}

// applied is what this replica has applied, without any proof.
func (o *Owner) applied(session Key) answer {
	b, at := o.machine.At([]Key{session})
	if last := o.last.Load(); last != nil {
		known, end := last.At([]Key{session})
		if at.Index >= end.Index {
			o.last.Store(nil)
		} else if known[0].Epoch > b[0].Epoch {
			b = known
		}
	}
	a := answer{verdict: unbound, incarnation: o.incarnation, index: at.Index}
	if b[0].Epoch > 0 {
		a.verdict, a.binding = bound, b[0]
	}
	return a
}

// room says whether the shard may take one more session of the backend's pool; it
// takes an eighth more than it keeps, for the time that an eviction takes.
func (o *Owner) room(backend string) (ok bool) {
	pool := o.pool(backend)
	limit := o.desk.rules.Pool(pool).Max
	if limit <= 0 {
		return true
	}
	o.machine.View(func(t *Table, _ Position) { ok = t.crowd(pool) < limit+limit/8 })
	return ok
}

// crowded has a full shard let sessions go, and says whether to ask again soon.
func (o *Owner) crowded() verdict {
	if !o.leads() {
		return full
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reign.evict()
	o.reign.launch()
	return held
}

// crowd is how many sessions a pool has.
func (t *Table) crowd(pool string) (n int) {
	s, _ := t.Set(pool)
	for _, b := range s.Backends {
		n += t.Count(b.ID)
	}
	return n
}

// renew grants the lease to a holder, and makes it one if it is new. The lease is
// counted from the question's arrival, plus a margin for clocks that drift; the
// asker counts from the moment it asked.
func (o *Owner) renew(ctx context.Context, h Holder, q question) (answer, error) {
	arrived := o.desk.now()
	r, err := o.proveFor(ctx, h)
	if err != nil {
		return answer{}, err
	}
	if o.hasLeft(h, q.number) {
		return answer{verdict: noFeed}, nil
	}
	if err := o.admit(ctx, h); err != nil {
		return answer{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reign != r {
		return answer{}, errOldTerm
	}
	if (r.passing[h] || !o.holds(h)) && !o.desk.o.lacks(cureTakenAway) {
		return answer{verdict: noFeed}, nil // it is being taken away: it begins anew
	}
	f := o.desk.feed(h)
	if f == nil {
		return answer{verdict: noFeed}, nil
	}
	if r.feeds[h] != f {
		r.open(h, f)
	}
	until := arrived + lease + margin
	if o.desk.o.lacks(cureMargin) {
		until -= margin
	}
	r.grants[h] = max(r.grants[h], until)
	delete(r.left, h)
	r.outlived(h, q.elder, q.living())
	f.put(item{kind: itemGrant, shard: o.shard, number: q.number})
	return answer{verdict: done, incarnation: o.incarnation, term: r.term}, nil
}

// hasLeft says whether a renewal was sent before its sender left.
func (o *Owner) hasLeft(h Holder, number uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reign != nil && number < o.reign.left[h] && !o.desk.o.lacks(cureLeft)
}

// holds says whether a node is a holder.
func (o *Owner) holds(h Holder) (ok bool) {
	o.machine.View(func(t *Table, _ Position) { _, ok = t.holders[h] })
	return ok
}

// round is one proof for all renewals that came before it began.
type round struct {
	done  chan struct{} // closed when the rest is set
	reign *reign
	err   error
}

// proveFor proves the term for a renewal: at once for a node without a lease, else
// together with others that come in a while, for a proof costs two calls to
// each replica.
func (o *Owner) proveFor(ctx context.Context, h Holder) (*reign, error) {
	o.mu.Lock()
	if r := o.reign; r == nil || r.grants[h] < o.desk.now()+lease/2 {
		o.mu.Unlock()
		return o.prove(ctx)
	}
	n := o.round
	if n == nil {
		n = &round{done: make(chan struct{})}
		o.round = n
		o.desk.work(func() { o.proveRound(n) })
	}
	o.mu.Unlock()
	select {
	case <-n.done:
		return n.reign, n.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-o.desk.ctx.Done():
		return nil, context.Cause(o.desk.ctx)
	}
}

func (o *Owner) proveRound(n *round) {
	defer close(n.done)
	rest(o.desk.ctx, roundTime)
	o.mu.Lock()
	o.round = nil // who comes from here on may have come after the proof began
	o.mu.Unlock()
	ctx, cancel := context.WithTimeout(o.desk.ctx, lease)
	defer cancel()
	n.reign, n.err = o.prove(ctx)
}

// roundTime is for how long renewals are gathered.
const roundTime = 100 * time.Millisecond

// admit makes a node a holder by an entry, at its first lease in this boot.
func (o *Owner) admit(ctx context.Context, h Holder) error {
	if o.holds(h) {
		return nil
	}
	_, err := o.log.Propose(ctx, Command{Op: OpHolder, Node: h.Node, Boot: h.Boot}.encode())
	return err
}

// note takes what a node tells.
func (o *Owner) note(from Holder, q question) answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.reign
	if r == nil || q.incarnation != o.incarnation || q.term != r.term {
		return answer{verdict: done} // of a term that is over: it means nothing now
	}
	switch q.ask {
	case askHeld:
		r.heard(from, q.number, q.keys)
	case askIdle:
		r.idle(q.keys)
	case askUses:
		stand, _ := o.machine.At(q.keys)
		for i, k := range q.keys {
			r.touch(k, stand[i])
		}
	case askLeave:
		r.left[from] = q.number
	}
	return answer{verdict: done}
}

// tap hears what was applied, in the log's order, and tells the feeds.
func (o *Owner) tap(a Applied) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.Restored {
		o.reign, o.tapped = nil, a.Index // a leader does not restore: its term is over
		return
	}
	o.tapped = a.Index
	if o.reign != nil {
		o.reign.changed(a.Index, a.Changes)
	}
}

// abdicate ends the reign: the replica is closed.
func (o *Owner) abdicate() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reign = nil
}

// tick does what is due.
func (o *Owner) tick(sets []Set) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reign != nil && o.reign.fresh(o.desk.now()) {
		o.reign.tick(sets)
	} else if !o.proving && o.log.Leader() == o.desk.node {
		o.proving = true
		o.desk.work(o.confirm)
	}
}

// confirm has the term proven for the owner's own ends: where nobody asks, too,
// sessions end and backends drain.
func (o *Owner) confirm() {
	ctx, cancel := context.WithTimeout(o.desk.ctx, lease)
	defer cancel()
	_, err := o.prove(ctx)
	if err != nil {
		rest(o.desk.ctx, proveRest)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.proving = false
}

const proveRest = 250 * time.Millisecond // after a proof that failed
