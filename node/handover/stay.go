package handover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// prefix begins the names of the files that elders keep locked, in the data
// directory; their boot follows.
const prefix = "elder-"

// Stay says that this process goes on as an elder, as which boot of the node, until
// the file is closed, also by its death.
func Stay(dir string, boot uint64) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, prefix+strconv.FormatUint(boot, 10)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("go on as an elder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("go on as an elder: lock %s: %w", f.Name(), err), f.Close())
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
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return true
	}
	_ = os.Remove(name) // held: no elder begins to stay under it meanwhile
	return false
}
