package meta

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// FileName is the map's file in a node's data directory.
const FileName = "map.json"

// files is a node's data directory, as far as meta keeps something there. A write
// is whole or not at all, and lasts.
type files interface {
	read(name string) ([]byte, error) // nil where there is none
	write(name string, b []byte) error
}

type directory string

func (d directory) read(name string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(string(d), name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// Save keeps the map for the next start: for its owner alone, since it holds the
// secret.
func (m *Map) Save(dir string) error { return m.save(directory(dir)) }

func (m *Map) save(f files) error {
	if len(m.Secret) < minSecret {
		return fmt.Errorf("save the map: %w: it has no secret", ErrInvalid)
	}
	if err := f.write(FileName, append(m.Encode(), '\n')); err != nil {
		return fmt.Errorf("save the map: %w", err)
	}
	return nil
}

// Load returns the map that was kept; nil where none was.
func Load(dir string) (*Map, error) { return loadMap(directory(dir)) }

func loadMap(f files) (*Map, error) {
	b, err := f.read(FileName)
	if err != nil || b == nil {
		return nil, err
	}
	m, err := DecodeMap(b)
	if err == nil && m.Secret == nil {
		err = fmt.Errorf("%w: it has no secret", ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("load the map: %v/%s: %w; restore it from another node of the cluster, or move the data directory away to start as a new node", f, FileName, err)
	}
	return m, nil
}

// write writes a file aside and renames it, for its owner alone.
func (d directory) write(file string, b []byte) error {
	name := filepath.Join(string(d), file)
	aside, err := os.OpenFile(name+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = aside.Write(b)
	if err = errors.Join(err, aside.Sync(), aside.Close()); err != nil {
		return err
	}
	if err := os.Rename(name+".new", name); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close()) // the name, too
}
