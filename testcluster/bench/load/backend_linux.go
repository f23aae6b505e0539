package load

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

var errLate = errors.New("backend fell a second behind its own schedule; give the machine less to do")

// Backend answers what the generators ask for:
//
//	/bytes/N     200 and the first N bytes of the Pattern; a request's body must be the Pattern too
//	/events?...  an event stream without end, see streamQuery
//	/hold?id=N   nothing, ever
//	/health      200
//
// It runs on one thread and is measured with nothing but itself beside it, so
// it spends no time on anything a test does not need.
type Backend struct {
	clock Clock

	poll     *poller
	listener int
	conns    []*conn // by descriptor
	due      schedule
	in       []byte
	pattern  []byte
	answers  map[int][]byte // whole answers by length of body
	notes    chan Note

	stopping atomic.Bool
	done     chan struct{}
	err      error // read after done
}

// Note tells when a watched request arrived and when its connection was
// closed by the other side.
type Note struct {
	ID   uint32
	Gone bool
	at   int64
}

// maxNotes bounds how many watched requests a run may have, twice.
const maxNotes = 1024

// NewBackend is a backend that listens nowhere yet.
func NewBackend(clock Clock) *Backend {
	return &Backend{
		clock: clock, in: make([]byte, 256<<10), pattern: Pattern(MaxBody), answers: map[int][]byte{},
		notes: make(chan Note, 2*maxNotes), done: make(chan struct{}),
	}
}

// Start listens on a free port of 127.0.0.1 and serves it on a thread of its
// own.
func (b *Backend) Start() (at netip.AddrPort, err error) {
	if b.poll, err = newPoller(); err != nil {
		return at, err
	}
	if b.listener, at, err = listen(); err != nil {
		b.poll.close()
		return at, err
	}
	if err = b.poll.level(b.listener); err != nil {
		b.release()
		return at, err
	}
	go b.serveLoop()
	return at, nil
}

// Stop closes everything and tells what went wrong, if anything did. Once.
func (b *Backend) Stop() error {
	b.stopping.Store(true)
	<-b.done
	return b.err
}

// serveLoop ends a bug as an error, so that who started it still cleans up.
func (b *Backend) serveLoop() {
	defer close(b.done)
	defer b.release()
	defer func() {
		if bug := recover(); bug != nil {
			b.err = fmt.Errorf("BUG: backend of the benchmark: %v\n%s", bug, debug.Stack())
		}
	}()
	runtime.LockOSThread() // never unlocked: the thread ends here
	for !b.stopping.Load() {
		b.turn()
	}
}

func (b *Backend) turn() {
	wait := 50 * time.Millisecond // how late Stop may be seen
	if len(b.due) > 0 {
		wait = min(wait, time.Duration(b.due[0].due-b.clock.now()))
	}
	for _, ev := range b.poll.wait(wait) {
		fd := int(ev.Fd)
		if fd == b.listener {
			b.accept()
		} else if fd < len(b.conns) && b.conns[fd] != nil {
			b.serve(b.conns[fd], hungUp(ev))
		}
	}
	b.sendDue()
}

// accept takes what is there, but lets others have a turn in between.
func (b *Backend) accept() {
	for range 64 {
		fd, _, err := unix.Accept4(b.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ECONNABORTED) {
			return
		}
		if err != nil {
			b.fail(fmt.Errorf("accept at the backend: %w", err))
			return
		}
		noDelay(fd)
		for fd >= len(b.conns) {
			b.conns = append(b.conns, nil)
		}
		b.conns[fd] = &conn{fd: fd}
		if err := b.poll.edge(fd); err != nil {
			b.fail(err)
		}
	}
}

// fail keeps the first error and ends the loop.
func (b *Backend) fail(err error) {
	if b.err == nil {
		b.err = err
	}
	b.stopping.Store(true)
}

func (b *Backend) drop(c *conn) {
	if c.watched {
		b.note(Note{ID: c.id, Gone: true})
	}
	if c.stream != nil {
		c.stream.conn = nil // the schedule lets go of it when it is due
	}
	b.conns[c.fd] = nil
	unix.Close(c.fd)
	c.fd = -1
}

func (b *Backend) note(n Note) {
	n.at = b.clock.now()
	select {
	case b.notes <- n:
	default:
		b.fail(fmt.Errorf("more than %d watched requests at the backend; ask for fewer", maxNotes))
	}
}

func (b *Backend) release() {
	for _, c := range b.conns {
		if c != nil {
			unix.Close(c.fd)
		}
	}
	unix.Close(b.listener)
	b.poll.close()
}
