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
	lives int // how often it began anew
}

// NewMachine is a machine at its beginning; the log tells it the rest.
func NewMachine() *Machine { return &Machine{table: NewTable()} }

// Apply takes the commands of one entry. None is done unless all are understood.
func (m *Machine) Apply(_, _ uint64, commands [][]byte) ([]any, error) {
	decoded := make([]Command, len(commands))
	for i, b := range commands {
		c, err := decodeCommand(b)
		if err != nil {
			return nil, fmt.Errorf("command %d of the entry: %w", i, err)
		}
		decoded[i] = c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]any, len(decoded))
	for i, c := range decoded {
		results[i] = m.table.Apply(c)
	}
	return results, nil
}

// Reset begins anew, with nothing, for a replica that starts anew.
func (m *Machine) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.table = NewTable()
	m.lives++
}

// life names the time since the last Reset.
func (m *Machine) life() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.lives
}

// look is Get, if it is still that life.
func (m *Machine) look(k Key, life int) (b Binding, ok, same bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	b, ok = m.table.Get(k)
	return b, ok, m.lives == life
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

// Snapshot copies the table: 60,000 sessions take a millisecond or so, and the
// copy is written while commands are applied.
func (m *Machine) Snapshot() (io.WriterTo, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.table.clone(), nil
}

// Restore replaces the table.
func (m *Machine) Restore(r io.Reader) error {
	t, err := readTable(r)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.table = t
	return nil
}
