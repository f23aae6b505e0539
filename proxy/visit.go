package proxy

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// visit is what a stream has to do with its session. A stream whose request names
// none has no visit.
type visit struct {
	key      []byte
	turn     Turn          // nil: none runs
	home     Home          // as it was told last; the stream's mu guards it
	lookup   Lookup        // how it was found; "": nobody told yet
	away     *failure      // of the attempt at home that came to nothing; nil: home may be tried
	unplaced error         // why the last proposal named no backend
	turns    int           // that were begun
	moves    int           // that were asked for
	cookie   []byte        // value that the client is to keep; nil: it has it
	waited   time.Duration // for its turns, until they had a home; proposals apart
	proposed time.Duration // that proposals took, which may wait for a place
	stale    bool          // a turn of it that was sent ran beside another, or may have
	errand   errand
}

const (
	maxTurns = 8 // of one stream: each is begun because the session moved since the one before
	maxMoves = 3 // that one stream asks for
)

// errMoved says that the session's home changed, or is held, before a byte was
// written to it.
var errMoved = errors.New("the session moved meanwhile")

// visits finds the session that the request names.
func (s *Stream) visits() error {
	c, p := s.client, s.pool
	key, from, err := c.key(p.places, p.scan)
	if err != nil && !errors.Is(err, errOddKey) {
		return err
	}
	var cookie []byte
	if err == nil && p.cookies != nil {
		switch now := time.Now(); {
		case len(key) == 0:
			cookie = newCookie(now)
			key = cookie
		case from == p.cookies.source() && p.cookies.due(key, now):
			cookie = key
		}
	}
	if err != nil || len(key) == 0 {
		s.keyless = true
		return nil
	}
	v := &visit{key: key, cookie: cookie}
	v.errand.stream = s
	s.mu.Lock()
	s.visit = v
	s.mu.Unlock()
	return nil
}

// goHome takes a place at the backend where the stream's session lives. Where
// that cannot serve it, the session gets another home.
func (s *Stream) goHome() error {
	if s.visit.turn == nil {
		if err := s.beginTurn(); err != nil {
			return err
		}
		if err := s.lighten(); err != nil {
			return err
		}
	}
	for {
		why, err := s.moveIn()
		if err != nil || why == "" {
			return err
		}
		if err := s.rehome(why); err != nil {
			return err
		}
	}
}

// beginTurn finds out where the session lives. It is counted from here on.
func (s *Stream) beginTurn() error {
	v := s.visit
	if v.turns++; v.turns > maxTurns {
		return &failure{code: backend.NoLeader, reason: backend.Shed, message: "the session is being moved"}
	}
	from, proposed := time.Now(), v.proposed
	turn, err := s.client.server.opt.Sessions.Turn(v.errand.begin(), s.pool.Name, v.key, v.waited, s.propose)
	v.waited += time.Since(from) - (v.proposed - proposed)
	v.turn = turn // settle ends it, whatever else went wrong
	if err = s.heard(err); err != nil {
		return err
	}
	v.away = nil
	s.lives(turn.Home())
	if v.turns == 1 && v.lookup != LookupHit {
		s.client.server.metrics.binds.Observe((time.Since(s.started) - s.queued - s.client.bodyWait).Seconds())
	}
	return nil
}

// heard says what came of a question about the session.
func (s *Stream) heard(err error) error {
	switch cut := s.visit.errand.over(); {
	case cut != nil:
		return cut
	case err == nil:
		return nil
	}
	s.visit.lookup = LookupLost
	return &failure{code: backend.NoLeader, reason: backend.Shed, message: "nobody can say now where the session lives", err: err}
}

// lives notes the session's home.
func (s *Stream) lives(h Home) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visit.home, s.visit.lookup = h, h.Lookup
}

// epoch is of the session's binding; 0: it has none. The stream calls it, or who
// holds mu.
func (s *Stream) epoch() uint32 {
	if s.visit == nil {
		return 0
	}
	return s.visit.home.Epoch
}

// lookup is how the session was found; "" where the pool has none, or nobody
// told.
func (s *Stream) lookup() Lookup {
	switch {
	case s.visit != nil:
		return s.visit.lookup
	case s.keyless:
		return LookupNoKey
	}
	return ""
}

