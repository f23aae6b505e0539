package proxy

import (
	"context"
	"errors"
	"time"
)

// Sessions decide where a session lives; nil where the node has none. Its
// methods and a Turn's are called by the stream's own goroutine.
type Sessions interface {
	// Turn begins a turn of the session. It is counted from the call on, before
	// anything is looked up, until its End. propose is asked at most once, by the
	// calling goroutine and under no lock, for a session that has no binding: it
	// picks a place for the stream, waits for one if it has to (pool's
	// queue.timeout bounds that, not the time that a binding may take), and names
	// the backend; "" where none can be had. Where nothing stands and nothing was
	// proposed, the turn's home has no backend. waited is how long the stream has
	// waited for its turns before this one, proposals apart: the time that turns may
	// wait is a stream's in all.
	//
	// It fails with ErrNoLeader, or because ctx ended; a turn that failed is over
	// and has no End. key is the caller's.
	Turn(ctx context.Context, pool string, key []byte, waited time.Duration, propose func() string) (Turn, error)
}

// Turn is one running turn: one stream of a session. Its methods are called in
// order.
type Turn interface {
	// Home is where the session lives now.
	Home() Home

	// Look is asked right before the first byte is written to a backend. An error
	// says that the binding changed or is held: nothing may be written. The caller
	// ends the turn and begins another.
	Look() error

	// Rebind asks for another home because the one that was seen cannot serve the
	// session; no connection of this turn is open meanwhile. The answer may be the
	// same home: it stands. propose is as for Sessions.Turn.
	Rebind(ctx context.Context, seen Home, reason string, propose func() string) (Home, error)

	// End is called exactly once, when the answer's end was read, or the
	// connection to the backend is closed. stale: another turn of the session may
	// have run at another backend meanwhile.
	End() (stale bool)
}

// ReasonHeavy is Rebind's for a session whose home is well, but so much slower now
// than others that it had better move, if none of its other turns runs. Where it
// cannot move at once the answer is the home that was seen, and no error.
const ReasonHeavy = "heavy"

// Home is the backend that a session's turns go to.
type Home struct {
	Backend     string // its id; "" where there is none
	Epoch       uint32
	Lookup      Lookup
	Provisional bool // nobody has agreed yet
}

// Lookup is how a session's home was found.
type Lookup string

// The results of a lookup; the list is closed.
const (
	LookupHit      Lookup = "hit"      // a binding that stood
	LookupNew      Lookup = "new"      // the session had none, and has one now
	LookupLost     Lookup = "lost"     // it is known to have had one, which is gone
	LookupRepin    Lookup = "repin"    // its backend could not serve it: it has another
	LookupFallback Lookup = "fallback" // nobody could be asked in time: provisional, or last known
	LookupNoKey    Lookup = "no_key"   // the request has no session
)

// Lookups lists every Lookup.
func Lookups() []Lookup {
	return []Lookup{LookupHit, LookupNew, LookupLost, LookupRepin, LookupFallback, LookupNoKey}
}

// ErrNoLeader says that nobody may tell where a session lives, and that its pool
// wants no guess.
var ErrNoLeader = errors.New("no leader answered for the session")
