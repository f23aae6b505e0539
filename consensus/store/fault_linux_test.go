package store

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// The errors of the real file, through bbolt: its descriptor is taken away.
func TestRealWriteError(t *testing.T) {
	p := path(t)
	st := begin(t, Options{Path: p})
	s := open(t, st, key(1))
	must(t, s.StoreLogs(entries(1, 1, 3)))
	stop(t, st)

	var file *os.File
	st = begin(t, Options{Path: p, OpenFile: func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}})
	s = open(t, st, key(1))
	readOnly, err := os.Open(p)
	must(t, err)
	defer readOnly.Close()
	must(t, syscall.Dup3(int(readOnly.Fd()), int(file.Fd()), syscall.O_CLOEXEC))
	if err := s.StoreLogs(entries(1, 4, 4)); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EBADF) {
		t.Errorf("StoreLogs: %v", err)
	}
	parks(t, s, "SetUint64", func() { _ = s.SetUint64([]byte("CurrentTerm"), 4) })
	must(t, s.GetLog(3, new(raft.Log)))
	stop(t, st)
	wantSpan(t, open(t, begin(t, Options{Path: p}), key(1)), 1, 3)
}
