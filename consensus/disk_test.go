package consensus

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/starling-lb/starling/consensus/store"
)

// failingDisk fails all writes once it is told to.
type failingDisk struct {
	store.Disk
	bad *atomic.Bool
}

func (d failingDisk) StoreLogs(l []*raft.Log) error {
	if d.bad.Load() {
		return errDisk
	}
	return d.Disk.StoreLogs(l)
}

// keepOnDisk opens a node's store, as node does.
func (n *node) keepOnDisk(t *testing.T, path string) (bad *atomic.Bool) {
	t.Helper()
	bad = &atomic.Bool{}
	s, err := store.New(store.Options{Path: path, Failed: func(err error) { n.groups.Failed(err) }, Wrap: func(d store.Disk) store.Disk { return failingDisk{d, bad} }})
	if err == nil {
		err = s.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	n.groups.o.Store = OnDisk(s)
	n.close = func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Stop(ctx); err != nil && !errors.Is(err, errDisk) && !errors.Is(err, store.ErrFailed) {
			t.Errorf("stop of the store of %s: %v", n.name, err)
		}
	}
	return bad
}

// TestRealFiles: kill all nodes, and a disk that fails for good takes its replica
// out and nothing else.
func TestRealFiles(t *testing.T) {
	w := newTown(t, 3)
	dir := t.TempDir()
	bad := make(map[string]*atomic.Bool)
	open := func(founders []string) {
		for _, name := range three() {
			n := w.nodes[name]
			bad[name] = n.keepOnDisk(t, filepath.Join(dir, name))
			n.open(1, founders)
		}
	}
	open(three())
	for i := range 5 {
		w.propose(1, fmt.Sprint(i))
	}
	want := w.agree(1, three()...)
	for _, name := range three() {
		w.nodes[name].kill()
	}
	for _, name := range three() {
		w.nodes[name].up()
	}
	open(nil)
	w.propose(1, "after")
	if got := w.agree(1, three()...); !slices.Equal(got, append(want, "after")) {
		t.Errorf("the diary was %v and is %v", want, got)
	}
	led := w.leader(1)
	bad[led.name].Store(true)
	_, _ = led.groups.Group(1).Propose(t.Context(), []byte("lost, or not"))
	w.propose(1, "without it", others(led.name)...)
	w.eventually(func() string {
		if s := led.groups.Group(1).State(); s.Fault == nil {
			return fmt.Sprintf("it goes on: %+v", s)
		}
		return ""
	})
}
