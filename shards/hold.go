package shards

import (
	"context"
	"errors"
	"time"
)

// want is a change that is to be made once no turn of the session runs.
type want struct {
	session Key
	from    Epoch         // the binding it is about
	to      string        // "": let it go
	idle    time.Duration // only if it had no turn for so long
	until   time.Duration // then it is called off
	strict  bool          // its pool's rule
	once    bool          // if it is busy, let it be
	pool    string

	next  time.Duration // it was busy: not before
	rest  time.Duration
	ended chan struct{}
}

// hold asks all holders to start no turn of some sessions. Each answers, naming
// the number, which of them are busy: those drop out, and are asked again later.
// When all have answered, what is left is proposed; from then on it cannot be
// called off, and lasts until the outcome is known.
type hold struct {
	number   uint64
	idle     time.Duration
	wants    map[Key]*want
	asked    map[Holder]bool // who has not answered
	deadline time.Duration
	proposed bool
}

func (d *hold) item(shard uint32) item {
	return item{kind: itemHold, shard: shard, number: d.number, idle: uint32(d.idle.Milliseconds()), keys: d.keys()}
}

func (d *hold) keys() []Key {
	keys := make([]Key, 0, len(d.wants))
	for k := range d.wants {
		keys = append(keys, k)
	}
	return keys
}

var (
	errOtherWish = errors.New("another change of the session is wanted")
	errManyWants = errors.New("too many changes wait")
)

// post takes a wish. A session has one at a time.
func (r *reign) post(w want) (<-chan struct{}, error) {
	if old := r.wants[w.session]; old != nil {
		if old.from == w.from && old.to == w.to && old.idle == w.idle {
			return old.ended, nil
		}
		return nil, errOtherWish
	}
	if len(r.wants) >= maxWants {
		return nil, errManyWants
	}
	w.ended, w.rest = make(chan struct{}), wishRest
	w.pool = r.poolOf(w.session)
	r.wants[w.session] = &w
	return w.ended, nil
}

// poolOf is the pool of a session that is bound.
func (r *reign) poolOf(session Key) string {
	b, _ := r.o.machine.At([]Key{session})
	return r.o.desk.rules.Of(b[0].Backend)
}

// conclude ends a wish, whatever became of it.
func (r *reign) conclude(w *want) {
	delete(r.wants, w.session)
	close(w.ended)
	if w.to == "" || w.once && r.heldBy[w.session] == nil {
		return // no move, or one that was not begun
	}
	b, _ := r.o.machine.At([]Key{w.session})
	r.o.desk.counted(w.pool, b[0].Backend == w.to && b[0].Epoch > w.from)
}

// launch begins holds for what is due, but not before leases have lapsed that a
// leader before this one may have granted.
func (r *reign) launch() {
	now := r.o.desk.now()
	for len(r.holds) < maxHolds && r.graced(now) {
		batch := r.due(now)
		if len(batch) == 0 {
			return
		}
		r.hold(batch, now)
	}
}

// due picks wishes of one kind that may be tried now.
func (r *reign) due(now time.Duration) (batch []*want) {
	for _, w := range r.wants {
		if r.heldBy[w.session] != nil || now < w.next || now >= w.until {
			continue
		}
		if len(batch) > 0 && (batch[0].idle != w.idle || batch[0].strict != w.strict) {
			continue
		}
		if batch = append(batch, w); len(batch) == maxHold {
			break
		}
	}
	return batch
}

// hold begins a hold. Every holder is asked, lapsed lease or not; but where the
// pool wants availability, one whose lease has lapsed is not waited for. Where one
// that must answer cannot be asked, nobody's turns are held in vain.
func (r *reign) hold(batch []*want, now time.Duration) {
	d := &hold{idle: batch[0].idle, wants: make(map[Key]*want), asked: make(map[Holder]bool), deadline: now + holdTime}
	for _, h := range r.o.machine.Holders() {
		switch {
		case r.heeds(h):
			d.asked[h] = true
		case (batch[0].strict || !r.lapsed(h, now)) && !r.o.desk.o.lacks(cureHolders):
			for _, w := range batch {
				w.next = now + wishRest
			}
			return
		}
	}
	r.numbered++
	d.number = r.numbered
	for _, w := range batch {
		d.wants[w.session] = w
		r.heldBy[w.session] = d
	}
	r.holds[d.number] = d
	if d.idle > 0 && r.o.desk.o.lacks(cureLetGo) {
		clear(d.asked)
		r.decide(d)
		return
	}
	r.tell(d.item(r.o.shard))
	r.decide(d)
}

