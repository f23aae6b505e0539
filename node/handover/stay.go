package handover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// prefix begins the names of the files that elders keep locked, in the data
// directory; their boot follows.
const prefix = "elder-"

const (
	stayTries = 100 // to take a file that others look at just then
	stayRest  = 2 * time.Millisecond
)

// Stay says that this process goes on as an elder, as which boot of the node, until
// the file is closed, also by its death.
func Stay(dir string, boot uint64) (*os.File, error) {
	name := filepath.Join(dir, prefix+strconv.FormatUint(boot, 10))
	var err error
	for range stayTries {
		var f *os.File
		if f, err = own(name, os.O_CREATE); err == nil {
			return f, nil
		}
		if !errors.Is(err, errElsewhere) && !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		<-time.After(stayRest) // who looks at it is done by then; who stays is not
	}
	return nil, fmt.Errorf("go on as an elder: %w", err)
}

// errElsewhere says that a file was removed before its lock was had.
var errElsewhere = errors.New("another process has removed it")

// own opens a file and locks it, as long as it is the one by that name.
func own(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
	}
	mine, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if there, err := os.Stat(name); err != nil || !os.SameFile(mine, there) {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, errElsewhere), f.Close())
	}
	return f, nil
}

// Depart takes that back.
func Depart(f *os.File) { _ = errors.Join(os.Remove(f.Name()), f.Close()) }

// Living are the boots of the elders that live. What others have left is removed.
func Living(dir string) (boots []uint64, err error) {
	names, err := filepath.Glob(filepath.Join(escape(dir), prefix+"*"))
	for _, name := range names {
		boot, bad := strconv.ParseUint(strings.TrimPrefix(filepath.Base(name), prefix), 10, 64)
		if bad != nil {
			continue // it is not ours
		}
		if lives(name) {
			boots = append(boots, boot)
		}
	}
	return boots, err
}

// escape has a directory's name mean itself in a pattern.
func escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// lives tells whether somebody holds the file's lock. Where that cannot be told, one
// does: the worst is that nothing of the elder's is moved.
func lives(name string) bool {
	f, err := own(name, 0)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	Depart(f) // while it is held: who begins to stay under it sees that it is gone, and makes another
	return false
}
