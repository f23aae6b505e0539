package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-lb/starling/consensus"
	"github.com/starling-lb/starling/shards"
	"github.com/starling-lb/starling/shards/meta"
)

// chat are the rules of one pool that would rather move a session than refuse a turn.
type chat struct{}

func (chat) Pool(string) shards.Rule {
	return shards.Rule{TTL: time.Hour, Drain: time.Minute, Wait: 10 * time.Second}
}
func (chat) Of(string) string { return "chat" }
func (chat) Sets() []shards.Set {
	return []shards.Set{{Pool: "chat", Revision: 1, Backends: []shards.Backend{{ID: "b1", Weight: 1}, {ID: "b2", Weight: 1}}}}
}

// nobody is another process that opens what it took over, for however long.
type nobody struct{}

func (nobody) Call(context.Context, string, string, []byte) ([]byte, error) {
	return nil, errors.New("it is not there yet")
}

func (nobody) Feed(context.Context, string, string, []byte, func([]byte) error) error {
	return errors.New("it is not there yet")
}

// TestAnElderNeedsNoHeir: a process lets go of its node, and for longer than a lease no
// other is there that it could ask by. Its leases go on, so that no session moves
// beneath its turn, also where the pool wants availability.
func TestAnElderNeedsNoHeir(t *testing.T) {
	w := &town{peers: make(map[string]Peer)}
	var ahead atomic.Int64
	var all []*Quorum
	for _, id := range []string{"a", "b", "c"} {
		w.mu.Lock()
		w.peers[id] = Peer{ID: id, Name: "lb-" + id, Alive: true, Hosts: true, Level: Level, Expect: 3}
		w.mu.Unlock()
		all = append(all, start(t, Options{
			Self: Peer{ID: id, Name: "lb-" + id}, Dir: t.TempDir(), Expect: 3, Around: seat{w, id}, Rules: chat{},
			Now: func() time.Duration { return consensus.Now() + time.Duration(ahead.Load()) },
		}))
	}
	a, b := all[0], all[1]
	<-a.Routed()
	<-b.Routed()
	eventually(t, func() string { // each shard is kept by three, of which two go on without a
		for _, s := range b.Map().Shards {
			if s.Step != nil || len(s.Replicas) != 3 || slices.ContainsFunc(s.Replicas, func(r meta.Replica) bool { return !r.Voter }) {
				return fmt.Sprintf("a shard is under way: %+v", s)
			}
		}
		return ""
	})
	turn, err := a.Router().Turn(t.Context(), "chat", []byte("s"), 0, func() string { return "b1" })
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		a.Yield(t.Context())
		for _, g := range a.groups.All() {
			if g.State().Led {
				return "it leads a shard"
			}
		}
		return ""
	})
	if err := a.Release(t.Context(), nobody{}); err != nil {
		t.Fatal(err)
	}
	ahead.Store(int64(10 * time.Second)) // every lease has lapsed
	eventually(t, func() string {
		if !a.Router().Leased() {
			return "its leases have lapsed for good"
		}
		return ""
	})
	eventually(t, func() string {
		switch err := move(t, b); {
		case err == nil:
			t.Fatal("moved beneath a turn")
		case !errors.Is(err, shards.ErrPending):
			return err.Error() // whoever leads was not found in time
		}
		return ""
	})
	turn.End()
	eventually(t, func() string {
		if err := move(t, b); err != nil {
			return err.Error()
		}
		return ""
	})
}

func move(t *testing.T, q *Quorum) error {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := q.Router().Move(ctx, "chat", []byte("s"), "b2")
	return err
}
