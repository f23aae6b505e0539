package shards

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// holderStories are about who is asked: who comes back in the middle of a hold, and
// who has left.
func holderStories() []ruleStory {
	return []ruleStory{
		{"who becomes a holder again begins a section", lacking(cureGivenBack), func(w *world) string {
			running := w.must("d", "llm", "s", 1)
			defer running.End()
			w.at("e", "llm", "s", 1)
			w.graced()
			back, later := make(chan struct{}), make(chan struct{})
			w.set(func() { // d's renewals are late, and so is e's word about the hold; d's feed is as it was
				w.dead["d"] = true
				w.before = func(from, _ string, q question) <-chan struct{} {
					switch {
					case from == "d" && q.ask == askRenew:
						return back
					case from == "e" && q.ask == askHeld:
						return later
					}
					return nil
				}
			})
			w.forgotten("a", "d")
			w.set(func() { clear(w.dead) })
			move := make(chan bool, 1)
			go func() { move <- w.shift("e", "s", "llm-b2", time.Second) }()
			r := w.node("a").router.desk.owner(1)
			w.until("a hold asks", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.reign.holds) > 0 })
			close(back)
			w.wait(100 * time.Millisecond)
			started := w.starts("d", "s", "llm-b1")
			close(later)
			if <-move && started {
				return "it moved beneath a turn of a holder that came back while the hold asked"
			}
			return ""
		}},
		{"a renewal of before a leave makes no holder", lacking(cureLeft), func(w *world) string {
			w.at("d", "llm", "s", 1)
			w.at("e", "llm", "s", 1)
			w.graced()
			late, said := make(chan struct{}), make(chan struct{})
			w.set(func() {
				w.after = func(from, _ string, q question) <-chan struct{} {
					if from == "d" && q.ask == askLeave {
						return said
					}
					return nil
				}
				w.before = func(from, _ string, q question) <-chan struct{} {
					if from == "d" && q.ask == askRenew {
						return late
					}
					return nil
				}
			})
			w.wait(renewEvery + 200*time.Millisecond) // one is on its way
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = w.node("d").router.Stop(ctx)
			}()
			w.forgotten("a", "d")
			close(late) // its feed is still open
			w.wait(200 * time.Millisecond)
			close(said)
			<-stopped
			w.wait(time.Second)
			w.isolate("d", true)
			if !w.shift("e", "s", "llm-b2", 5*time.Second) {
				return "a process that has left is asked, and nothing moves"
			}
			return ""
		}},
	}
}

// TestAnIdleNodeHoldsUpNothing: a node that had turns once, and none for long, has no
// lease and is a holder all the same: it hears of holds, also after another leader
// came, and its sessions end with their TTL.
func TestAnIdleNodeHoldsUpNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.lives(20 * time.Minute)
		w.populate("llm", 20, 4)
		w.wait(renewFor + followFor + time.Minute)
		if w.leased("d") && w.leased("c") && w.leased("b") {
			t.Error("every idle node has a lease")
		}
		if !w.shift("e", "0", "llm-b2", 2*time.Second) {
			t.Error("a session does not move")
		}
		w.lead("b")
		w.wait(renewIdle + lease)
		if !w.shift("e", "0", "llm-b3", 2*time.Second) {
			t.Error("a session does not move with another leader")
		}
		began := w.now()
		if h := w.at("d", "llm", "0", 1); h.Backend != "llm-b3" || w.now()-began > 200*time.Millisecond {
			t.Errorf("the idle node has it at %+v after %v", h, w.now()-began)
		}
		w.wait(41 * time.Minute)
		if n := w.node("b").machine.Len(); n != 0 {
			t.Errorf("%d sessions outlive two TTLs", n)
		}
	})
}

// TestAFarewellIsTheLastWord: who has said that no turn runs and none will begin has
// no lease any more, and grants that are on their way bring none.
func TestAFarewellIsTheLastWord(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("d", "llm", "s", 1)
		r := w.node("d").router
		s := r.sections[0]
		s.mu.Lock()
		s.number++
		asked := s.number
		s.asked[asked] = r.Now()
		s.mu.Unlock()
		number, empty := s.close()
		if s.grant(r, asked); !empty || number <= asked || s.leased(r.Now()) {
			t.Errorf("number %d after %d, empty %v, leased %v", number, asked, empty, s.leased(r.Now()))
		}
		w.wait(2 * renewEvery)
		turn := w.must("d", "llm", "s", 1)
		if _, empty := s.close(); empty {
			t.Error("a turn runs, and the node is empty")
		}
		turn.End()
	})
}

// deafPeers never answer.
type deafPeers struct{ said atomic.Int64 }

func (p *deafPeers) Call(ctx context.Context, _, _ string, _ []byte) ([]byte, error) {
	p.said.Add(1)
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (p *deafPeers) Replicas(uint32) []string { return nil }

// TestAFarewellToTheDeaf: a node that ends tells all leaders that it goes, and waits half
// a second for their answers, however many do not answer.
func TestAFarewellToTheDeaf(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const shards = 64
		h, err := NewHasher(bytes.Repeat([]byte{7}, 32), shards)
		if err != nil {
			t.Fatal(err)
		}
		peers := &deafPeers{}
		r := NewRouter(Options{Node: "a", Hash: h, Peers: peers, Place: peers})
		for _, s := range r.sections {
			s.head.Store(&head{node: "b", term: 1, gen: 1})
		}
		began := time.Now()
		_ = r.Stop(t.Context())
		if took := time.Since(began); took > askTime || peers.said.Load() != shards {
			t.Errorf("it told %d leaders of %d, in %v", peers.said.Load(), shards, took)
		}
	})
}
