package store

import "github.com/hashicorp/raft"

// Gated gives a Wrap that asks before each write whether, and when, it may be
// made: as a disk that is slow, stalls, is full or fails would have it.
func Gated(may func() error) func(Disk) Disk {
	return func(d Disk) Disk { return gated{d, may} }
}

type gated struct {
	Disk
	may func() error
}

func (g gated) StoreLogs(entries []*raft.Log) error {
	if err := g.may(); err != nil {
		return err
	}
	return g.Disk.StoreLogs(entries)
}

func (g gated) DeleteRange(min, max uint64) error {
	if err := g.may(); err != nil {
		return err
	}
	return g.Disk.DeleteRange(min, max)
}
