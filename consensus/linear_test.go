package consensus

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/starling-lb/starling/shards"
)

// bindCall is one question about a session, and bindAnswer what came back.
type bindCall struct {
	session  string
	proposal string // "": only read
}

type bindAnswer struct {
	shards.Binding
	unknown bool
}

// bindModel is bind-if-absent and read on one machine, per session.
func bindModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
			by := make(map[string][]porcupine.Operation)
			for _, o := range all {
				s := o.Input.(bindCall).session
				by[s] = append(by[s], o)
			}
			var parts [][]porcupine.Operation
			for _, p := range by {
				parts = append(parts, p)
			}
			return parts
		},
		Init: func() any { return shards.Binding{} },
		Step: func(state, input, output any) (bool, any) {
			is, in, out := state.(shards.Binding), input.(bindCall), output.(bindAnswer)
			if is.Epoch == 0 && in.proposal != "" {
				is = shards.Binding{Backend: in.proposal, Epoch: 1}
			}
			return out.unknown || out.Binding == is, is
		},
	}
}

// TestTheModelCanFail holds the checker to histories that must not pass.
func TestTheModelCanFail(t *testing.T) {
	op := func(proposal, got string, from, to int64) porcupine.Operation {
		a := bindAnswer{}
		if got != "" {
			a.Binding = shards.Binding{Backend: got, Epoch: 1}
		}
		return porcupine.Operation{Input: bindCall{"s", proposal}, Output: a, Call: from, Return: to}
	}
	lost := op("c", "", 1, 1<<60)
	lost.Output = bindAnswer{unknown: true}
	for _, c := range []struct {
		name string
		ops  []porcupine.Operation
		want bool
	}{
		{"the first wins", []porcupine.Operation{op("a", "a", 1, 2), op("b", "a", 3, 4), op("", "a", 5, 6)}, true},
		{"two winners", []porcupine.Operation{op("a", "a", 1, 2), op("b", "b", 3, 4)}, false},
		{"a stale read", []porcupine.Operation{op("a", "a", 1, 2), op("", "", 3, 4)}, false},
		{"an unknown one took effect", []porcupine.Operation{lost, op("b", "c", 3, 4)}, true},
		{"or later, or never", []porcupine.Operation{lost, op("", "", 3, 4), op("b", "b", 5, 6)}, true},
	} {
		if got := porcupine.CheckOperations(bindModel(), c.ops); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// table starts a node's replica of a shard as one of bindings.
func (n *node) table(shard uint32, founders []string) {
	n.town.t.Helper()
	m := shards.NewMachine()
	g, err := n.groups.Open(Spec{ID: groupID(shard), Founders: founders, Machine: func() StateMachine { m.Reset(); return m }})
	if err != nil {
		n.town.t.Error(err)
		return
	}
	n.router.Own(shard, shards.NewOwner(g, m, g.ID.Incarnation))
}

// history is what clients saw.
type history struct {
	mu    sync.Mutex
	began time.Time
	ops   []porcupine.Operation
	done  atomic.Int64
}

func (h *history) ask(ctx context.Context, client int, r *shards.Router, c bindCall) {
	var a bindAnswer
	var err error
	from := time.Since(h.began)
	if c.proposal != "" {
		a.Binding, err = r.Bind(ctx, "llm", c.session, c.proposal)
	} else {
		a.Binding, _, err = r.Read(ctx, "llm", c.session)
	}
	to := time.Since(h.began)
	if err != nil {
		if c.proposal == "" {
			return // it saw nothing and did nothing
		}
		a, to = bindAnswer{unknown: true}, time.Duration(1<<62) // it may happen at any time
	} else {
		h.done.Add(1)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: c, Call: int64(from), Output: a, Return: int64(to)})
}

// client asks about the few sessions of the moment until ctx ends.
func (h *history) client(ctx context.Context, me int, r *rand.Rand, router *atomic.Pointer[shards.Router]) {
	for i := 0; ctx.Err() == nil; i++ {
		session := int(time.Since(h.began)/(100*time.Millisecond)) + r.IntN(3)
		c := bindCall{session: fmt.Sprint(session)}
		if r.IntN(2) == 0 {
			c.proposal = fmt.Sprintf("b%d.%d", me, i)
		}
		short, end := context.WithTimeout(context.Background(), 300*time.Millisecond)
		h.ask(short, me, router.Load(), c)
		end()
		select {
		case <-time.After(time.Duration(r.IntN(10)) * time.Millisecond): // a pace that the checker can follow
		case <-ctx.Done():
		}
	}
}

// TestBindIsLinearizable asks every node about few sessions at a time, while nodes
// are cut off, killed, stopped and have their disks stall, and reads everything
// once more at the end: what was acknowledged must be there.
func TestBindIsLinearizable(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := newTown(t, 3, withTimes(func(name string) Timing {
		c := quick()
		if name == "a" { // holds on to its office for seconds after the others have elected another
			c.Heartbeat, c.Lease = 3*time.Second, 3*time.Second
		}
		return c
	}))
	for _, name := range three() {
		for shard := range uint32(2) {
			w.nodes[name].table(shard+1, three())
		}
	}
	h := &history{began: time.Now()}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	const clients = 9
	var all sync.WaitGroup
	routers := make([]atomic.Pointer[shards.Router], 3)
	for i, name := range three() {
		routers[i].Store(w.nodes[name].router)
	}
	for client := range clients {
		all.Go(func() { h.client(ctx, client, rand.New(rand.NewPCG(seed, uint64(client))), &routers[client%3]) })
	}
	nemesis(ctx, w, rand.New(rand.NewPCG(seed, 99)), routers)
	all.Wait()
	w.net.heal()
	last := len(h.ops)
	for s := range int(8*time.Second/(100*time.Millisecond)) + 3 {
		long, end := context.WithTimeout(context.Background(), patience)
		h.ask(long, clients, routers[s%3].Load(), bindCall{session: fmt.Sprint(s)})
		end()
	}
	t.Logf("%d questions, %d answered", last, h.done.Load())
	if got := porcupine.CheckOperationsTimeout(bindModel(), h.ops, patience); got != porcupine.Ok {
		t.Errorf("seed %d: the history is %v", seed, got)
	}
	if h.done.Load() < 200 {
		t.Error("too few answers to judge by")
	}
}

// nemesis does one bad thing after the other until ctx ends, and undoes it.
func nemesis(ctx context.Context, w *town, r *rand.Rand, routers []atomic.Pointer[shards.Router]) {
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		i := r.IntN(3)
		name := three()[i]
		n := w.nodes[name]
		rest := others(name)
		span := time.Duration(300+r.IntN(900)) * time.Millisecond
		switch r.IntN(5) {
		case 0: // made leader, and cut off
			for shard := range uint32(2) {
				for _, o := range rest {
					now := w.nodes[o].groups
					_ = now.Transfer(ctx, now.Group(shard+1), name) // most often it is not the leader
				}
			}
			fallthrough
		case 1: // cut off
			w.net.part([]string{name}, rest)
			pause(span)
			w.net.heal()
		case 2: // killed, and back on what its disk kept
			n.kill()
			pause(span / 2)
			n.up()
			for shard := range uint32(2) {
				n.table(shard+1, nil)
			}
			routers[i].Store(n.router)
		case 3: // stopped: what is under way arrives when it goes on
			var release []func()
			for _, o := range rest {
				release = append(release, w.net.hold(road{name, o}), w.net.hold(road{o, name}))
			}
			pause(span)
			for _, f := range release {
				f()
			}
		case 4: // its disk stalls
			release := n.logs(uint32(1 + r.IntN(2))).stall()
			pause(span)
			release()
		}
		pause(200 * time.Millisecond)
	}
}
