package store

import (
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/hashicorp/raft"
)

// faults is a disk that fails and hangs on command.
type faults struct {
	Disk
	write   atomic.Pointer[error]
	read    atomic.Pointer[error]
	deletes counter // so many succeed, then they fail
	stall   atomic.Pointer[chan struct{}]
	stalled atomic.Int64
	writes  atomic.Int64
}

// counter is unlimited until it is stored.
type counter struct {
	armed atomic.Bool
	left  atomic.Int64
}

func (c *counter) Store(n int64) {
	c.left.Store(n)
	c.armed.Store(true)
}

func (c *counter) spend() bool { return !c.armed.Load() || c.left.Add(-1) >= 0 }

func (f *faults) wrap(d Disk) Disk {
	f.Disk = d
	return f
}

func (f *faults) StoreLogs(es []*raft.Log) error {
	if ch := f.stall.Load(); ch != nil {
		f.stalled.Add(1)
		<-*ch
	}
	if err := f.write.Load(); err != nil {
		return *err
	}
	f.writes.Add(1)
	return f.Disk.StoreLogs(es)
}

func (f *faults) GetLog(at uint64, e *raft.Log) error {
	if err := f.read.Load(); err != nil {
		return *err
	}
	return f.Disk.GetLog(at, e)
}

func (f *faults) DeleteRange(min, max uint64) error {
	if !f.deletes.spend() {
		return syscall.EIO
	}
	return f.Disk.DeleteRange(min, max)
}

func ptr(err error) *error { return &err }

var errInjected = errors.New("injected")
