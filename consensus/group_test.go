package consensus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

func three() []string { return []string{"a", "b", "c"} }

// agree waits until all nodes have the same diary, and returns it.
func (w *town) agree(shard uint32, on ...string) (all []string) {
	w.t.Helper()
	w.eventually(func() string {
		all = w.nodes[on[0]].diary(shard).all()
		for _, name := range on[1:] {
			if got := w.nodes[name].diary(shard).all(); !slices.Equal(all, got) {
				return fmt.Sprintf("%s has %d lines, %s has %d", on[0], len(all), name, len(got))
			}
		}
		return ""
	})
	return all
}

// TestProposals from many callers are applied once each, everywhere in the same
// order, and each caller gets its own result.
func TestProposals(t *testing.T) {
	w := newTown(t, 3)
	w.open(1, three(), three()...)
	led := w.leader(1)
	g := led.groups.Group(1)
	var all sync.WaitGroup
	var mu sync.Mutex
	places := make(map[int]string)
	for i := range 32 {
		all.Go(func() {
			for j := range 20 {
				line := fmt.Sprintf("%d.%d", i, j)
				r, err := g.Propose(t.Context(), []byte(line))
				if err != nil {
					t.Errorf("%s: %v", line, err)
					return
				}
				mu.Lock()
				places[r.(int)] = line
				mu.Unlock()
			}
		})
	}
	all.Wait()
	lines := w.agree(1, three()...)
	if len(lines) != 640 || len(places) != 640 {
		t.Fatalf("%d lines and %d results, want 640", len(lines), len(places))
	}
	for i, line := range lines {
		if places[i] != line {
			t.Errorf("line %d is %s, its caller was told of %s", i, line, places[i])
		}
	}
	if last := g.current().raft.LastIndex(); last > 400 {
		t.Errorf("%d entries for 640 commands of 32 callers: they are not batched", last)
	}
}

// TestSpread: followers hear of a commit by the entry after it, and an idle leader has
// none to send for as long as Timing says.
func TestSpread(t *testing.T) {
	for _, spread := range []bool{true, false} {
		t.Run(fmt.Sprint(spread), func(t *testing.T) {
			w := newTown(t, 3, withTimes(func(string) Timing { q := quick(); q.Commit = time.Hour; return q }))
			w.open(1, three(), three()...)
			if !spread {
				w.unspread()
				return
			}
			led := w.leader(1)
			g := led.groups.Group(1)
			if _, err := g.Propose(t.Context(), []byte("x")); err != nil {
				t.Fatal(err)
			}
			before := g.current().raft.LastIndex()
			for range 10 {
				g.Spread()
			}
			if all := w.agree(1, three()...); !slices.Equal(all, []string{"x"}) {
				t.Errorf("it is applied as %q", all)
			}
			if more := g.current().raft.LastIndex() - before; more == 0 || more > 10 {
				t.Errorf("it took %d entries", more)
			}
		})
	}
}

// unspread checks that without Spread a follower lacks a commit for some heartbeats. An
// election tells of it, too: then another is looked at.
func (w *town) unspread() {
	w.t.Helper()
	for i := range 10 {
		led, line := w.leader(1), fmt.Sprint("x", i)
		g := led.groups.Group(1)
		term := g.State().Term
		_, err := g.Propose(w.t.Context(), []byte(line))
		lacks := func(n string) bool { return !slices.Contains(w.nodes[n].diary(1).all(), line) }
		lack := err == nil && stays(2*quick().Heartbeat, func() bool { return slices.ContainsFunc(others(led.name), lacks) })
		if now := g.State(); now.Term != term || !now.Led {
			continue
		}
		if !lack {
			w.t.Errorf("%v; or all followers heard of the commit by themselves: is Spread still needed?", err)
		}
		return
	}
	w.t.Error("leadership changed in each of ten tries")
}

// TestAFailedSpreadIsNobodys: a command that waits behind an entry that only tells is
// refused for what becomes of itself. It was never sent, and may be tried elsewhere.
func TestAFailedSpreadIsNobodys(t *testing.T) {
	w := newTown(t, 3, withTimes(func(string) Timing {
		q := quick()
		q.Heartbeat, q.Lease, q.Commit = time.Second, time.Second, time.Hour
		return q
	}))
	w.open(1, three(), three()...)
	led := w.leader(1)
	g := led.groups.Group(1)
	before := g.current().raft.LastIndex()
	w.net.part([]string{led.name}, others(led.name))
	g.Spread()
	w.eventually(func() string {
		if g.current().raft.LastIndex() == before && g.State().Led {
			return "the entry is not on its way"
		}
		return ""
	})
	if _, err := g.Propose(t.Context(), []byte("x")); !errors.As(err, new(*NotLeaderError)) || errors.Is(err, ErrUnknown) {
		t.Errorf("what was never sent: %v", err)
	}
}

