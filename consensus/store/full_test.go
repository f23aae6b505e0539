package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// fillUp appends until the file may not grow any further, which is what a full
// disk looks like to bbolt, and says what was acknowledged.
func fillUp(p string) int {
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: 256 << 10, Max: 256 << 10}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return complain(err)
	}
	st, err := New(Options{Path: p})
	if err == nil {
		err = st.Start(context.Background())
	}
	if err != nil {
		return complain(err)
	}
	s, err := st.Open(key(0))
	if err != nil {
		return complain(err)
	}
	for i := uint64(1); i < 1<<16; i++ {
		err := s.StoreLog(&raft.Log{Index: i, Term: 1, Data: body(0, i)})
		if err == nil {
			fmt.Println(i)
			continue
		}
		if !errors.Is(err, ErrFailed) || s.GetLog(i-1, new(raft.Log)) != nil {
			return complain(err)
		}
		fmt.Fprintln(os.Stderr, err)
		return 0
	}
	return complain(errors.New("the disk never filled up"))
}

func TestFullDisk(t *testing.T) {
	p := path(t)
	var stdout, stderr bytes.Buffer
	cmd := child(t, "full", p)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || !bytes.Contains(stderr.Bytes(), []byte("file too large")) {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var last uint64
	for in := bufio.NewScanner(&stdout); in.Scan(); {
		_, err := fmt.Sscan(in.Text(), &last)
		must(t, err)
	}
	known := []ledger{{first: 1, last: last}}
	survey(t, p, known)
	if last < 10 {
		t.Errorf("full after %d entries: the test is of no use", last)
	}
}
