package shards

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// crowd is sessions that have a turn four fifths of the time, and what their nodes
// see of it.
type crowd struct {
	mu        sync.Mutex // guards what follows
	running   map[string]int
	where     map[string]string // by session
	requests  uint64
	elsewhere float64 // requests a second of nodes that do not lead
	failed    []string
	config    backend.RebalanceConfig
}

func (c *crowd) Plan(pool string) (backend.RebalanceConfig, View, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := View{Knee: 1, Requests: c.requests, Elsewhere: c.elsewhere}
	for _, id := range []string{"llm-b1", "llm-b2"} {
		v.Backends = append(v.Backends, Load{ID: id, Streams: float64(c.running[id]), Speed: 1, Takes: true})
	}
	return c.config, v, pool == "llm"
}

func (c *crowd) Names() []string { return []string{"llm"} }

// talk is one session's life.
func (c *crowd) talk(ctx context.Context, w *world, i, proposal int) {
	session := fmt.Sprint("s", i)
	for n := i; ctx.Err() == nil; n++ {
		t, err := w.turn(w.names[n%len(w.names)], "llm", session, proposal)
		if err == nil {
			err = t.Look()
		}
		for err == ErrAgain { // a move came between
			t.End()
			if t, err = w.turn(w.names[n%len(w.names)], "llm", session, proposal); err == nil {
				err = t.Look()
			}
		}
		if err != nil {
			c.set(func() { c.failed = append(c.failed, fmt.Sprintf("%s: %v", session, err)) })
			return
		}
		at := t.Home().Backend
		c.set(func() {
			c.requests++
			c.running[at]++
			c.where[session] = at
		})
		w.wait(800 * time.Millisecond)
		c.set(func() { c.running[at]-- })
		t.End()
		w.wait(200 * time.Millisecond)
	}
}

func (c *crowd) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// sessions is how many are at a backend.
func (c *crowd) sessions(id string) (n int) {
	c.set(func() {
		for _, at := range c.where {
			if at == id {
				n++
			}
		}
	})
	return n
}

// TestSessionsAreRebalanced, the case on five nodes: of ten sessions on one
// backend and two on another some move, between turns; all go on; and a spike of
// requests stops it, by the leader's node and then by others.
func TestSessionsAreRebalanced(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c := &crowd{running: make(map[string]int), where: make(map[string]string), config: backend.DefaultRebalance()}
		c.config.MinResidence = 0
		w := newWorld(t, 1, five(), func(w *world) { w.pools = c })
		ctx, end := context.WithCancel(t.Context())
		var talks sync.WaitGroup
		defer talks.Wait()
		defer end()
		for i := range 12 {
			talks.Go(func() { c.talk(ctx, w, i, 1+i/10) })
		}
		w.wait(time.Second)
		if a, b := c.sessions("llm-b1"), c.sessions("llm-b2"); a != 10 || b != 2 {
			t.Errorf("at first %d and %d sessions", a, b)
		}
		c.set(func() { c.config.Enabled = false })
		w.wait(time.Minute) // what is usual
		c.set(func() { c.config.Enabled = true })
		before := c.sessions("llm-b1")
		for i := range 10 {
			c.set(func() {
				if c.elsewhere = 1000; i < 5 {
					c.elsewhere, c.requests = 0, c.requests+5000
				}
			})
			w.wait(5 * time.Second)
		}
		c.set(func() { c.elsewhere = 0 })
		if now := c.sessions("llm-b1"); now != before {
			t.Errorf("in a spike sessions moved: %d, then %d", before, now)
		}
		if d := w.node("a").router.Rebalanced()["llm"]; d.Last.Reason != RestSpike || d.Counts[RestOff] < 10 {
			t.Errorf("in a spike the leader tells %+v", d)
		}
		w.until("the backends are even enough", func() bool {
			w.wait(5 * time.Second)
			return c.sessions("llm-b1") <= 8
		})
		w.wait(time.Minute)
		a, b := c.sessions("llm-b1"), c.sessions("llm-b2")
		if a+b != 12 || a < 5 || b < 4 || len(c.failed) > 0 {
			t.Errorf("then %d and %d sessions; failed: %q", a, b, c.failed)
		}
		told := w.node("a").router.Rebalanced()["llm"]
		if told.Counts[MovedSome] == 0 || told.Counts[RestSpike] < 10 || told.Shard != 1 {
			t.Errorf("the leader tells %+v", told)
		}
		if other := w.node("b").router.Rebalanced()["llm"]; other.Last.Reason != "" || len(other.Counts) != len(Reasons()) {
			t.Errorf("who does not lead plans: %+v", other)
		}
	})
}

