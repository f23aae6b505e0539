package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"go.etcd.io/bbolt"
)

// HoleError says that a log is not in one piece. raft would panic when it came
// to the missing entry; the replica has to be made anew from its peers.
type HoleError struct {
	Key     Key
	Missing uint64 // the first index that is not there
}

func (e *HoleError) Error() string {
	return fmt.Sprintf("log of replica %s lacks entry %d: drop this replica and let its peers fill a new one", e.Key, e.Missing)
}

// extent is what a scan finds in one slot.
type extent struct {
	first, last uint64 // of raft's log; 0, 0: empty
	missing     uint64 // the first hole, or 0
	kept        []int  // which values beside the log are there
}

// scan reads every key of a file that nobody has open for writing. raft-boltdb
// can only tell the first and the last of all slots together.
func scan(path string) (map[uint16]*extent, error) {
	found := map[uint16]*extent{}
	size, err := fileBytes(path)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	} else if err != nil {
		return nil, err
	} else if size == 0 { // create leaves none or a whole one
		return nil, errors.New("file is empty, and was not so when it was made")
	}
	db, err := bbolt.Open(path, 0o600, boltOptions(true))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		// Must come before any page is read: a page past the end is a fault, not an error.
		if tx.Size() > size {
			return fmt.Errorf("file is cut short: %d bytes, its last transaction reaches to %d", size, tx.Size())
		}
		logs := tx.Bucket([]byte("logs")) // raft-boltdb's name for it
		if logs == nil {
			return errors.New("file has no logs in it")
		}
		for c, k := cursorAt(logs); k != nil; k, _ = c.Next() {
			if len(k) != 8 {
				return fmt.Errorf("file has a key of %d bytes", len(k))
			}
			slot, index := parts(binary.BigEndian.Uint64(k))
			if found[slot] == nil {
				found[slot] = &extent{}
			}
			found[slot].add(index)
		}
		return nil
	})
	return found, err
}

func cursorAt(b *bbolt.Bucket) (*bbolt.Cursor, []byte) {
	c := b.Cursor()
	k, _ := c.First()
	return c, k
}

func (e *extent) add(index uint64) {
	switch {
	case index >= reserved:
		e.kept = append(e.kept, int(index-reserved))
		return
	case e.last == 0:
		e.first = index
	case index != e.last+1 && e.missing == 0:
		e.missing = e.last + 1
	}
	e.last = index
}
