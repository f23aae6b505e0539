package backend

import "time"

// Lease is one stream's claim on a backend: counted from the pick until it is
// given back. The zero Lease claims nothing. It belongs to one goroutine at a
// time.
type Lease struct {
	backend  *Backend
	trial    bool
	second   bool   // the second policy chose
	answered bool   // the head of its answer came
	flowing  bool   // so did a piece of the body
	at       uint64 // when it was claimed
}

// Backend is where the stream goes; nil for the zero Lease.
func (l *Lease) Backend() *Backend { return l.backend }

// Second tells whether the pool's second policy chose the backend.
func (l *Lease) Second() bool { return l.second }

// Flowing tells whether Began was called.
func (l *Lease) Flowing() bool { return l.flowing }

// Answered says that the head of the answer came.
func (l *Lease) Answered(now time.Time) {
	if b := l.backend; b != nil && !l.answered {
		l.answered = true
		b.answering.begin(b.pool.micros(now))
		b.heads.Add(1)
	}
}

// Began says that the first piece of an answer's body came, of one that comes
// as it is made: from here Progress tells the backend's speed. The first piece
// itself does not count, since it took the time before.
func (l *Lease) Began(now time.Time) {
	b := l.backend
	if b == nil || l.flowing {
		return
	}
	l.flowing = true
	at := b.pool.micros(now)
	b.flowing.begin(at)
	b.learn(time.Duration(at-l.at) * time.Microsecond)
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
	l.backend = nil
	if l.trial {
		b.trial.Store(false)
	}
	at := b.pool.micros(now)
	if l.answered {
		b.answering.end(at)
	}
	if l.flowing {
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
	return Lease{backend: b, trial: trial, at: at}, true
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
	return Lease{backend: b, trial: trial, at: b.pool.micros(now)}
}

// room is how many streams this node may have at the backend beside those of
// other nodes; negative: no limit. A cap that was learned from outside is a
// guess, which orders the picks and turns nobody away. One that the engine tells
// is exceeded by an eighth: with nothing waiting there, nobody would see that
// more can run.
func (b *Backend) room() int64 {
	t := b.terms.Load()
	limit := t.Cap
	switch {
	case t.CapSource == CapEngine:
		limit += max(1, t.Cap/8)
	case t.CapSource != CapConfig || t.Cap == 0:
		return -1
	}
	return max(0, int64(limit-b.elsewhere.Load().InFlight))
}

// full tells whether the backend has as many streams as it may.
func (b *Backend) full() bool {
	room := b.room()
	return room >= 0 && b.flights.count() >= room
}
