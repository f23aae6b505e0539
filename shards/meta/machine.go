package meta

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

// Machine is the map as meta's log drives it.
type Machine struct {
	mu      sync.Mutex // guards what follows
	current *Map
	index   uint64        // of the last entry; 0: not known
	changed chan struct{} // closed when current is another
}

// NewMachine is a machine at its beginning: its map has revision 0.
func NewMachine() *Machine { return &Machine{current: &Map{}, changed: make(chan struct{})} }

// Map returns the map as it is applied here, and a channel that is closed when
// there is another.
func (m *Machine) Map() (*Map, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current, m.changed
}

func (m *Machine) set(next *Map) {
	if next == m.current {
		return
	}
	m.current = next
	close(m.changed)
	m.changed = make(chan struct{})
}

// Apply takes the commands of one entry. None is done unless all are understood.
// Each result is a Result.
func (m *Machine) Apply(_, index uint64, commands [][]byte) ([]any, error) {
	decoded := make([]Command, len(commands))
	for i, b := range commands {
		c, err := DecodeCommand(b)
		if err != nil {
			return nil, fmt.Errorf("command %d of the entry: %w", i, err)
		}
		decoded[i] = c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next, results := m.current, make([]any, len(decoded))
	for i, c := range decoded {
		next, results[i] = applied(next, c)
	}
	m.index = index
	m.set(next)
	return results, nil
}

func applied(m *Map, c Command) (*Map, any) {
	next, result := Apply(m, c)
	return next, result
}

// Reset begins anew, with nothing, for a replica that starts anew.
func (m *Machine) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.index = 0
	m.set(&Map{})
}

// Snapshot is the map, which never changes.
func (m *Machine) Snapshot() (io.WriterTo, error) {
	current, _ := m.Map()
	return bytes.NewBuffer(encode(current)), nil
}

// Restore replaces the map. An empty one is no fault: a log may have begun with
// commands that were refused.
func (m *Machine) Restore(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("snapshot of the map: %w", err)
	}
	next, err := decode[*Map]("snapshot of the map", b)
	if err == nil && next == nil {
		err = fmt.Errorf("snapshot of the map %w: there is none", errCode)
	}
	if err == nil && next.Cluster != "" {
		err = next.check()
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.index = 0
	m.set(next)
	return nil
}

// DigestForm is how a digest is made: of the map as it is written. It is another one
// once that is, for maps that are alike have unlike digests then.
const DigestForm = 1

// Digest is what the map comes to in one number, and after which entry; 0: that is
// not known. Maps that have it in common are alike. The map's secret cannot be had
// from it.
func (m *Machine) Digest() (index, digest uint64) {
	m.mu.Lock()
	current, index := m.current, m.index
	m.mu.Unlock()
	sum := sha256.Sum256(encode(current))
	return index, binary.BigEndian.Uint64(sum[:])
}
