package shards

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// slowPeers take their time to answer, and count how many questions they have at once.
type slowPeers struct {
	now, most, all atomic.Int64
	asked          sync.Map // sessions
}

func (p *slowPeers) Call(ctx context.Context, _, _ string, b []byte) ([]byte, error) {
	n := p.now.Add(1)
	defer p.now.Add(-1)
	if q, err := decodeQuestion(b); err == nil && q.ask == askBind {
		if _, known := p.asked.LoadOrStore(q.session, true); !known {
			p.all.Add(1)
		}
	}
	for most := p.most.Load(); n > most && !p.most.CompareAndSwap(most, n); most = p.most.Load() {
	}
	_ = pass(ctx, 100*time.Millisecond)
	return nil, errors.New("busy")
}

func (p *slowPeers) Replicas(uint32) []string { return []string{"b"} }

// TestChoicesOfManyShards: a node that has choices to offer in many shards at once
// leaves room at their leaders for turns, and offers all of them all the same.
func TestChoicesOfManyShards(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const shards, each = 16, 100
		h, err := NewHasher(bytes.Repeat([]byte{7}, 32), shards)
		if err != nil {
			t.Fatal(err)
		}
		peers := &slowPeers{}
		r := NewRouter(Options{Node: "a", Hash: h, Peers: peers, Place: peers})
		for _, s := range r.sections {
			s.until.Store(int64(time.Hour))
			for i := range each {
				k := Key{byte(s.shard), byte(i)}
				p := s.stripe(k)
				p.mu.Lock()
				p.alive(k).provisional = "b1"
				p.mu.Unlock()
				r.counts.provisional.Add(1)
			}
			r.reconcile(s)
		}
		_ = pass(t.Context(), 10*time.Minute)
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if peers.most.Load() > maxOffers || peers.all.Load() != shards*each {
			t.Errorf("%d choices were offered, %d of them at a time, want %d, and %d at a time at most", peers.all.Load(), peers.most.Load(), shards*each, maxOffers)
		}
	})
}