// propose is this node's own pick for a session that needs a home. The stream is
// counted there at once.
func (s *Stream) propose() string {
	from := time.Now()
	defer func() { s.visit.proposed += time.Since(from) }()
	s.lease.Release(from)
	if s.visit.unplaced = s.anywhere(); s.visit.unplaced != nil {
		return ""
	}
	return s.lease.Backend().ID
}

// moveIn takes a place at the session's home, and waits for one where it is
// full. why is what speaks against the home itself.
func (s *Stream) moveIn() (why string, err error) {
	v := s.visit
	switch {
	case v.away != nil:
		return v.away.absence(), nil
	case v.home.Backend == "":
		return "", s.homeless("gone")
	}
	b := s.pool.Named(v.home.Backend)
	if b != nil && s.lease.Backend() == b {
		return "", nil // as proposed
	}
	s.lease.Release(time.Now())
	if b == nil {
		return string(backend.Removed), nil
	}
	err = s.claim(backend.Ask{Only: b, Bound: true})
	if errors.Is(err, backend.ErrNone) {
		return string(b.Standing().State), nil
	}
	return "", s.unplaced(err)
}

// absence is why a home could not be reached, in a word.
func (f *failure) absence() string {
	if f.code == backend.CodeTimeout {
		return "timeout"
	}
	return "refused"
}

// rehome asks for another home, since why speaks against the one there is.
func (s *Stream) rehome(why string) error {
	v := s.visit
	s.lease.Release(time.Now())
	if v.moves++; v.moves > maxMoves {
		return s.homeless(why)
	}
	seen := v.home
	home, err := v.turn.Rebind(v.errand.begin(), seen, why, s.propose)
	if err = s.heard(err); err != nil {
		return err
	}
	if home.Backend == seen.Backend || home.Backend == "" {
		return s.homeless(why)
	}
	v.away = nil
	s.lives(home)
	return nil
}

// heavyRest is how long a node asks for no more heavy turns of a pool after one
// that had to stay: its leader has more to do than to answer no.
const heavyRest = time.Second

// lighten asks for another home for a turn that would be served far slower at its
// own than elsewhere. One is asked for at a time, and others stay where they are.
func (s *Stream) lighten() error {
	v, p := s.visit, s.pool
	home := p.Named(v.home.Backend)
	if !p.moves || v.lookup != LookupHit || v.home.Provisional || v.turns > 1 || home == nil || !p.Heavy(home, time.Now()) {
		return nil
	}
	rests := p.rests.Load()
	if time.Now().UnixNano() < rests || !p.rests.CompareAndSwap(rests, math.MaxInt64) {
		return nil
	}
	from := time.Now()
	next, err := v.turn.Rebind(v.errand.begin(), v.home, ReasonHeavy, s.propose)
	stays := err != nil || next.Backend == "" || next.Backend == v.home.Backend
	if until := from.UnixNano(); stays {
		p.rests.Store(until + int64(heavyRest))
	} else {
		p.rests.Store(until)
	}
	if cut := v.errand.over(); cut != nil || stays {
		return cut
	}
	s.lives(next)
	return nil
}

// homeless is the failure of a stream whose session has no home that can serve
// it.
func (s *Stream) homeless(why string) error {
	v := s.visit
	switch {
	case v.away != nil:
		f := *v.away
		f.elsewhere = false // there is no elsewhere
		return &f
	case v.unplaced != nil:
		return v.unplaced
	}
	return &failure{code: backend.NoBackend, reason: backend.Shed, message: fmt.Sprintf("backend %s, where the session lives, is %s", v.home.Backend, why)}
}

// leave notes that the attempt at the stream's backend failed: another is tried
// next. A session whose home broke an exchange off is still at home there.
func (s *Stream) leave(f *failure) {
	if s.visit != nil {
		if !f.elsewhere {
			return
		}
		s.visit.away = f
	}
	s.tried = append(s.tried, s.lease.Backend())
}

// look is taken right before the first byte is written to the session's home.
func (s *Stream) look() error {
	if s.visit == nil || s.visit.turn.Look() == nil {
		return nil
	}
	return errMoved
}

// rejoin takes a place at the home of a session that moved.
func (s *Stream) rejoin() error {
	s.lease.Release(time.Now())
	s.endTurn()
	return s.place()
}

// endTurn ends the turn, where one runs: nothing is on its way to or from the
// session's home any more.
func (s *Stream) endTurn() {
	if v := s.visit; v != nil && v.turn != nil {
		v.stale = v.turn.End() || v.stale
		v.turn = nil
	}
}
