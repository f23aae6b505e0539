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

	before int64 // bytes sent before this exchange
	since  time.Time
}

// NewLink wraps a connection to a backend.
func NewLink(nc net.Conn, stock *Buffers) *Link { return &Link{End: newEnd(nc, stock)} }

// ReadResponse reads the next head into p; interim ones come one by one too.
// wait bounds the time until it is complete (0: no limit). It fails with
// io.EOF where the backend closed before the first byte.
func (l *Link) ReadResponse(p *Response, toHead bool, wait time.Duration, limit int) error {
	head, err := l.readResponseHead(deadline(wait), limit)
	if err != nil {
		return err
	}
	err = p.parse(head, toHead)
	l.Discard(len(head))
	return err
}

func (l *Link) readResponseHead(by time.Time, limit int) ([]byte, error) {
	if len(l.Buffered()) == 0 {
		if err := l.fillBy(by, 0); errors.Is(err, ErrIdle) {
			return nil, ErrHeadTimeout
		} else if err != nil {
			return nil, err
		}
	}
	left := time.Duration(0)
	if !by.IsZero() {
		left = max(time.Until(by), time.Nanosecond)
	}
	return l.readHead(HeadLimits{Total: left, Bytes: limit})
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
		if quiet(l.nc) {
			l.Reused, l.before = true, l.sent
			return l
		}
		l.Close()
	}
}

// Put keeps a link whose last exchange ended cleanly, with nothing left over.
func (i *Idle) Put(l *Link) {
	l.Rest()
	l.since = time.Now()
	i.mu.Lock()
	keep := !i.closed && len(i.links) < i.max && !l.cut.Load()
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
	i.mu.Lock()
	kept := i.links[:0]
	var old []*Link
	for _, l := range i.links {
		if limit > 0 && now.Sub(l.since) > limit || !quiet(l.nc) {
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

// Stale tells whether an exchange that failed with err may be tried on another
// link: this one was used before, no byte of an answer came, and the backend
// closed it. begun says that it may have begun to work on the request all the
// same; it cannot have, if its kernel acknowledged no byte of it.
func (l *Link) Stale(err error) (stale, begun bool) {
	if !l.Reused || len(l.Buffered()) > 0 || !errors.Is(err, io.EOF) && !isReset(err) {
		return false, true
	}
	acked, ok := acknowledged(l.nc)
	return true, !ok || acked > l.before
}
