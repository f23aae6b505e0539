package shards

import (
	"errors"
	"time"
)

// want is a change that is to be made once no turn of the session runs.
type want struct {
	session Key
	from    Epoch         // the binding it is about
	to      string        // "": let it go
	leaves  string        // the backend that all its sessions are to leave; "": the change is wanted for this one
	fit     bool          // to could be used when it was chosen
	idle    time.Duration // only if it had no turn for so long
	until   time.Duration // then it is called off
	strict  bool          // its pool's rule
	once    bool          // if it is busy, let it be
	pool    string

	ready bool          // it may be tried now
	next  time.Duration // it was busy: not before
	rest  time.Duration
	ended chan struct{}
}

// kind is what wants have in common that go into one hold.
type kind struct {
	idle   time.Duration
	strict bool
}

func (w *want) kind() kind { return kind{w.idle, w.strict} }

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
	w.fit = w.to != "" && r.o.desk.usable(w.to)
	r.wants[w.session] = &w
	r.enlist(&w)
	return w.ended, nil
}

// poolOf is the pool of a session that is bound.
func (r *reign) poolOf(session Key) string {
	b, _ := r.o.machine.At([]Key{session})
	return r.o.pool(b[0].Backend)
}

// enlist has a wish tried when there is room. What rests is not among these: a look
// for what is due costs no more than what it finds.
func (r *reign) enlist(w *want) {
	k := w.kind()
	if r.ready[k] == nil {
		r.ready[k] = make(map[Key]*want)
	}
	r.ready[k][w.session], w.ready = w, true
}

func (r *reign) unlist(w *want) {
	k := w.kind()
	if delete(r.ready[k], w.session); len(r.ready[k]) == 0 {
		delete(r.ready, k)
	}
	w.ready = false
}

// review ends wishes whose time is over, and wakes those that have rested.
func (r *reign) review(now time.Duration) {
	for _, w := range r.wants {
		switch {
		case r.heldBy[w.session] != nil:
		case now >= w.until:
			r.conclude(w)
		case !w.ready && now >= w.next:
			r.enlist(w)
		}
	}
}

// stands says whether a wish is still to be made. Its session may have been busy for
// long: by now a drain may have been taken back, or the target may be out of use, and
// then another is chosen where the choice was this leader's.
func (r *reign) stands(w *want) bool {
	usable := r.o.desk.usable
	set, _ := r.o.machine.Set(w.pool)
	switch {
	case w.to == "":
		return true
	case w.leaves != "" && set.Has(w.leaves) && !r.o.desk.leaves(w.leaves): // what is agreed to have left may be there still as this node sees it
		return false
	case !w.fit || usable(w.to):
		return true
	case w.leaves == "":
		return false
	}
	to := r.elsewhere(set, w.session, w.leaves)
	if to != "" {
		w.to = to
	}
	return to != ""
}

// conclude ends a wish, whatever became of it.
func (r *reign) conclude(w *want) {
	delete(r.wants, w.session)
	r.unlist(w)
	close(w.ended)
	if w.to == "" || w.once && r.heldBy[w.session] == nil {
		return // no move, or one that was not begun
	}
	b, _ := r.o.machine.At([]Key{w.session})
	r.o.desk.counted(w.pool, b[0].Backend == w.to && b[0].Epoch > w.from)
}
