package store

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// Disk is what the store asks of the file: each write is one transaction, and
// is on the disk when it returns. It is the seam for faults and slow disks.
type Disk interface {
	StoreLogs(entries []*raft.Log) error
	GetLog(at uint64, entry *raft.Log) error
	DeleteRange(min, max uint64) error
	Close() error
}

var _ Disk = (*raftboltdb.BoltStore)(nil)

const (
	lockWait   = 2 * time.Second // for another holder of the file, say a node that is just ending
	worthwhile = 4 << 20         // bytes; a smaller file is not compacted
)

// boltOptions never leave out an fsync of data: a power cut could take back a
// vote. The list of free pages alone is not written, but found anew at the next
// start: after a burst it would cost every later write (ADR 0018).
func boltOptions(readOnly bool) *bbolt.Options {
	return &bbolt.Options{
		Timeout:         lockWait,
		NoFreelistSync:  true,
		FreelistType:    bbolt.FreelistMapType,
		ReadOnly:        readOnly,
		PreLoadFreelist: false,
	}
}

// openFile makes the file if there is none, in such a way that after a crash
// there is none or a whole one.
func openFile(path string, open func(string, int, os.FileMode) (*os.File, error)) (*raftboltdb.BoltStore, error) {
	if _, err := os.Stat(path); os.IsNotExist(err) {
		if err := create(path); err != nil {
			return nil, err
		}
	}
	opts := boltOptions(false)
	opts.OpenFile = open
	return raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: opts})
}

func create(path string) error {
	fresh := path + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	b, err := raftboltdb.New(raftboltdb.Options{Path: fresh, BoltOptions: boltOptions(false)})
	if err != nil {
		return err
	}
	first := seal(formatSlot, &raft.Log{Index: formatIndex, Data: []byte(format)})
	if err := b.StoreLog(first); err != nil {
		b.Close()
		return err
	}
	if err := b.Close(); err != nil {
		return err
	}
	return swapIn(fresh, path)
}

// swapIn gives a closed and synced file its name for good: bbolt syncs the
// file, never the directory that says it exists.
func swapIn(fresh, path string) error {
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// compact writes the file anew without its free pages when these are more than
// half of it: bbolt reuses them, but never gives them back. It leaves the old
// file alone if it fails, say because the disk is nearly full.
func compact(path string) (before, after int64, err error) {
	fresh := path + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return 0, 0, err
	}
	opts := boltOptions(true)
	opts.PreLoadFreelist = true
	old, err := bbolt.Open(path, 0o600, opts)
	if err != nil {
		return 0, 0, err
	}
	defer old.Close()
	if before, err = fileBytes(path); err != nil {
		return 0, 0, err
	}
	size, used, err := usage(old)
	if err != nil || size < worthwhile || used > size/2 {
		return before, before, err
	}
	if err := copyTo(fresh, old); err != nil {
		os.Remove(fresh)
		return before, before, err
	}
	if err := swapIn(fresh, path); err != nil {
		return before, before, err
	}
	after, err = fileBytes(path)
	return before, after, err
}

func copyTo(fresh string, old *bbolt.DB) error {
	dst, err := bbolt.Open(fresh, 0o600, boltOptions(false))
	if err != nil {
		return err
	}
	if err := bbolt.Compact(dst, old, 1<<20); err != nil {
		dst.Close()
		return err
	}
	return dst.Close()
}

// usage is how far the file's pages reach, and how many bytes of them hold data.
func usage(db *bbolt.DB) (size, used int64, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		size = tx.Size()
		used = size - int64(db.Stats().FreePageN)*int64(db.Info().PageSize)
		return nil
	})
	return size, used, err
}

func fileBytes(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// guard turns what bbolt does on a file it cannot make sense of, and what the
// processor does on a page that cannot be read, into an error.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("file is damaged or cannot be read: %v", r)
		}
	}()
	return f()
}
