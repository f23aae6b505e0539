package node

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// dataFormat is the version of what the data directory holds. A starling that
// finds a newer one leaves it alone.
const dataFormat = 1

// dataDir is a node's directory: who the node is, and its lock against a
// second process.
type dataDir struct {
	path string
	id   string
	lock *os.File
}

// identity is the file starling.json in the data directory.
type identity struct {
	Format int    `json:"format"`
	NodeID string `json:"node_id"`
}

// openDataDir takes the directory, making it and the node's identity where
// there are none.
func openDataDir(path string) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	lock, err := lockFile(filepath.Join(path, "lock"))
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", path, err)
	}
	d := &dataDir{path: path, lock: lock}
	if d.id, err = identify(filepath.Join(path, "starling.json")); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s: %w", path, err), d.close())
	}
	return d, nil
}

// entered tells whether others than the owner may enter the directory: one that was
// there before has the mode that it was given.
func (d *dataDir) entered() bool {
	is, err := os.Stat(d.path)
	return err == nil && is.Mode().Perm()&0o077 != 0
}

func (d *dataDir) close() error { return d.lock.Close() }

func identify(path string) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return introduce(path)
	}
	if err != nil {
		return "", err
	}
	var i identity
	if err := json.Unmarshal(data, &i); err != nil {
		return "", fmt.Errorf("%s is not readable as this node's identity: %w; restore it, or move the directory away to start as a new node", path, err)
	}
	switch {
	case i.Format > dataFormat:
		return "", fmt.Errorf("%s has format %d, this starling knows up to %d; run the starling that wrote it, or a newer one", path, i.Format, dataFormat)
	case i.Format < 1 || i.NodeID == "":
		return "", fmt.Errorf("%s names no format or no node id; restore it, or move the directory away to start as a new node", path)
	}
	return i.NodeID, nil
}

// introduce makes a new identity.
func introduce(path string) (string, error) {
	i := identity{Format: dataFormat, NodeID: newUUID()}
	data, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return i.NodeID, replaceFile(path, append(data, '\n'))
}

// replaceFile writes a file aside and renames it, so that a crash leaves the old
// one or the whole new one.
func replaceFile(path string, data []byte) error {
	aside, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = aside.Write(data)
	if err = errors.Join(err, aside.Sync(), aside.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close()) // the name, too
}

// newUUID is a random UUID (RFC 9562 section 5.4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
