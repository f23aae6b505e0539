package shards

import (
	"fmt"
	"io"
	"sync"
)

// Machine is a shard's table as a replicated log drives it.
type Machine struct {
	mu    sync.RWMutex // guards what follows
	table *Table
	at    Position
	tap   func(Applied)
	marks []Mark // the last ones, the oldest first
}

// Position is how far a machine has come.
type Position struct {
	Life        int // how often it began anew or was restored
	Term, Index uint64
}

// Applied is what one entry changed.
type Applied struct {
	Position
	Restored bool     // all may have changed: Life is another
	Changes  []Change // in the order of the log
	Holders  bool     // they changed
	Sets     bool
}

// NewMachine is a machine at its beginning; the log tells it the rest.
func NewMachine() *Machine { return &Machine{table: NewTable()} }

// Tap has f told of every entry, in order, after it can be seen by all; nil stops
// it. f runs where Apply does, without a lock, and must not wait. Who begins with
// At and leaves out what is not after that Position misses nothing.
func (m *Machine) Tap(f func(Applied)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tap = f
}

// Apply takes the commands of one entry. None is done unless all are understood.
func (m *Machine) Apply(term, index uint64, commands [][]byte) ([]any, error) {
	decoded := make([]Command, len(commands))
	for i, b := range commands {
		c, err := decodeCommand(b)
		if err != nil {
			return nil, fmt.Errorf("command %d of the entry: %w", i, err)
		}
		decoded[i] = c
	}
	results := make([]any, len(decoded))
	var a Applied
	m.mu.Lock()
	m.mark(index)
	for i, c := range decoded {
		r := m.table.Apply(term, c)
		results[i] = r
		a.Changes = append(a.Changes, r.Changes...)
		a.Holders = a.Holders || c.Op == OpHolder || c.Op == OpUnholder
		a.Sets = a.Sets || c.Op == OpSet && !r.Conflict
	}
	m.at.Term, m.at.Index = term, index
	a.Position = m.at
	tap := m.tap
	m.mu.Unlock()
	if tap != nil {
		tap(a)
	}
	return results, nil
}

// Reset begins anew, with nothing, for a replica that starts anew.
func (m *Machine) Reset() { m.replace(NewTable()) }

// Restore replaces the table. Which entry the snapshot ends with is not known
// before the next one is applied.
func (m *Machine) Restore(r io.Reader) error {
	t, err := readTable(r)
	if err == nil {
		m.replace(t)
	}
	return err
}

func (m *Machine) replace(t *Table) {
	m.mu.Lock()
	m.table, m.at, m.marks = t, Position{Life: m.at.Life + 1}, nil
	at, tap := m.at, m.tap
	m.mu.Unlock()
	if tap != nil {
		tap(Applied{Position: at, Restored: true})
	}
}

// At returns the bindings of some sessions, zero where there is none, as they are
// after one and the same entry.
func (m *Machine) At(keys []Key) ([]Binding, Position) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]Binding, len(keys))
	for i, k := range keys {
		all[i], _ = m.table.Get(k)
	}
	return all, m.at
}

// Get returns a session's binding as it is applied here.
func (m *Machine) Get(k Key) (Binding, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.table.Get(k)
}

// Len is how many sessions are bound.
func (m *Machine) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.table.Len()
}

// View has f look at the table, as it is after one and the same entry; nothing is
// applied meanwhile. f must be quick, and ask the machine nothing.
func (m *Machine) View(f func(t *Table, at Position)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.table, m.at)
}

// Holders returns who may have leases, by node and boot.
func (m *Machine) Holders() []Holder {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.table.Holders()
}

// Set returns the backends of a pool as the log has them.
func (m *Machine) Set(pool string) (Set, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.table.Set(pool)
}

// Snapshot copies the table, and the copy is written while commands are applied.
func (m *Machine) Snapshot() (io.WriterTo, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.table.clone(), nil
}
