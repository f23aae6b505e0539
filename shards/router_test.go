package shards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// ward is the nodes of one shard, with a log in memory that applies at once on
// whoever leads.
type ward struct {
	mu      sync.Mutex
	leader  string // "": an election
	down    map[string]bool
	names   map[string]string // whom a node takes for the leader, if not the truth
	machine *Machine
	calls   int
	routers map[string]*Router
}

var errAway = errors.New("not the leader")

// wardLog is a node's view of the log.
type wardLog struct {
	w    *ward
	node string
}

func (l wardLog) Propose(_ context.Context, command []byte) (any, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.w.leader != l.node {
		return nil, errAway
	}
	r, err := l.w.machine.Apply(1, 1, [][]byte{command})
	if err != nil {
		return nil, err
	}
	return r[0], nil
}

func (l wardLog) Proven(context.Context) (uint64, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.w.leader != l.node {
		return 0, errAway
	}
	return 1, nil
}

func (l wardLog) Leader() string {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if n, ok := l.w.names[l.node]; ok {
		return n
	}
	return l.w.leader
}

func (w *ward) Call(ctx context.Context, node, service string, question []byte) ([]byte, error) {
	w.mu.Lock()
	w.calls++
	down, r := w.down[node], w.routers[node]
	w.mu.Unlock()
	if down || r == nil || service != AskService {
		return nil, fmt.Errorf("node %s cannot be reached", node)
	}
	return r.Answer(ctx, "asker", question)
}

func (w *ward) Replicas(uint32) []string { return []string{"a", "b", "c"} }

func (w *ward) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// newWard has replicas on a, b and c, and none on d.
func newWard(t *testing.T) *ward {
	t.Helper()
	w := &ward{leader: "a", down: make(map[string]bool), names: make(map[string]string), machine: NewMachine(), routers: make(map[string]*Router)}
	h, err := NewHasher(bytes.Repeat([]byte{7}, 32), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"a", "b", "c", "d"} {
		w.routers[n] = NewRouter(Options{Node: n, Hash: h, Peers: w, Place: w})
		if n != "d" {
			w.routers[n].Own(1, NewOwner(wardLog{w, n}, w.machine, 1))
		}
	}
	return w
}

// TestOneAnswerFromAnyNode: whoever binds first decides for all.
func TestOneAnswerFromAnyNode(t *testing.T) {
	w := newWard(t)
	if _, ok, err := w.routers["b"].Read(t.Context(), "llm", "s1"); ok || err != nil {
		t.Fatalf("bound before: %v, %v", ok, err)
	}
	for _, n := range []string{"d", "a", "b", "c"} {
		b, err := w.routers[n].Bind(t.Context(), "llm", "s1", "proposal-of-"+n)
		if err != nil || b != (Binding{"proposal-of-d", 1}) {
			t.Errorf("%s: %+v, %v", n, b, err)
		}
		if b, ok, err := w.routers[n].Read(t.Context(), "llm", "s1"); err != nil || !ok || b.Backend != "proposal-of-d" {
			t.Errorf("%s reads %+v, %v, %v", n, b, ok, err)
		}
	}
}

// TestOneHop: a node that knows the leader asks it alone, and the leader nobody.
func TestOneHop(t *testing.T) {
	w := newWard(t)
	for node, want := range map[string]int{"a": 0, "b": 1, "c": 1} {
		w.set(func() { w.calls = 0 })
		if _, err := w.routers[node].Bind(t.Context(), "llm", "s-"+node, "x"); err != nil {
			t.Fatal(err)
		}
		if w.calls != want {
			t.Errorf("%s asked %d times, want %d", node, w.calls, want)
		}
	}
	w.set(func() { w.leader = "c" })
	for _, want := range []int{2, 1} { // a, who names c; then it is known
		w.set(func() { w.calls = 0 })
		if _, err := w.routers["d"].Bind(t.Context(), "llm", "s-d", "x"); err != nil {
			t.Fatal(err)
		}
		if w.calls != want {
			t.Errorf("d asked %d times, want %d", w.calls, want)
		}
	}
}

// TestAsksOnThroughAnElection, with one replica down and one that names the wrong
// leader.
func TestAsksOnThroughAnElection(t *testing.T) {
	w := newWard(t)
	w.set(func() { w.leader, w.down["a"], w.names["b"] = "", true, "a" })
	done := make(chan error, 1)
	go func() {
		b, err := w.routers["d"].Bind(t.Context(), "llm", "s1", "x")
		if err == nil && b.Backend != "x" {
			err = fmt.Errorf("bound to %+v", b)
		}
		done <- err
	}()
	for w.asked() < 6 { // rounds in vain; the loop is bounded by the test's time
		select {
		case err := <-done:
			t.Fatalf("nobody led, and it ended: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	w.set(func() { w.leader = "c" })
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func (w *ward) asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls
}

func TestNobodyLeads(t *testing.T) {
	w := newWard(t)
	w.set(func() { w.leader = "" })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := w.routers["b"].Bind(ctx, "llm", "s1", "x"); !errors.Is(err, ErrNoLeader) {
		t.Errorf("got %v", err)
	}
	if _, err := w.routers["b"].Bind(t.Context(), "llm", "s1", ""); err == nil || errors.Is(err, ErrNoLeader) {
		t.Errorf("no proposal: %v", err)
	}
}

// TestStrangeQuestions are refused, not answered.
func TestStrangeQuestions(t *testing.T) {
	w := newWard(t)
	for _, b := range [][]byte{nil, []byte("hello"), question{ask: 77, shard: 1}.encode(), question{ask: askRebind, shard: 1}.encode()} {
		if got, err := w.routers["a"].Answer(t.Context(), "x", b); !errors.Is(err, errCode) {
			t.Errorf("%x was answered %x, %v", b, got, err)
		}
	}
	w.routers["a"].Own(1, nil)
	b, err := w.routers["a"].Answer(t.Context(), "x", question{ask: askRead, shard: 1}.encode())
	if a, bad := decodeAnswer(b); err != nil || bad != nil || a.verdict != elsewhere {
		t.Errorf("a node without a replica said %+v, %v, %v", a, err, bad)
	}
}
