package wire

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// MaxInterim bounds the 1xx answers before a final one.
const MaxInterim = 16

// Link is one connection to a backend.
type Link struct {
	End
	Reused bool // it has carried an exchange before

	whole   int // bytes of the request, where Send was given all of it; else 0
	since   time.Time
	limit   int // bytes of a head
	headLen int
	headErr error
}

// NewLink wraps a connection to a backend. watcher may be nil.
func NewLink(nc net.Conn, stock *Buffers, watcher *Watcher) *Link {
	l := &Link{End: newEnd(nc, stock)}
	l.enroll(watcher, l)
	return l
}

// Interrupt is End's; it also reaches a relay that goes on by events.
func (l *Link) Interrupt() {
	l.End.Interrupt()
	if l.byEdges {
		l.watcher.kick(&l.End)
	}
}

// left is called by the watcher.
func (l *Link) left() { l.wake() }

// Send writes p, or has ReadResponse, which is to be called next, write it:
// then the wait for the answer begins with it. whole says that p is all there
// is to the request.
func (l *Link) Send(p []byte, whole bool, idle time.Duration) error {
	l.whole = 0
	if whole {
		l.whole = len(p)
	}
	if l.byEdges && whole {
		w := l.waiting()
		w.pending, w.idle = p, idle
		return nil
	}
	return l.Write(p, idle)
}

// Begin sends what the kernel takes at once of p, which is all there is to a
// request. The rest is for Write, beside ReadResponse: a backend may refuse a
// request before it has read it, or never read it.
func (l *Link) Begin(p []byte) (rest []byte) {
	l.whole = len(p)
	if l.own < 0 || l.cut.Load() {
		return p
	}
	return p[sendNow(int(l.own), p):]
}

// Unsent is why the request that Send was given as a whole did not go out to its
// end; nil where it did. An answer may have come all the same, and the link is
// of no use after it.
func (l *Link) Unsent() error {
	if l.edge == nil {
		return nil
	}
	return l.edge.asked
}

// ReadResponse reads the next head into p; interim ones come one by one too.
// wait bounds the time until it is complete (0: no limit). It fails with
// io.EOF where the backend closed before the first byte.
func (l *Link) ReadResponse(p *Response, toHead bool, wait time.Duration, limit int) error {
	l.limit, l.headLen, l.headErr = limit, 0, nil
	p.stock = l.stock
	if len(l.Buffered()) == 0 || !l.take() {
		switch err := l.await(l, bound{by: deadline(wait)}); {
		case errors.Is(err, ErrIdle):
			return ErrHeadTimeout
		case errors.Is(err, io.EOF) && len(l.Buffered()) > 0:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
	if l.headErr != nil {
		return l.headErr
	}
	err := p.parse(l.Buffered()[:l.headLen], toHead)
	l.Discard(l.headLen)
	return err
}

// take looks for the end of a head.
func (l *Link) take() bool {
	l.headLen, l.headErr = l.head(l.limit)
	return l.headLen > 0 || l.headErr != nil
}

// Idle is a backend's stock of unused links: the one used last comes out
// first, so that the surplus grows old and is closed.
type Idle struct {
	mu     sync.Mutex
	links  []*Link
	max    int
	closed bool
}

// NewIdle keeps at most limit links.
func NewIdle(limit int) *Idle { return &Idle{max: limit} }

// Get takes a link that the backend has not closed, or returns nil.
func (i *Idle) Get() *Link {
	for {
		i.mu.Lock()
		n := len(i.links)
		if n == 0 {
			i.mu.Unlock()
			return nil
		}
		l := i.links[n-1]
		i.links[n-1] = nil
		i.links = i.links[:n-1]
		i.mu.Unlock()
		if l.open() {
			l.Reused = true
			return l
		}
		l.Close()
	}
}

// Put keeps a link whose last exchange ended cleanly, with nothing left over.
// What TLS has read beyond it is looked for here: until Get nobody reads, and
// what comes meanwhile is seen below TLS.
func (i *Idle) Put(l *Link, now time.Time) {
	l.Rest()
	l.since = now
	clean := l.mute()
	i.mu.Lock()
	keep := clean && !i.closed && len(i.links) < i.max && !l.cut.Load()
	if keep {
		i.links = append(i.links, l)
	}
	i.mu.Unlock()
	if !keep {
		l.Close()
	}
}

// Sweep closes links that were unused for longer than limit (0: no limit), or
// that the backend has closed.
func (i *Idle) Sweep(limit time.Duration) {
	now := time.Now()
	i.drop(func(l *Link) bool { return limit > 0 && now.Sub(l.since) > limit || !l.open() })
}

// DropRemote closes links to addresses that are no longer wanted.
func (i *Idle) DropRemote(unwanted func(net.Addr) bool) {
	i.drop(func(l *Link) bool { return unwanted(l.nc.RemoteAddr()) })
}

func (i *Idle) drop(which func(*Link) bool) {
	i.mu.Lock()
	kept := i.links[:0]
	var old []*Link
	for _, l := range i.links {
		if which(l) {
			old = append(old, l)
		} else {
			kept = append(kept, l)
		}
	}
	clear(i.links[len(kept):])
	i.links = kept
	i.mu.Unlock()
	for _, l := range old {
		l.Close()
	}
}

// open tells whether an unused link can still be used.
func (l *Link) open() bool {
	if l.byEdges {
		return l.hup.Load() == hupNone && silent(int(l.own))
	}
	return quiet(l.nc)
}

// mute is mute of the connection.
func (l *Link) mute() bool {
	if l.byEdges {
		return true // no TLS
	}
	l.readBy = past
	return mute(l.nc)
}

// Len is the number of unused links.
func (i *Idle) Len() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.links)
}

// Close closes all links; those put later are closed at once.
func (i *Idle) Close() {
	i.mu.Lock()
	links := i.links
	i.links, i.closed = nil, true
	i.mu.Unlock()
	for _, l := range links {
		l.Close()
	}
}

// Stale tells whether an exchange failed since the backend closed a kept link:
// it was used before, and no byte of an answer came. The backend may have had
// the request all the same: neither a FIN nor a reset tells, and what its
// kernel acknowledged does not either (a reset can come in the acknowledgement's
// stead). Unseen knows more where the FIN came first.
func (l *Link) Stale(err error) bool {
	return l.Reused && len(l.Buffered()) == 0 && (errors.Is(err, io.EOF) || isReset(err))
}
