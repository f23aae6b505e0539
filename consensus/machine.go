package consensus

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// machine is a StateMachine as Raft wants it.
type machine struct {
	StateMachine
	halt   func(error)   // never waits
	halted error         // Raft's goroutine for the state machine owns it
	config atomic.Uint64 // number of the last committed configuration
}

var _ raft.ConfigurationStore = (*machine)(nil)

// StoreConfiguration is how Raft tells the number of a configuration; its
// GetConfiguration does not.
func (m *machine) StoreConfiguration(index uint64, _ raft.Configuration) { m.config.Store(index) }

// results is what one entry gave.
type results struct {
	term uint64
	each []any
}

// errHalted is what a halted replica's snapshot and restore give.
var errHalted = errors.New("replica has halted")

// Apply takes nothing more after an entry that cannot be understood: to go on
// would leave it out here and not elsewhere. The results are then empty.
func (m *machine) Apply(l *raft.Log) any {
	if m.halted != nil {
		return results{}
	}
	commands, err := decodeEntry(l.Data)
	r := results{term: l.Term}
	if err == nil && len(commands) > 0 {
		r.each, err = m.StateMachine.Apply(l.Term, l.Index, commands)
	}
	if err != nil {
		m.stop(fmt.Errorf("entry %d of term %d: %w", l.Index, l.Term, err))
		return results{}
	}
	if len(r.each) != len(commands) {
		panic(fmt.Sprintf("BUG: %d results for %d commands", len(r.each), len(commands)))
	}
	return r
}

func (m *machine) stop(err error) {
	m.halted = err
	m.halt(err)
}

func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.halted != nil {
		return nil, errHalted
	}
	w, err := m.StateMachine.Snapshot()
	return snapshot{w}, err
}

// Restore halts the replica where it fails: half a state is none.
func (m *machine) Restore(r io.ReadCloser) error {
	if m.halted != nil {
		return errHalted
	}
	err := m.StateMachine.Restore(r)
	if err != nil {
		m.stop(fmt.Errorf("snapshot cannot be restored: %w", err))
	}
	return err
}

type snapshot struct{ io.WriterTo }

func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := s.WriteTo(sink); err != nil {
		_ = sink.Cancel() // the write's error is the one that counts
		return err
	}
	return sink.Close()
}

func (s snapshot) Release() {}
