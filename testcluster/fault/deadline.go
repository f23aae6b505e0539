package fault

import (
	"net"
	"os"
	"sync"
	"time"
)

// deadline is one that can be moved while somebody waits for it.
type deadline struct {
	mu    sync.Mutex
	at    time.Time
	moved chan struct{} // made by who waits, closed by set
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = t
	if d.moved != nil {
		close(d.moved)
		d.moved = nil
	}
}

func (d *deadline) watch() (at time.Time, moved <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moved == nil {
		d.moved = make(chan struct{})
	}
	return d.at, d.moved
}

// pause waits in one direction until t (zero: for ever), or until rule, deadline
// or more may have changed; the caller looks again. It fails if the connection
// was closed or the direction's deadline passed.
func (c *conn) pause(d *deadline, s *setting, t time.Time, more <-chan struct{}) error {
	at, moved := d.watch()
	if !at.IsZero() && !time.Now().Before(at) {
		return os.ErrDeadlineExceeded
	}
	if !at.IsZero() && (t.IsZero() || at.Before(t)) {
		t = at
	}
	var over <-chan time.Time
	if !t.IsZero() {
		timer := time.NewTimer(time.Until(t))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-c.gone:
		return net.ErrClosed
	case <-over:
		if !at.IsZero() && !time.Now().Before(at) {
			return os.ErrDeadlineExceeded
		}
	case <-s.changed:
	case <-moved:
	case <-more:
	}
	return nil
}