func TestFollowersNameTheLeader(t *testing.T) {
	w := newTown(t, 3)
	w.open(1, three(), three()...)
	led := w.leader(1)
	for _, name := range three() {
		if name == led.name {
			continue
		}
		w.eventually(func() string {
			_, err := w.nodes[name].groups.Group(1).Propose(t.Context(), []byte("x"))
			if e := (*NotLeaderError)(nil); !errors.As(err, &e) || e.Leader != led.name {
				return fmt.Sprintf("%s said %v", name, err)
			}
			return ""
		})
		if _, err := w.nodes[name].groups.Group(1).Proven(t.Context()); !errors.As(err, new(*NotLeaderError)) {
			t.Errorf("%s is proven: %v", name, err)
		}
	}
}

// TestEndsOfAProposal: which errors mean that nothing was done.
func TestEndsOfAProposal(t *testing.T) {
	w := newTown(t, 3)
	w.open(1, three(), three()...)
	led := w.leader(1)
	g := led.groups.Group(1)
	if _, err := g.Propose(t.Context(), make([]byte, maxCommand+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	var others []string
	for _, n := range three() {
		if n != led.name {
			others = append(others, n)
		}
	}
	w.net.part([]string{led.name}, others)
	sent := make(chan error, 1)
	go func() {
		_, err := g.Propose(t.Context(), []byte("lost"))
		sent <- err
	}()
	eventually(t, func() string { // it is in the log, and the next one waits behind it
		if led.logs(1).has("lost") {
			return ""
		}
		return "not sent yet"
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Propose(ctx, []byte("withdrawn")); err == nil || errors.Is(err, ErrUnknown) {
		t.Errorf("withdrawn: %v", err)
	}
	if err := <-sent; !errors.Is(err, ErrUnknown) {
		t.Errorf("sent and not committed: %v", err)
	}
	w.propose(1, "after", others...)
	w.net.heal()
	if lines := w.agree(1, three()...); slices.Contains(lines, "withdrawn") || !slices.Contains(lines, "after") {
		t.Errorf("the diary is %v", lines)
	}
}

func (m *memLogs) has(part string) bool {
	last, _ := m.LastIndex()
	for i := uint64(1); i <= last; i++ {
		var l raftLog
		if m.GetLog(i, &l) == nil && containsBytes(l.Data, part) {
			return true
		}
	}
	return false
}

// TestUnknownEntryHaltsTheReplica and nothing else. Here it takes the quorum
// along, since none of them understands it.
func TestUnknownEntryHaltsTheReplica(t *testing.T) {
	w := newTown(t, 3)
	w.open(1, three(), three()...)
	w.open(2, three(), three()...)
	w.propose(1, "good")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := w.leader(1).groups.Group(1).Propose(ctx, []byte("poison")); err == nil {
		t.Error("nobody understood it, and it was done")
	}
	w.eventually(func() string {
		halted := 0
		for _, name := range three() {
			if w.nodes[name].groups.Group(1).State().Fault != nil {
				halted++
			}
		}
		if halted < 2 { // the third may not have heard that it is committed
			return fmt.Sprintf("%d replicas halted", halted)
		}
		return ""
	})
	for _, name := range three() {
		if _, err := w.nodes[name].groups.Group(1).Propose(t.Context(), []byte("x")); err == nil || errors.Is(err, ErrUnknown) {
			t.Errorf("%s said %v", name, err)
		}
	}
	w.propose(2, "the other shard goes on")
}

// TestRestart brings nodes back on what they kept, snapshots included.
func TestRestart(t *testing.T) {
	w := newTown(t, 0)
	for _, name := range three() {
		w.add(name)
		w.nodes[name].kill()
		w.nodes[name].dir = t.TempDir()
		w.nodes[name].up()
	}
	w.open(1, three(), three()...)
	for i := range 10 {
		w.propose(1, fmt.Sprint(i))
	}
	want := w.agree(1, three()...)
	if err := w.nodes["a"].groups.Group(1).current().raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	for _, name := range three() {
		w.nodes[name].kill()
	}
	for _, name := range three() {
		w.nodes[name].up() // on new ports
		w.nodes[name].open(1, nil)
	}
	w.propose(1, "after")
	if got := w.agree(1, three()...); !slices.Equal(got, append(want, "after")) {
		t.Errorf("the diary was %v and is %v", want, got)
	}
}

// TestGrow from one voter to three, one step at a time, and back.
func TestGrow(t *testing.T) {
	w := newTown(t, 3)
	w.open(1, []string{"a"}, "a")
	w.propose(1, "alone")
	g := w.leader(1).groups.Group(1)
	for _, name := range []string{"b", "c"} {
		w.nodes[name].open(1, nil)
		for _, step := range []Step{AddNonvoter, AddVoter} {
			if err := g.Change(t.Context(), step, name, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.propose(1, "three of us")
	w.agree(1, three()...)
	st := g.Status()
	if len(st.Replicas) != 3 || st.Config == 0 {
		t.Fatalf("status %+v", st)
	}
	if err := g.Change(t.Context(), Remove, "b", st.Config-1); err == nil {
		t.Error("a step on an older configuration was taken")
	}
	if err := g.Change(t.Context(), Remove, "b", st.Config); err != nil {
		t.Error(err)
	}
	w.eventually(func() string {
		if st := g.Status(); len(st.Replicas) != 2 {
			return fmt.Sprintf("status %+v", st)
		}
		return ""
	})
}

// TestTransfer goes to who has everything and answers, and to nobody else.
func TestTransfer(t *testing.T) {
	w := newTown(t, 4)
	w.open(1, three(), three()...)
	led := w.leader(1)
	g := led.groups.Group(1)
	w.propose(1, "x")
	if err := g.Change(t.Context(), AddNonvoter, "d", 0); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"d", "nobody"} {
		if err := led.groups.Transfer(t.Context(), g, to); !errors.Is(err, ErrTransfer) {
			t.Errorf("to %s: %v", to, err)
		}
	}
	to := "a"
	if led.name == "a" {
		to = "b"
	}
	w.eventually(func() string { return text(g.fit(g.current(), to)) })
	led.groups.transferring <- struct{}{} // as another group's, under way
	soon, over := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer over()
	if err := led.groups.Transfer(soon, g, to); !errors.Is(err, context.DeadlineExceeded) || w.leader(1) != led {
		t.Errorf("two transfers at a time: %v", err)
	}
	<-led.groups.transferring
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := led.groups.Transfer(ctx, g, to); err != nil {
		t.Fatal(err)
	}
	if now := w.leader(1); now.name != to {
		t.Errorf("%s leads, not %s", now.name, to)
	}
	if err := led.groups.Transfer(ctx, g, to); !errors.As(err, new(*NotLeaderError)) {
		t.Errorf("a follower transferred: %v", err)
	}
}

// TestDelete leaves nothing to come back from.
func TestDelete(t *testing.T) {
	w := newTown(t, 1)
	n := w.nodes["a"]
	g := n.open(1, []string{"a"})
	w.propose(1, "x")
	if err := n.groups.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if n.logs(1) != nil || n.groups.Group(1) != nil {
		t.Error("something is left")
	}
	n.open(1, nil)
	if !stays(2*quick().Heartbeat, func() bool { return !n.groups.Group(1).State().Led }) {
		t.Error("an empty replica founded the group again")
	}
}

// TestChangesAreTold to who may take its time.
func TestChangesAreTold(t *testing.T) {
	w := newTown(t, 1)
	n := w.nodes["a"]
	heard := make(chan State, 64)
	g, err := n.groups.Open(Spec{ID: groupID(1), Founders: []string{"a"}, Machine: func() StateMachine { return &diary{} }, Changed: func(s State) { heard <- s }})
	if err != nil {
		t.Fatal(err)
	}
	late := time.After(patience)
	for s := (State{}); !s.Open; {
		select {
		case s = <-heard:
		case <-late:
			t.Fatalf("last heard %+v, it is %+v", s, g.State())
		}
	}
}

// TestProvenByAMajority: at once while there is one, never without.
func TestProvenByAMajority(t *testing.T) {
	w := newTown(t, 3)
	w.open(1, three(), three()...)
	led := w.leader(1)
	g := led.groups.Group(1)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 20 {
				if _, err := g.Proven(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	others := slices.DeleteFunc(three(), func(n string) bool { return n == led.name })
	w.net.part([]string{led.name}, others)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if term, err := g.Proven(ctx); err == nil {
		t.Errorf("proven alone, in term %d", term)
	}
}
