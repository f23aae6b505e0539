package backend

import "time"

// Lease is one stream's claim on a backend: counted from the pick until it is
// given back. The zero Lease claims nothing. It belongs to one goroutine at a
// time.
type Lease struct {
	backend *Backend
	word    uint64 // when it was claimed, and in the low bits what follows
}

// What a Lease remembers of its stream, in one word with a moment: every quiet
// stream holds one.
const (
	isTrial    = 1 << iota // it decides over an ejected backend
	isSecond               // the second policy chose
	isAnswered             // the head of its answer came
	isFlowing              // so did a piece of the body
	leaseBits  = iota
)

func newLease(b *Backend, at uint64, trial bool) Lease {
	l := Lease{backend: b, word: at << leaseBits}
	if trial {
		l.word |= isTrial
		b.pool.await()
	}
	return l
}

func (l *Lease) is(what uint64) bool { return l.word&what != 0 }

// decided says that it is known what came of the trial, if the stream is one: it
// is as any other from here on.
func (l *Lease) decided() {
	if l.is(isTrial) {
		l.word &^= isTrial
		l.backend.trial.Store(false)
		l.backend.pool.await()
	}
}

// outdated tells whether the stream is from before its backend was let in again:
// that it fails now says how the backend was then.
func (l *Lease) outdated() bool { return l.word>>leaseBits < l.backend.back.Load() }

// Backend is where the stream goes; nil for the zero Lease.
func (l *Lease) Backend() *Backend { return l.backend }

// Second tells whether the pool's second policy chose the backend.
func (l *Lease) Second() bool { return l.is(isSecond) }

// Flowing tells whether Began was called.
func (l *Lease) Flowing() bool { return l.is(isFlowing) }

// Answered says that the head of the answer came.
func (l *Lease) Answered(now time.Time) {
	if b := l.backend; b != nil && !l.is(isAnswered) {
		l.word |= isAnswered
		b.answering.begin(b.pool.micros(now))
		b.heads.Add(1)
	}
}

// Began says that the first piece of an answer's body came, of one that comes
// as it is made: from here Progress tells the backend's speed. The first piece
// itself does not count, since it took the time before.
func (l *Lease) Began(now time.Time) {
	b := l.backend
	if b == nil || l.is(isFlowing) {
		return
	}
	l.word |= isFlowing
	at := b.pool.micros(now)
	b.flowing.begin(at)
}

// Progress counts what came of an answer after its first piece: events, or
// whatever the backend makes one by one, and bytes. One atomic addition.
func (l *Lease) Progress(events, bytes int) {
	if b := l.backend; b != nil {
		b.made.Add(uint64(bytes)<<countBits + uint64(events)) // an overflow of events is a byte too many in a million
	}
}

// Release gives the claim back; a second call does nothing. Where a stream
// waits that the backend may serve, the claim becomes that stream's.
func (l *Lease) Release(now time.Time) {
	b := l.backend
	if b == nil {
		return
	}
	l.decided()
	l.backend = nil
	at := b.pool.micros(now)
	if l.is(isAnswered) {
		b.answering.end(at)
	} else {
		b.header.outwaited(int64(at)+1, time.Duration(at-l.word>>leaseBits)*time.Microsecond)
	}
	if l.is(isFlowing) {
		b.flowing.end(at)
	}
	q := &b.pool.queue
	if q.length.Load() > 0 && q.pass(b, now) {
		return
	}
	b.flights.end(at)
	b.pool.flights.Add(^uint64(0))
	b.tighten(b.room())
	if b.flights.count() == 0 {
		b.last(now)
	}
	if q.length.Load() > 0 {
		q.review() // who came to wait meanwhile did not see the place
	}
}

// last looks who waits for the backend's last stream to end.
func (b *Backend) last(now time.Time) {
	switch b.standing.Load().State {
	case Removed:
		b.pool.gone(b)
	case Draining:
		b.pool.emptied(b, now)
	}
}

// claim counts a stream at the backend, never over a cap that was configured;
// ok is false where others were faster.
func (b *Backend) claim(now time.Time, trial bool) (l Lease, ok bool) {
	at := b.pool.micros(now)
	room := b.room()
	if room < 0 {
		b.flights.begin(at)
	} else if !b.flights.under(at, room) {
		if trial {
			b.trial.Store(false)
		}
		return Lease{}, false
	}
	b.pool.flights.Add(oneStart + 1)
	b.tighten(room)
	return newLease(b, at, trial), true
}

// tighten tells where so few places are left that the other nodes could take
// more at once than there are.
func (b *Backend) tighten(room int64) {
	if tell := b.pool.Tight; tell != nil && room >= 0 && room-b.flights.count() <= int64(b.elsewhere.Load().Nodes) {
		tell()
	}
}

// hand makes a stream's place, which stays counted, that of another.
func (b *Backend) hand(now time.Time, trial bool) Lease {
	b.pool.flights.Add(oneStart)
	return newLease(b, b.pool.micros(now), trial)
}

// limit is how many streams the cluster may have at the backend; negative: as
// many as it likes. A cap that was learned from outside is a guess, which orders
// the picks and turns nobody away. One that the engine tells is exceeded by an
// eighth: with nothing waiting there, nobody would see that more can run.
func (b *Backend) limit() int {
	t := b.terms.Load()
	switch {
	case t.CapSource == CapEngine:
		return t.Cap + max(1, t.Cap/8)
	case t.CapSource != CapConfig || t.Cap == 0:
		return -1
	}
	return t.Cap
}

// room is how many streams this node may have at the backend beside those of
// other nodes; negative: no limit.
func (b *Backend) room() int64 {
	limit := b.limit()
	if limit < 0 {
		return -1
	}
	e := b.elsewhere.Load()
	if e.Stale {
		return int64((limit + e.Nodes) / (e.Nodes + 1)) // this node's part, rounded up
	}
	left := max(0, int64(limit-e.InFlight))
	if e.Wanting > 0 {
		return min(left, b.part(limit, e.Wanting))
	}
	return left
}

// full tells whether the backend has as many streams as it may.
func (b *Backend) full() bool {
	room := b.room()
	return room >= 0 && b.flights.count() >= room
}
