package wire

import (
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A stream that is silent for a while needs no goroutine, whose stack is most
// of what it costs: the Watcher waits for it. Now and then it also passes on
// what comes. A stream that is busy again, and whatever may block or end one,
// it leaves to a goroutine: that costs less per event, and delays nobody else.

// A stream that is silent for patience gives its goroutine back; one that moves
// twice within it gets one again. Where nothing has come behind the answer's
// head yet, firstPatience is enough: a first token may be a long time coming.
const (
	patience      = time.Second
	firstPatience = 250 * time.Millisecond
)

// detachable tells whether the relay can go on by events.
func (r *Relay) detachable() bool {
	return r.Later != nil && r.From.byEdges && r.To.byEdges && r.From.hup.Load() == hupNone &&
		(r.ReadIdle == 0 || r.ReadIdle > patience)
}

// Detach has the relay go on by events, after Run has returned ErrDetached.
// From here on it belongs to the Watcher, and the caller may touch nothing of
// it, until Later is resumed, which may be at once.
func (r *Relay) Detach() {
	from, w := r.From, r.From.watcher
	from.Rest()
	from.edge, r.To.edge = nil, nil // made anew when they are waited for again
	r.To.fd = r.To.own
	r.To.noWait = true
	r.moved = time.Now().Add(-firstPatience)
	if w.detached.Add(1) == 1 {
		_ = w.file.SetReadDeadline(r.moved.Add(patience + time.Second))
	}
	w.slots.mu.Lock() // a kick comes before all of this, and is made up for, or behind it
	defer w.slots.mu.Unlock()
	events := uint32(unix.EPOLLIN)
	if from.cut.Load() || r.To.cut.Load() {
		events |= unix.EPOLLOUT
	}
	w.slots.all[uint32(from.ticket)].relay = r
	w.subscribe(int(from.own), from.ticket, events)
}

// drive passes on what has come; only the Watcher's goroutine calls it.
func (r *Relay) drive(now time.Time) {
	from := r.From
	busy := now.Sub(r.moved) < patience
	r.moved = now
	for {
		if from.cut.Load() || r.To.cut.Load() {
			r.resume(ErrInterrupted)
			return
		}
		from.makeRoom()
		n, errno := recv(uintptr(from.own), from.buf[from.w:])
		switch {
		case errno == syscall.EAGAIN:
			from.Rest()
			return
		case errno == syscall.EINTR:
			continue
		case errno != 0:
			r.resume(os.NewSyscallError("read", errno))
			return
		case n == 0:
			r.resume(io.EOF)
			return
		}
		from.w += n
		from.full = from.w == len(from.buf)
		if r.take() || len(r.To.unsent) > 0 || busy || from.full {
			r.resume(nil)
			return
		}
		if from.hup.Load() == hupNone {
			from.Rest()
			return
		}
	}
}

// resume gives the relay to a goroutine; err is why it cannot be read on.
func (r *Relay) resume(err error) {
	w := r.From.watcher
	r.broke = err
	r.To.noWait, r.To.fd = false, -1
	w.detached.Add(-1)
	w.slots.hand(r.From.ticket, nil)
	w.subscribe(int(r.From.own), r.From.ticket, 0)
	r.Later.Resume()
}

// kick has the Watcher look at a detached relay: its descriptor can be written
// to, which is an event.
func (w *Watcher) kick(e *End) {
	w.slots.mu.Lock()
	defer w.slots.mu.Unlock()
	if e.ticket == 0 {
		return
	}
	if r := w.slots.all[uint32(e.ticket)].relay; r != nil {
		w.subscribe(int(r.From.own), e.ticket, unix.EPOLLIN|unix.EPOLLOUT)
	}
}
