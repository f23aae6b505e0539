// Package journal keeps the last changes of a node's state, for whoever follows
// them or wants to know what happened lately. Whoever adds one never waits, and a
// reader that is slow misses the oldest and is told how many. It must not know
// where changes come from, nor who reads of them.
package journal

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-lb/starling/node/api"
)

const (
	kept       = 1024 // events, the newest
	maxReaders = 128
)

// Why nobody can follow.
var (
	ErrReaders = errors.New("too many follow the events already")
	ErrID      = errors.New("no id of an event")
)

// Journal is a ring of events. The zero one is not ready.
type Journal struct {
	run string // begins the ids of all events of this process

	mu      sync.Mutex // guards what follows
	ring    [kept]api.Event
	next    uint64        // place of the next event; the first one is 1
	told    uint64        // by this process: the number in its last event's id
	added   chan struct{} // closed, and made anew, when an event comes
	readers int
	counts  map[api.EventKind]int64
	lost    int64 // by readers that were too slow
}

// New makes an empty one.
func New() *Journal {
	var run [4]byte
	_, _ = rand.Read(run[:]) // never fails: the runtime ends the process first
	return &Journal{run: hex.EncodeToString(run[:]), next: 1, added: make(chan struct{}), counts: map[api.EventKind]int64{}}
}

// Add gives an event its id, and its time if it has none.
func (j *Journal) Add(e api.Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.told++
	e.ID = fmt.Sprintf("%s-%d", j.run, j.told)
	j.ring[j.next%kept] = e
	j.next++
	j.counts[e.Kind]++
	close(j.added)
	j.added = make(chan struct{})
}

// Last are the last events, n at most, the oldest first.
func (j *Journal) Last(n int) (list []api.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for at := j.next - min(j.next-j.first(), uint64(max(0, n))); at < j.next; at++ {
		list = append(list, j.ring[at%kept])
	}
	return list
}

// Precede puts what another process of this node told before all that is there; they
// keep their ids. It does nothing once somebody reads.
func (j *Journal) Precede(list []api.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.readers > 0 {
		return
	}
	var own []api.Event
	for at := j.first(); at < j.next; at++ {
		own = append(own, j.ring[at%kept])
	}
	j.next = 1
	for _, e := range slices.Concat(list, own) {
		j.ring[j.next%kept] = e
		j.next++
	}
}

// behind is the place after an event of another process, among what was taken over from
// it; else that of the first, and false. What that process told in its last moment is not
// here: who has read it goes on with what this one tells.
func (j *Journal) behind(run string, seq uint64) (place uint64, found bool) {
	place = j.first()
	for at := place; at < j.next; at++ {
		if of, n, _ := split(j.ring[at%kept].ID); of == run && n <= seq {
			place, found = at+1, true
		}
	}
	return place, found
}

// first is the number of the oldest event that is there; mu is held.
func (j *Journal) first() uint64 { return max(1, j.next-min(j.next, kept)) }

// Reader is one reader's place in the journal. One goroutine reads it.
type Reader struct {
	j      *Journal
	at     uint64 // the next one to be read
	anew   bool   // what it had read was another process's
	closed bool
}

// Follow begins to read: behind the event with the id after, or, where that is
// empty, with the last few. An id of another process means something only where its
// events were taken over; else all that there is comes. Its owner closes it.
func (j *Journal) Follow(after string, last int) (*Reader, error) {
	run, seq, err := split(after)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.readers == maxReaders {
		return nil, ErrReaders
	}
	j.readers++
	r := &Reader{j: j}
	switch {
	case after == "":
		r.at = max(j.first(), j.next-min(j.next, uint64(max(0, last))))
	case run == j.run:
		r.at = min(j.next-j.told+seq, j.next) // its own are the last
	default:
		at, found := j.behind(run, seq)
		r.at, r.anew = at, !found
	}
	return r, nil
}

// split takes an id apart; "" is none.
func split(id string) (run string, seq uint64, err error) {
	if id == "" {
		return "", 0, nil
	}
	run, number, ok := strings.Cut(id, "-")
	seq, err = strconv.ParseUint(number, 10, 63)
	if !ok || err != nil {
		return "", 0, fmt.Errorf("%q: %w; leave it out, or send what an event came with", id, ErrID)
	}
	return run, seq, nil
}

// Next waits for the next events, oldest first. One of kind lost comes first where
// the reader missed some. It fails when ctx ends.
func (r *Reader) Next(ctx context.Context) ([]api.Event, error) {
	for {
		list, added := r.take()
		if len(list) > 0 {
			return list, nil
		}
		select {
		case <-added:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take is what there is for the reader now, else a channel that is closed when
// something comes.
func (r *Reader) take() (list []api.Event, added <-chan struct{}) {
	j := r.j
	j.mu.Lock()
	defer j.mu.Unlock()
	if first := j.first(); r.at < first || r.anew {
		lost := first - cmp.Or(r.at, first)
		why := "the reader was too slow"
		if r.anew {
			why = "the events before are another process's: this one has begun since"
		}
		list = append(list, api.Event{Kind: api.LostEvent, Time: time.Now(), Lost: int(lost), Reason: why})
		j.lost += int64(lost)
		r.at, r.anew = max(first, r.at), false
	}
	for ; r.at < j.next; r.at++ {
		list = append(list, j.ring[r.at%kept])
	}
	return list, j.added
}

// Close ends it; a second call does nothing.
func (r *Reader) Close() {
	r.j.mu.Lock()
	defer r.j.mu.Unlock()
	if !r.closed {
		r.j.readers--
	}
	r.closed = true
}
