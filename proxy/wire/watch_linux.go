package wire

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Watcher notices peers that close: one epoll instance and one goroutine for
// all connections of a node, at no cost per request. The epoll descriptor
// itself waits in Go's poller, so no thread is blocked.
type Watcher struct {
	slots    slots
	detached atomic.Int64 // relays that go on by events
	epfd     int
	file     *os.File
	tasks    sync.WaitGroup
	round    *time.Timer // takes in latecomers
	stopped  bool        // under slots.mu
}

// lateRound is how late a client connection may be watched: most that are there
// for one request are gone by then, and need not be watched at all.
const lateRound = 10 * time.Millisecond

// NewWatcher starts a watcher; Stop ends it.
func NewWatcher() (*Watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll instance for the disconnect watcher: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("epoll instance for the disconnect watcher: %w", err)
	}
	w := &Watcher{epfd: fd, file: os.NewFile(uintptr(fd), "disconnect watcher")}
	w.round = time.AfterFunc(time.Hour, w.takeIn)
	w.round.Stop()
	raw, err := w.file.SyscallConn()
	if err != nil {
		_ = w.file.Close()
		return nil, fmt.Errorf("epoll instance for the disconnect watcher: %w", err)
	}
	w.tasks.Go(func() { w.watchLoop(raw) })
	return w, nil
}

// Stop ends the watch; nobody is told any more.
func (w *Watcher) Stop() {
	w.slots.mu.Lock()
	w.stopped = true // nobody is taken in any more
	w.slots.mu.Unlock()
	w.round.Stop()
	_ = w.file.Close()
	w.tasks.Wait()
}

func (w *Watcher) watchLoop(raw syscall.RawConn) {
	events := make([]unix.EpollEvent, 128)
	for {
		err := raw.Read(func(fd uintptr) bool {
			for n := len(events); n == len(events); {
				n, _ = unix.EpollWait(int(fd), events, 0)
				now := time.Now()
				for i := range events[:max(n, 0)] {
					w.event(&events[i], now)
				}
			}
			return false // the next event is an edge of its own
		})
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		w.lookForSilence(time.Now())
	}
}

func (w *Watcher) event(e *unix.EpollEvent, now time.Time) {
	s := w.slots.take(ticket(uint32(e.Fd)) | ticket(uint32(e.Pad))<<32)
	closed := e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
	switch {
	case s.relay != nil:
		if closed {
			s.relay.From.hup.Store(hupSeen)
		}
		s.relay.drive(now)
	case s.who != nil && closed:
		if b, ok := s.who.(breaks); ok && e.Events&unix.EPOLLERR != 0 {
			b.broke()
		}
		s.who.left()
	case s.who != nil:
		if l, ok := s.who.(listens); ok {
			l.arrived()
		}
	}
}

// lookForSilence ends the relays that were silent for too long, once a second
// while there is any.
func (w *Watcher) lookForSilence(now time.Time) {
	for _, r := range w.slots.silent(now) {
		r.resume(ErrIdle)
	}
	_ = w.file.SetReadDeadline(time.Time{}) // before the count is read: a relay that detaches after that sets its own
	if w.detached.Load() > 0 {
		_ = w.file.SetReadDeadline(now.Add(time.Second))
	}
}

// subscribe has the events of a descriptor come to what is set in its slot.
func (w *Watcher) subscribe(fd int, t ticket, events uint32) {
	e := unix.EpollEvent{Events: events | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(uint32(t)), Pad: int32(uint32(t >> 32))}
	_ = unix.EpollCtl(w.epfd, unix.EPOLL_CTL_MOD, fd, &e) // the descriptor is open and enrolled
}

// hear has it told when bytes come at a connection, those that are there
// included, or no longer.
func (w *Watcher) hear(fd int, t ticket, bytes bool) {
	var events uint32
	if bytes {
		events = unix.EPOLLIN
	}
	w.subscribe(fd, t, events)
}

// add watches a connection that has a descriptor; 0 where it has none.
func (w *Watcher) add(nc net.Conn, who watched) ticket {
	if s, ok := nc.(*sock); ok {
		return w.addLate(s, who)
	}
	raw := descriptor(nc)
	if raw == nil {
		return 0
	}
	t := w.slots.put(who)
	var failed error
	err := raw.Control(func(fd uintptr) { failed = w.begin(int(fd), t) })
	if err != nil || failed != nil {
		w.slots.drop(t)
		return 0
	}
	return t
}

// begin has the peer's close told. If it has closed before, that is told at
// once.
func (w *Watcher) begin(fd int, t ticket) error {
	event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(uint32(t)), Pad: int32(uint32(t >> 32))}
	return unix.EpollCtl(w.epfd, unix.EPOLL_CTL_ADD, fd, &event)
}

// addLate has a connection watched from the next round on.
func (w *Watcher) addLate(s *sock, who watched) ticket {
	t := w.slots.put(who)
	w.slots.mu.Lock()
	defer w.slots.mu.Unlock()
	if w.slots.late = append(w.slots.late, latecomer{t, s.fd}); len(w.slots.late) == 1 {
		w.round.Reset(lateRound)
	}
	return t
}

// takeIn begins to watch the latecomers that are still there. Their descriptors
// are open: who closes one gives up its slot before, which takes the lock.
func (w *Watcher) takeIn() {
	w.slots.mu.Lock()
	defer w.slots.mu.Unlock()
	all := w.slots.late
	w.slots.late = all[:0]
	for _, c := range all {
		if w.stopped || w.slots.all[uint32(c.ticket)].generation != uint32(c.ticket>>32) {
			continue
		}
		if w.begin(int(c.fd), c.ticket) != nil {
			w.slots.late = append(w.slots.late, c) // the kernel is short of memory: next round
		}
	}
	if len(w.slots.late) > 0 {
		w.round.Reset(lateRound)
	}
}

// remove forgets a connection that is about to be closed, which also takes it
// out of the epoll instance.
func (w *Watcher) remove(t ticket) { w.slots.drop(t) }

// descriptor finds the socket under a connection. Only what is ours is looked
// through: another wrapper may have put something between the socket and what
// is read.
func descriptor(nc net.Conn) syscall.RawConn {
	if t, ok := socket(nc).(*net.TCPConn); ok {
		if raw, err := t.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// socketOf is the descriptor under a connection that has one; it stays valid
// while nobody closes it.
func socketOf(nc net.Conn) int { return fdOf(descriptor(nc)) }
