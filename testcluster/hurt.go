package testcluster

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/starling-lb/starling/testcluster/fault"
)

// Links are the ways between the nodes, by their names (n1 and so on), for what
// Partition does not do: loss, delays, one protocol alone.
func (c *Cluster) Links() *fault.Links { return c.links }

// Partition cuts the nodes of a off from those of b, both ways, by number from 0.
// It refuses nothing and resets nothing: what is sent does not arrive. Without b,
// it is all others.
func (c *Cluster) Partition(a []int, b ...[]int) {
	for _, i := range a {
		for j := range c.nodes {
			if contains(a, j) || len(b) > 0 && !contains(b[0], j) {
				continue
			}
			from, to := c.nodes[i].Name, c.nodes[j].Name
			c.links.Set(from, to, fault.Path{Off: true})
			c.links.Set(to, from, fault.Path{Off: true})
		}
	}
}

// Heal makes all ways between nodes good.
func (c *Cluster) Heal() { c.links.Clear() }

func contains(list []int, i int) bool {
	for _, v := range list {
		if v == i {
			return true
		}
	}
	return false
}

// Disk is a disk that can be made bad; a new one is good.
type Disk struct {
	mu      sync.Mutex // guards what follows
	slow    time.Duration
	err     error
	stalled bool
	changed chan struct{}
}

// NewDisk is a good one.
func NewDisk() *Disk { return &Disk{changed: make(chan struct{})} }

// Slow has every write take so much longer; 0: no longer.
func (d *Disk) Slow(by time.Duration) { d.set(by, nil, false) }

// Stall has writes wait until something else is said.
func (d *Disk) Stall() { d.set(0, nil, true) }

// Full refuses writes for want of room.
func (d *Disk) Full() { d.set(0, syscall.ENOSPC, false) }

// Fail refuses writes.
func (d *Disk) Fail() { d.set(0, ErrDisk, false) }

// Mend has writes be made as ever. What refused writes have led to stays until the
// node is started again.
func (d *Disk) Mend() { d.set(0, nil, false) }

func (d *Disk) set(slow time.Duration, err error, stalled bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow, d.err, d.stalled = slow, err, stalled
	close(d.changed)
	d.changed = make(chan struct{})
}

// May is asked before each write: it waits, or refuses it.
func (d *Disk) May() error {
	for {
		d.mu.Lock()
		slow, err, stalled, changed := d.slow, d.err, d.stalled, d.changed
		d.mu.Unlock()
		var over <-chan time.Time // never, while stalled
		switch {
		case err != nil:
			return err
		case !stalled && slow == 0:
			return nil
		case !stalled:
			over = time.After(slow)
		}
		select {
		case <-over:
			return nil
		case <-changed:
		}
	}
}

// TB is the part of testing.TB that ForTest uses; this package is linked into
// programs and must not bring the testing package along.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// ForTest is a running cluster whose nodes keep sessions, and which ends, with its
// streams cut, when the test does.
func ForTest(tb TB, o Options) *Cluster {
	tb.Helper()
	c, err := Start(context.Background(), o)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Stop(now) // says only that streams were cut
	})
	if o.Nodes > 1 {
		if err := c.AwaitSessions(context.Background(), foundingTime); err != nil {
			tb.Fatalf("%v", err)
		}
	}
	return c
}

const foundingTime = time.Minute // of a slow machine
