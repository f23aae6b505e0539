package store

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// lane is what the file holds of one slot, whoever has it open. Only the
// committer changes first, last, kept and commit.
type lane struct {
	slot uint16
	key  Key

	tail uint64 // the committer's alone: last, counting the transaction it is about to write

	mu      sync.Mutex // guards what follows
	first   uint64
	last    uint64
	missing uint64 // a hole that the scan has found
	kept    [keeps][]byte
	staged  uint64 // commit index to go along with the next write
	pending []*op  // not done yet, oldest first
	holder  *Slot  // nil: nobody has it open
	leaving bool
}

// op is one write that a caller waits for, or has left behind.
type op struct {
	lane *lane
	kind kind
	from *Slot // nil: the store's own; else dropped, if not begun, when that slot is closed

	entries    []*raft.Log // put: sealed
	head, tail uint64      // put: raft's indexes of the log entries among them, 0 if none
	kept       [keeps][]byte

	min, max uint64 // cut: raft's indexes, inclusive
	fromTop  bool   // cut: whether it reaches the end of the log

	bytes int
	since time.Time
	done  chan error // has room for one
}

type kind int

const (
	put   kind = iota
	cut        // of the log
	erase      // of all that is kept beside it
)

func newOp(l *lane, from *Slot, k kind) *op {
	return &op{lane: l, kind: k, from: from, since: time.Now(), done: make(chan error, 1)}
}

func (o *op) keep(what int, value []byte) {
	e := keep(o.lane.slot, what, value)
	o.entries, o.kept[what], o.bytes = append(o.entries, e), value, o.bytes+len(e.Data)
}

func (o *op) append(entries []*raft.Log) {
	for _, e := range entries {
		s := seal(o.lane.slot, e)
		o.entries, o.bytes = append(o.entries, s), o.bytes+len(s.Data)+len(s.Extensions)
	}
	o.head, o.tail = entries[0].Index, entries[len(entries)-1].Index
}

// admit refuses what would make a hole. An entry that is there already is
// refused as well: raft cuts before it writes anew.
func (o *op) admit() error {
	if o.head == 0 {
		return nil
	}
	if t := o.lane.tail; t != 0 && o.head != t+1 {
		return fmt.Errorf("append to the log of replica %s: entry %d does not follow on %d; nothing was written", o.lane.key, o.head, t)
	}
	o.lane.tail = o.tail
	return nil
}

// begun adds the op to those that are waited for.
func (l *lane) begun(o *op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, o)
}

// ended is called once per op, before its caller hears of it.
func (l *lane) ended(o *op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = slices.DeleteFunc(l.pending, func(p *op) bool { return p == o })
}

// written makes visible what is now on the disk.
func (l *lane) written(o *op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for what, value := range o.kept {
		if value != nil {
			l.kept[what] = value
		}
	}
	if o.head == 0 {
		return
	}
	if l.last == 0 {
		l.first = o.head
	}
	l.last = o.tail
}

// narrow takes the next chunk of a cut out of sight and says where it lies, so
// that a reader who then misses an entry knows why. 0, 0: nothing is left.
func (l *lane) narrow(o *op) (lo, hi uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lo, hi = max(o.min, l.first), min(o.max, l.last)
	switch {
	case l.last == 0 || lo > hi:
		return 0, 0, nil
	case o.fromTop && hi != l.last:
		return 0, 0, fmt.Errorf("removal of the end of replica %s's log from entry %d on: the log was appended to meanwhile", l.key, o.min)
	}
	if o.fromTop {
		lo = max(lo, hi-min(hi, cutChunk-1))
		l.last = lo - 1
	} else {
		hi = min(hi, lo+cutChunk-1)
		l.first = hi + 1
	}
	if l.first > l.last {
		l.first, l.last = 0, 0
	}
	l.tail = l.last
	return lo, hi, nil
}

// span is raft's log: 0, 0 if it is empty.
func (l *lane) span() (first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first, l.last
}

// age says how long the oldest write has been waiting that raft waits for; the
// removal of a prefix is nobody's hurry.
func (l *lane) age(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.pending {
		if o.kind == put || o.fromTop {
			return now.Sub(o.since)
		}
	}
	return 0
}
