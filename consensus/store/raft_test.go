package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// machineOfNothing is a state machine that only counts.
type machineOfNothing struct{ n int }

func (m *machineOfNothing) Apply(*raft.Log) any                 { m.n++; return m.n }
func (m *machineOfNothing) Snapshot() (raft.FSMSnapshot, error) { return m, nil }
func (m *machineOfNothing) Restore(r io.ReadCloser) error       { return r.Close() }
func (m *machineOfNothing) Persist(s raft.SnapshotSink) error   { return s.Close() }
func (m *machineOfNothing) Release()                            {}

// stores is what a raft needs of its disk.
type stores interface {
	raft.LogStore
	raft.StableStore
}

// uncured does what a plain store would: it returns the error.
type uncured struct{ *Slot }

func (u uncured) SetUint64(name []byte, v uint64) error {
	what, err := keepOf(name)
	if err != nil {
		return err
	}
	o := newOp(u.lane, u.Slot, put)
	o.keep(what, encodeUint(v))
	return u.do(o)
}

func single(on stores) (*raft.Raft, error) {
	conf := raft.DefaultConfig()
	conf.LocalID, conf.LogOutput = "a", io.Discard
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 25*time.Millisecond
	snaps := raft.NewInmemSnapshotStore()
	addr, trans := raft.NewInmemTransport("a")
	members := raft.Configuration{Servers: []raft.Server{{ID: "a", Address: addr}}}
	if err := raft.BootstrapCluster(conf, on, on, snaps, trans, members); err != nil {
		return nil, err
	}
	return raft.NewRaft(conf, &machineOfNothing{}, on, on, snaps, trans)
}

// raftOnSickDisk lets a raft lead, breaks its disk and waits for what it does
// then: an append fails, it steps down, wants a new term and cannot save it.
func raftOnSickDisk(p string, cure bool) int {
	f := &faults{}
	st, err := New(Options{Path: p, Wrap: f.wrap})
	if err == nil {
		err = st.Start(context.Background())
	}
	if err != nil {
		return complain(err)
	}
	s, err := st.Open(key(1))
	if err != nil {
		return complain(err)
	}
	on := stores(s)
	if !cure {
		on = uncured{s}
	}
	r, err := single(on)
	if err != nil {
		return complain(err)
	}
	<-r.LeaderCh()
	if err := r.Apply([]byte("x"), patience).Error(); err != nil {
		return complain(err)
	}
	f.write.Store(ptr(syscall.EIO))
	if err := r.Apply([]byte("y"), patience).Error(); err == nil {
		return complain(errors.New("an append to a broken disk went through"))
	}
	deadline := time.After(patience)
	for tick := time.Tick(time.Millisecond); st.parked.Load() == 0; {
		select {
		case <-tick: // in the uncured case, raft panics meanwhile
		case <-deadline:
			return complain(errors.New("raft never came to its next term"))
		}
	}
	down := r.Shutdown()
	s.Close()
	if err := down.Error(); err != nil {
		return complain(err)
	}
	return 0
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 3
}

func TestRaftOnSickDisk(t *testing.T) {
	for _, tt := range []struct {
		cure  string
		panic bool
	}{{"yes", false}, {"no", true}} {
		t.Run("cure="+tt.cure, func(t *testing.T) {
			var stderr bytes.Buffer
			cmd := child(t, "raft", path(t), "STORE_TEST_CURE="+tt.cure)
			cmd.Stderr = &stderr
			err := cmd.Run()
			panicked := bytes.Contains(stderr.Bytes(), []byte("panic: failed to save current term"))
			if panicked != tt.panic || (err == nil) == tt.panic {
				t.Errorf("panicked: %v, want %v; %v\n%s", panicked, tt.panic, err, stderr.String())
			}
		})
	}
}

// A whole life of a raft on a slot: lead, snapshot, compact, restart.
func TestRaftLives(t *testing.T) {
	p := path(t)
	st := begin(t, Options{Path: p})
	s := open(t, st, key(1))
	r, err := single(s)
	must(t, err)
	<-r.LeaderCh()
	for range 20 {
		must(t, r.Apply([]byte("x"), patience).Error())
	}
	must(t, r.ReloadConfig(raft.ReloadableConfig{TrailingLogs: 5, SnapshotThreshold: 1, SnapshotInterval: time.Hour, HeartbeatTimeout: time.Second, ElectionTimeout: time.Second}))
	must(t, r.Snapshot().Error())
	wantSpan(t, s, 18, 22) // configuration, no-op and 20 commands, the last five kept
	must(t, r.Shutdown().Error())
	term, err := s.GetUint64([]byte("CurrentTerm"))
	must(t, err)
	stop(t, st)
	s = open(t, begin(t, Options{Path: p}), key(1))
	wantSpan(t, s, 18, 22)
	if again, _ := s.GetUint64([]byte("CurrentTerm")); again != term || term < 2 {
		t.Errorf("term was %d and is %d", term, again)
	}
}
