package shards

import (
	"context"
	"time"
)

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

// launch begins holds for what is due, but not before leases have lapsed that a
// leader before this one may have granted.
func (r *reign) launch() {
	now := r.o.desk.now()
	for len(r.holds) < maxHolds && r.graced(now) {
		batch := r.due(now)
		if len(batch) == 0 {
			return
		}
		if strict := batch[0].strict; !r.hold(batch, now) {
			r.unheard[strict] = now + wishRest // no other would fare better
		}
	}
}

// due picks wishes of one kind that may be tried now.
func (r *reign) due(now time.Duration) (batch []*want) {
	for k, ready := range r.ready {
		if now < r.unheard[k.strict] {
			continue
		}
		for _, w := range ready {
			if now >= w.until || !r.stands(w) {
				r.conclude(w)
				continue
			}
			if batch = append(batch, w); len(batch) == maxHold {
				return batch
			}
		}
		if len(batch) > 0 {
			return batch
		}
	}
	return nil
}

// hold begins a hold. Every holder is asked, lapsed lease or not; but where the
// pool wants availability, one whose lease has lapsed is not waited for. Where one
// that must answer cannot be asked, nobody's turns are held in vain, and none begins.
func (r *reign) hold(batch []*want, now time.Duration) (begun bool) {
	d := &hold{idle: batch[0].idle, wants: make(map[Key]*want), asked: make(map[Holder]bool), deadline: now + holdTime}
	for _, h := range r.o.machine.Holders() {
		switch {
		case r.heeds(h):
			d.asked[h] = true
		case (batch[0].strict || !r.lapsed(h, now)) && !r.o.desk.o.lacks(cureHolders):
			return false
		}
	}
	r.numbered++
	d.number = r.numbered
	for _, w := range batch {
		d.wants[w.session] = w
		r.heldBy[w.session] = d
		r.unlist(w)
	}
	r.holds[d.number] = d
	if d.idle > 0 && r.o.desk.o.lacks(cureLetGo) {
		clear(d.asked)
	} else {
		r.tell(d.item(r.o.shard))
	}
	r.decide(d)
	return true
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
		w := r.wants[k]
		if w == nil {
			continue
		}
		if w.next, w.rest = 0, wishRest; r.heldBy[k] == nil {
			r.enlist(w)
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

// void takes out of a hold what is not wanted any more.
func (r *reign) void(d *hold) {
	var out []Key
	for k, w := range d.wants {
		if !r.stands(w) {
			r.conclude(w)
			delete(d.wants, k)
			delete(r.heldBy, k)
			out = append(out, k)
		}
	}
	r.release(d, out)
}

// decide proposes what is left of a hold that all have answered.
func (r *reign) decide(d *hold) {
	if len(d.asked) == 0 {
		r.void(d)
	}
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