// TestPlansEndWithTheLead: another leader begins anew, with what it is told then.
func TestPlansEndWithTheLead(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c := &crowd{running: map[string]int{"llm-b1": 10}, where: make(map[string]string), config: backend.DefaultRebalance()}
		w := newWorld(t, 1, five(), func(w *world) { w.pools = c })
		w.at("b", "llm", "s", 1)
		w.until("the leader plans", func() bool { return w.node("a").router.Rebalanced()["llm"].Counts[RestOnce] > 0 })
		w.lead("b")
		w.at("c", "llm", "t", 1)
		w.until("the next one does", func() bool { return w.node("b").router.Rebalanced()["llm"].Counts[RestOnce] > 0 })
		w.wait(lease)
		was := w.node("a").router.Rebalanced()["llm"]
		w.wait(time.Minute)
		if now := w.node("a").router.Rebalanced()["llm"]; now.At != was.At {
			t.Errorf("who leads no more goes on planning: %+v", now)
		}
	})
}

// TestAPlanOutlastsADoubt: where no node renews a lease, a leader is proven now and then
// only. In between it rests, and what it knows of the sessions it moved lasts.
func TestAPlanOutlastsADoubt(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c := &crowd{running: map[string]int{"llm-b1": 10}, config: backend.DefaultRebalance()}
		w := newWorld(t, 1, five(), func(w *world) { w.pools = c })
		r := w.node("a").router
		w.at("b", "llm", "s", 1)
		w.set(func() { w.filter = func(_, _ string, q question) bool { return q.ask != askRenew } })
		w.wait(2 * lease)
		looks := func() (n int64) {
			for _, count := range r.Rebalanced()["llm"].Counts {
				n += count
			}
			return n
		}
		was := looks()
		w.wait(time.Minute)
		if n := looks() - was; n < 10 {
			t.Errorf("it looked %d times in a minute, want one each %v", n, c.config.Interval)
		}
	})
}

// TestSessionsOfOneTurn: the leader tells those that had one turn from those that have
// more, by what the nodes report; who was there before it leads is none of them.
func TestSessionsOfOneTurn(t *testing.T) {
	virtually(t, func(t *testing.T) {
		w := newWorld(t, 1, five())
		talks := func() {
			for i := range 20 {
				w.at(w.names[i%5], "llm", "talks", 1)
				w.wait(10 * time.Second)
			}
		}
		for i := range 30 {
			w.at(w.names[i%5], "llm", fmt.Sprint("once", i), 1)
		}
		talks()
		fresh := func(leader string) (n int) {
			for _, c := range w.node(leader).router.desk.owner(1).sessions("llm-b1") {
				if c.New {
					n++
				}
				if talker := c.Session == w.key("llm", "talks"); talker && (c.New || c.Idle > reportMost+15*time.Second) || !talker && c.Idle < 2*reportsFor(w.Pool("llm").TTL) {
					t.Errorf("with %s: %+v", leader, c)
				}
			}
			return n
		}
		if n := fresh("a"); n != 30 {
			t.Errorf("%d are new, want 30", n)
		}
		w.lead("b")
		talks()
		if n := fresh("b"); n != 0 {
			t.Errorf("with another leader %d are new", n)
		}
	})
}

// TestALookIsNoTurn: whoever asks where a session lives, or has it moved, does not use it.
func TestALookIsNoTurn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.at("d", "llm", "s", 1)
		w.graced()
		if !w.shift("e", "s", "llm-b2", time.Second) {
			t.Fatal("it does not move")
		}
		for range 3 {
			if v, err := w.node("e").router.Session(t.Context(), "llm", []byte("s")); err != nil || v.Binding.Epoch != 2 {
				t.Fatalf("%+v, %v", v, err)
			}
		}
		if all := w.node("a").router.desk.owner(1).sessions("llm-b2"); len(all) != 1 || !all[0].New || all[0].Idle < lease+margin {
			t.Errorf("%+v", all)
		}
		w.at("e", "llm", "s", 1)
		if all := w.node("a").router.desk.owner(1).sessions("llm-b2"); len(all) != 1 || all[0].Idle > lease {
			t.Errorf("after a turn: %+v", all)
		}
	})
}

// TestAMoveIsNoTurn: who had one turn and was moved had one turn, as long ago as before:
// nodes that hear of the move tell the leader of no use.
func TestAMoveIsNoTurn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const once, ttl = 10, 40 * time.Second
		w.set(func() {
			w.rules["llm"] = Rule{TTL: ttl, Drain: time.Minute, Wait: 250 * time.Millisecond, Strict: true}
		})
		for i := range once {
			w.at(w.names[i%5], "llm", fmt.Sprint("once", i), 1)
		}
		w.wait(3 * reportsFor(ttl) / 2)
		w.drain("llm-b1", true)
		w.wait(3 * reportsFor(ttl) / 2)
		n := 0
		for _, backend := range []string{"llm-b2", "llm-b3", "llm-b4"} {
			for _, c := range w.node("a").router.desk.owner(1).sessions(backend) {
				if n++; !c.New || c.Idle < 3*reportsFor(ttl)/2 {
					t.Errorf("on %s: %+v", backend, c)
				}
			}
		}
		if n != once {
			t.Errorf("%d sessions of %d were moved", n, once)
		}
	})
}
