package consensus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	maxQueued   = 8192    // commands that wait, per group
	maxWaiting  = 8 << 20 // bytes of them
	enqueueTime = 5 * time.Second
	manyBack    = 4                      // commands of an entry: so many callers may well come back together
	linger      = 250 * time.Microsecond // and are waited for so long
	jamRest     = 100 * time.Millisecond // between two tries to open a term during a transfer
)

// batcher collects commands while an entry is on its way and sends them as the
// next one: one entry is in flight per group, and costs what a command would.
// Its goroutine lives only while there is something to do.
type batcher struct {
	l *life

	mu      sync.Mutex
	queue   []*proposal
	bytes   int
	opening bool // an entry without commands is due, which opens a leader's term
	telling bool // one is due that tells followers of commits, unless commands do
	flying  bool
	closed  error
	idle    chan struct{} // closed when nothing flies any more; made by stop
	full    chan struct{} // closed when enough commands are queued; nil: nobody gathers
	enough  int
	jammed  time.Duration // since when Raft says that a transfer is in progress; 0: it does not
}

type proposal struct {
	command []byte
	sent    bool // batcher.mu guards it
	done    chan outcome
}

// flight is what an entry carries: commands, or none where it opens a term or tells
// followers of commits.
type flight struct {
	batch   []*proposal
	opening bool
}

type outcome struct {
	result any
	err    error
}

// propose waits for the command's result, or for ctx.
func (b *batcher) propose(ctx context.Context, command []byte) (any, error) {
	p := &proposal{command: command, done: make(chan outcome, 1)}
	if err := b.enqueue(p); err != nil {
		return nil, err
	}
	select {
	case o := <-p.done:
		return o.result, o.err
	case <-ctx.Done():
	}
	if b.withdraw(p) {
		return nil, context.Cause(ctx)
	}
	select {
	case o := <-p.done: // both at once: the result is worth more
		return o.result, o.err
	default:
		return nil, fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
}

func (b *batcher) enqueue(p *proposal) error {
	if len(p.command) > maxCommand {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(p.command), maxCommand)
	}
	if b.l.raft.State() != raft.Leader {
		return b.l.notLeader()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed != nil:
		return b.closed
	case len(b.queue) >= maxQueued || b.bytes+len(p.command) > maxWaiting:
		return fmt.Errorf("%w: %d commands wait", ErrBusy, len(b.queue))
	}
	b.queue = append(b.queue, p)
	b.bytes += len(p.command)
	if b.full != nil && len(b.queue) >= b.enough {
		close(b.full)
		b.full = nil
	}
	b.launch()
	return nil
}

// withdraw takes back a command that was not sent.
func (b *batcher) withdraw(p *proposal) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.queue, p); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
		b.bytes -= len(p.command)
		return true
	}
	return !p.sent
}

// open has a new leader's term opened by an entry of its own.
func (b *batcher) open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		b.opening = true
		b.launch()
	}
}

// tell has followers told of what is committed.
func (b *batcher) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		b.telling = true
		b.launch()
	}
}

// launch is called with mu held.
func (b *batcher) launch() {
	if !b.flying {
		b.flying = true
		b.l.start(b.fly) // closed is set before the life is over, so it runs
	}
}

// fly sends entries until there is nothing to send.
func (b *batcher) fly() {
	for {
		f, ok := b.take()
		if !ok {
			return
		}
		r, err := b.send(f)
		if err == nil && r.term == 0 {
			err = errHalted // it is committed, so others may have done it
		}
		if err == nil {
			b.l.applied(r.term)
		} else {
			err = b.l.translate(err)
			if f.opening { // the term is not open: who waits behind it had better ask again
				b.refuse(err)
			}
		}
		for i, p := range f.batch {
			if err != nil {
				p.done <- outcome{err: err}
			} else {
				p.done <- outcome{result: r.each[i]}
			}
		}
		b.gather(len(f.batch))
	}
}

// gather waits a moment for callers that just got their answer to come with their
// next command. Without it two crowds form that take turns, each waiting for the
// other's entry, and an entry holds half of what it could.
func (b *batcher) gather(answered int) {
	if answered < manyBack {
		return
	}
	b.mu.Lock()
	full := make(chan struct{})
	if len(b.queue) < answered && b.closed == nil {
		b.full, b.enough = full, answered
	} else {
		close(full)
	}
	b.mu.Unlock()
	late := time.NewTimer(linger)
	defer late.Stop()
	select {
	case <-full:
	case <-late.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full = nil
}

// take returns what flies next. It ends the flight if nothing is due.
func (b *batcher) take() (f flight, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opening && b.closed == nil {
		b.opening = false
		return flight{opening: true}, true
	}
	size := 0
	for _, p := range b.queue {
		if size += len(p.command); len(f.batch) == maxCommands || size > maxBatch && len(f.batch) > 0 {
			break
		}
		p.sent = true
		b.bytes -= len(p.command)
		f.batch = append(f.batch, p)
	}
	b.queue = slices.Delete(b.queue, 0, len(f.batch))
	telling := b.telling && b.closed == nil
	b.telling = false // whatever goes out now says it
	if len(f.batch) == 0 && !telling {
		b.flying = false
		if b.idle != nil {
			close(b.idle)
			b.idle = nil
		}
	}
	return f, len(f.batch) > 0 || telling
}

// send waits for the entry to be applied here, or to fail. It can wait for long
// where the disk stalls, never for ever: Raft answers when it loses its office.
func (b *batcher) send(what flight) (results, error) {
	commands := make([][]byte, len(what.batch))
	for i, p := range what.batch {
		commands[i] = p.command
	}
	began := now()
	f := b.l.raft.Apply(encodeEntry(commands), enqueueTime)
	err := b.l.outcome(f)
	b.judge(err, what.opening)
	if err != nil {
		return results{}, err
	}
	if told := b.l.g.o.Committed; told != nil {
		told(now() - began)
	}
	return f.Response().(results), nil
}

// judge looks for the jam in which Raft, once it has lost and won its office
// during a transfer, refuses all commands for ever.
func (b *batcher) judge(err error, opening bool) {
	if !errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		b.mu.Lock()
		b.jammed = 0
		b.mu.Unlock()
		return
	}
	b.mu.Lock()
	if b.jammed == 0 {
		b.jammed = now()
	}
	b.mu.Unlock()
	if opening { // the term is not open: once more, or nobody could prove anything
		select {
		case <-time.After(jamRest):
			if b.l.raft.State() == raft.Leader {
				b.open()
			}
		case <-b.l.ending:
		}
	}
}

// jam is how long Raft has refused commands because of a transfer.
func (b *batcher) jam() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.jammed == 0 {
		return 0
	}
	return now() - b.jammed
}

// stop refuses what is queued and what comes, and returns a channel that is
// closed when nothing is in flight.
func (b *batcher) stop(why error) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		b.closed = why
	}
	b.empty(why)
	done := make(chan struct{})
	if !b.flying {
		close(done)
		return done
	}
	if b.idle == nil {
		b.idle = done
	}
	return b.idle
}

func (b *batcher) refuse(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.empty(why)
}

// empty is called with mu held.
func (b *batcher) empty(why error) {
	for _, p := range b.queue {
		p.done <- outcome{err: why}
	}
	b.queue, b.bytes = nil, 0
}