// heard takes a holder's answer: all of the hold's sessions are idle there but the
// busy ones.
func (r *reign) heard(from Holder, number uint64, busy []Key) {
	d := r.holds[number]
	if r.o.desk.o.lacks(cureNumber) {
		d = r.anyAsked(from)
	}
	if d == nil || d.proposed || !d.asked[from] {
		return // it crossed the end of the hold: it means nothing now
	}
	delete(d.asked, from)
	now := r.o.desk.now()
	var out []Key
	for _, k := range busy {
		w := d.wants[k]
		if w == nil {
			continue
		}
		out = append(out, k)
		r.drop(d, w, now)
	}
	r.release(d, out)
	r.decide(d)
}

// anyAsked is a hold that waits for a node's answer.
func (r *reign) anyAsked(from Holder) *hold {
	for _, d := range r.holds {
		if d.asked[from] {
			return d
		}
	}
	return nil
}

// drop takes a busy session out of a hold.
func (r *reign) drop(d *hold, w *want, now time.Duration) {
	delete(d.wants, w.session)
	delete(r.heldBy, w.session)
	if w.once || w.idle > 0 { // in use: there is nothing to let go
		b, _ := r.o.machine.At([]Key{w.session})
		r.touch(w.session, b[0])
		r.conclude(w)
		return
	}
	w.next, w.rest = now+w.rest, min(2*w.rest, wishRestTo)
}

// idle hears that sessions which were busy are idle.
func (r *reign) idle(keys []Key) {
	for _, k := range keys {
		if w := r.wants[k]; w != nil {
			w.next, w.rest = 0, wishRest
		}
	}
	r.launch()
}

// release tells that a hold is over for some of its sessions.
func (r *reign) release(d *hold, keys []Key) {
	if len(keys) > 0 {
		r.tell(item{kind: itemRelease, shard: r.o.shard, number: d.number, keys: keys})
	}
}

// callOff ends a hold that not everybody answered. It may not have been proposed.
func (r *reign) callOff(d *hold) {
	now, keys := r.o.desk.now(), d.keys()
	for _, w := range d.wants {
		r.drop(d, w, now)
	}
	delete(r.holds, d.number)
	r.release(d, keys)
}

// decide proposes what is left of a hold that all have answered.
func (r *reign) decide(d *hold) {
	switch {
	case len(d.wants) == 0:
		delete(r.holds, d.number)
	case len(d.asked) == 0:
		d.proposed = true
		r.o.desk.work(func() { r.carryOut(d) })
	}
}

// carryOut proposes until the outcome is known: one that is proposed twice names
// the same epochs, and does nothing twice. It ends with the term.
func (r *reign) carryOut(d *hold) {
	c := Command{Op: OpMove, Term: r.term}
	for _, w := range d.wants { // nobody changes it any more
		c.Targets = append(c.Targets, Target{Session: w.session, Seen: w.from, Backend: w.to})
	}
	if r.press(c) {
		r.settle(d)
	}
}

const proposeRest = 50 * time.Millisecond

// over says whether another term is known to have begun.
func (r *reign) over() bool {
	leader := r.o.log.Leader()
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	return r.o.reign != r || leader != "" && leader != r.o.desk.node
}

// settle ends a hold whose outcome is known and applied here; the feeds have been
// told of it before. Where the term is over they are not told of the end: their
// sections are another reign's by now, with holds of the same numbers.
func (r *reign) settle(d *hold) {
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	keys := d.keys()
	for _, w := range d.wants {
		r.conclude(w)
		delete(r.heldBy, w.session)
	}
	delete(r.holds, d.number)
	if r.o.reign != r && !r.o.desk.o.lacks(cureTermEnds) {
		return
	}
	r.release(d, keys)
	r.launch()
}

// rest waits, and says whether ctx still lasts.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
