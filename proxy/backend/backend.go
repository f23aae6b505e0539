package backend

import "sync/atomic"

// Backend is one server that streams go to. It lives as long as its id stays
// configured with the same URL, whatever else of the pool changes.
type Backend struct {
	ID     string
	URL    string
	Addr   Address
	Beside any // what Hooks.Joined gave: somebody else's, never changed

	pool      *Pool
	terms     atomic.Pointer[Terms]
	elsewhere atomic.Pointer[Elsewhere]
	elder     atomic.Pointer[Elder]
	left      atomic.Bool // Hooks.Left was called

	flights meter        // streams, from the pick to the last byte
	waiting atomic.Int64 // streams that only this backend can serve
	yields  atomic.Int32 // samples until a place may be left to other nodes again

	vitals
	signals
	pace
}

// Terms are what is agreed of a backend and may change while it runs.
type Terms struct {
	Weight    int // share of new streams beside the others' weights; at least 1
	Cap       int // streams at a time, the whole cluster's; 0: none
	CapSource CapSource
}

// Terms are the backend's terms now.
func (b *Backend) Terms() Terms { return *b.terms.Load() }

// Elsewhere is what the other nodes said last of the backend.
func (b *Backend) Elsewhere() Elsewhere { return *b.elsewhere.Load() }

// InFlight is the number of this node's streams at the backend: exact at every
// moment.
func (b *Backend) InFlight() int64 { return b.flights.count() }

// Waiting is the number of this node's streams that wait for the backend and
// may go to no other.
func (b *Backend) Waiting() int64 { return b.waiting.Load() }
