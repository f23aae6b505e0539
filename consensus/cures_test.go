package consensus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/starling-lb/starling/consensus/store"
)

// The tests of this file are about what Raft does not get out of by itself. Each
// shows the harm with the cure switched off, and that the cure helps.

func others(name string) []string {
	return slices.DeleteFunc(three(), func(n string) bool { return n == name })
}

// hammer writes entries of its own past the batcher, so that many are in flight,
// until the function that it returns is called.
func hammer(g *Group) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_ = g.current().outcome(g.current().raft.Apply(encodeEntry([][]byte{fmt.Append(nil, i)}), time.Second))
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// upset lets a follower's disk fail for a moment while entries come, and returns
// the follower and the leader.
func upset(w *town) (led, follower *node) {
	led = w.leader(1)
	follower = w.nodes[others(led.name)[0]]
	stop := hammer(led.groups.Group(1))
	defer stop()
	before := len(follower.diary(1).all())
	w.eventually(func() string {
		if len(follower.diary(1).all()) < before+50 {
			return "no entries come"
		}
		return ""
	})
	follower.logs(1).failing.Store(true)
	stays(200*time.Millisecond, func() bool { return true })
	follower.logs(1).failing.Store(false)
	stays(100*time.Millisecond, func() bool { return true })
	return led, follower
}

func sameLength(a, b *node) bool { return len(a.diary(1).all()) == len(b.diary(1).all()) }

// TestWedge: a write error of a follower while entries are pipelined leaves it
// behind for ever, with fresh heartbeats. Without pipelining it catches up; with
// it, the watchdog has the follower start anew.
func TestWedge(t *testing.T) {
	t.Parallel()
	t.Run("no pipeline", func(t *testing.T) {
		w := newTown(t, 3, withTune(func(g *Group) { g.noCures.behind.Store(true) }))
		w.open(1, three(), three()...)
		led, follower := upset(w)
		w.eventually(func() string {
			if !sameLength(led, follower) {
				return "the follower does not catch up"
			}
			return ""
		})
	})
	t.Run("pipeline, then the watchdog", func(t *testing.T) {
		w := newTown(t, 3, withTune(func(g *Group) {
			g.inFlight = 32
			g.noCures.behind.Store(true)
		}))
		w.open(1, three(), three()...)
		for try := range 40 { // on a busy machine few entries are under way, and most get away
			led, follower := upset(w)
			if !stays(2*time.Second, func() bool { return led.groups.Group(1).State().Led && !sameLength(led, follower) }) {
				continue // it got away
			}
			t.Logf("wedged at try %d: %d lines of %d", try, len(follower.diary(1).all()), len(led.diary(1).all()))
			led.groups.Group(1).noCures.behind.Store(false)
			w.eventually(func() string {
				if !sameLength(w.leader(1), follower) {
					return "the watchdog does not help"
				}
				return ""
			})
			return
		}
		t.Error("forty write errors did not wedge a pipelined follower: is the cure still needed?")
	})
}

// TestStalledDisk: a leader whose disk hangs goes on with its heartbeats, and
// nothing is ever written. The fence silences it.
func TestStalledDisk(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{true, false} {
		t.Run(fmt.Sprint("fenced ", fenced), func(t *testing.T) {
			w := newTown(t, 3, withTune(func(g *Group) { g.noCures.fence.Store(!fenced) }), withTimes(func(string) Timing {
				if fenced {
					return DefaultTiming()
				}
				return quick()
			}))
			w.open(1, three(), three()...)
			led := w.leader(1)
			release := led.logs(1).stall()
			defer release()
			began := time.Now()
			var lost sync.WaitGroup
			defer lost.Wait()
			defer release()
			lost.Go(func() { _, _ = led.groups.Group(1).Propose(t.Context(), []byte("stuck")) })
			led2 := func() bool {
				return slices.ContainsFunc(others(led.name), func(n string) bool { return w.nodes[n].groups.Group(1).State().Led })
			}
			if !fenced {
				if !stays(6*quick().Heartbeat, func() bool { return !led2() }) {
					t.Error("another took over without the fence: is it still needed?")
				}
				return
			}
			w.propose(1, "first", others(led.name)...)
			took := time.Since(began)
			t.Logf("first write %v after the stall began", took.Round(time.Millisecond))
			if took > 12*time.Second { // 4 s on a machine of its own
				t.Error("that is too long")
			}
			release()
			w.eventually(func() string {
				if got := w.nodes[led.name].diary(1).all(); !slices.Contains(got, "first") {
					return fmt.Sprintf("the old leader has %v", got)
				}
				return ""
			})
		})
	}
}

// jam loses and wins an office during a transfer to a follower that hangs, until
// Raft never leaves that transfer.
func jam(t *testing.T, w *town) (g *Group) {
	for try := range 100 { // one in six jams
		led := w.leader(1)
		g = led.groups.Group(1)
		to, third := others(led.name)[0], others(led.name)[1]
		l := g.current()
		release := w.net.hold(road{led.name, to})
		w.propose(1, "it lacks this", led.name)
		for range 2 { // the first leaves its question unheard, the second waits behind it
			// No error: its office was lost meanwhile, as on a slow machine; such a try jams nothing.
			_ = l.raft.LeadershipTransferToServer(raft.ServerID(to), raft.ServerAddress(to)).Error()
		}
		go func() { _ = l.raft.LeadershipTransferToServer(raft.ServerID(to), raft.ServerAddress(to)).Error() }()
		w.net.part([]string{led.name}, []string{third})
		w.eventually(func() string {
			if l.raft.State() == raft.Leader {
				return "it still leads"
			}
			return ""
		})
		release()
		w.net.heal()
		w.eventually(func() string {
			if l.raft.State() == raft.Leader { // a jammed leader is not open
				return ""
			}
			for _, n := range others(led.name) {
				_ = w.nodes[n].groups.Transfer(t.Context(), w.nodes[n].groups.Group(1), led.name)
			}
			return "it does not get its office back"
		})
		if stays(4*quick().Heartbeat, func() bool {
			return errors.Is(l.raft.Apply(encodeEntry(nil), time.Second).Error(), raft.ErrLeadershipTransferInProgress)
		}) {
			t.Logf("jammed at try %d", try)
			return g
		}
	}
	t.Fatal("a hundred transfers did not jam: is the cure still needed?")
	return nil
}

// TestTransferJam: commands are refused for ever, until the watchdog comes.
func TestTransferJam(t *testing.T) {
	t.Parallel()
	w := newTown(t, 3, withTune(func(g *Group) { g.noCures.jam.Store(true) }))
	w.open(1, three(), three()...)
	g := jam(t, w)
	if _, err := g.Propose(t.Context(), []byte("x")); err == nil {
		t.Fatal("it was not jammed")
	}
	g.noCures.jam.Store(false)
	w.propose(1, "after")
}

// off tells whether this process is the one that must end for want of a cure.
func off(t *testing.T, cure string) bool {
	return os.Getenv("CONSENSUS_TEST_OFF") == cure
}

// dies runs a test of this file in a process of its own with a cure off.
func dies(t *testing.T, test, cure, last string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+test+"$", "-test.timeout=30s")
	cmd.Env = append(os.Environ(), "CONSENSUS_TEST_OFF="+cure)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: "+last) {
		t.Errorf("want a process that ends with panic: %s\ngot %v\n%s", last, err, out)
	}
}

// TestVoteNotSaved: the replica parks, the others elect, the process goes on, and
// the replica comes back with its disk.
func TestVoteNotSaved(t *testing.T) {
	t.Parallel()
	w := newTown(t, 3, withTune(func(g *Group) { g.noCures.guard.Store(off(t, "guard")) }))
	w.open(1, three(), three()...)
	led := w.leader(1)
	bad := w.nodes[others(led.name)[0]]
	bad.logs(1).saves.Store(true)
	if err := led.groups.Transfer(t.Context(), led.groups.Group(1), others(led.name)[1]); err != nil {
		t.Log(err) // the fit follower may not be known yet; a term is begun anyway
		_ = led.groups.Group(1).current().raft.LeadershipTransferToServer(raft.ServerID(bad.name), raft.ServerAddress(bad.name)).Error()
	}
	w.eventually(func() string {
		if s := bad.groups.Group(1).State(); s.Fault == nil {
			return fmt.Sprintf("it goes on: %+v", s)
		}
		return ""
	})
	w.propose(1, "without it", others(bad.name)...)
	bad.logs(1).saves.Store(false)
	w.agree(1, three()...)
}

func TestVoteNotSavedWithoutGuard(t *testing.T) {
	dies(t, "TestVoteNotSaved", "guard", "failed to save current term")
}

// TestBirthOnAStalledDisk: a disk that does not answer holds neither who opens a
// replica nor who stops it; and a founding that stops half way is finished.
func TestBirthOnAStalledDisk(t *testing.T) {
	w := newTown(t, 1, withTune(func(g *Group) { g.birth = 50 * time.Millisecond }))
	n := w.nodes["a"]
	if _, err := n.store.Open(store.Key{Shard: 1, Incarnation: 1}); err != nil {
		t.Fatal(err)
	}
	release := n.logs(1).stall()
	t.Cleanup(release)
	spec := Spec{ID: groupID(1), Founders: []string{"a"}, Machine: func() StateMachine { return &diary{} }}
	if _, err := n.groups.Open(spec); err == nil || !strings.Contains(err.Error(), "has not answered") {
		t.Fatalf("open on a disk that hangs: %v", err)
	}
	release()
	w.eventually(func() string {
		if _, err := n.groups.Open(spec); err != nil {
			return err.Error()
		}
		return ""
	})
	w.leader(1)
}

// TestHole: a replica with an entry missing does not start, and comes when it is
// mended.
func TestHole(t *testing.T) {
	w := newTown(t, 3, withTune(func(g *Group) { g.noCures.guard.Store(off(t, "guard")) }))
	w.open(1, three(), three()...)
	for i := range 5 {
		w.propose(1, fmt.Sprint(i))
	}
	w.agree(1, three()...)
	bad := w.nodes[others(w.leader(1).name)[0]]
	bad.kill()
	bad.up()
	bad.logs(1).missing.Store(3)
	if g, err := bad.groups.Open(Spec{ID: groupID(1), Machine: func() StateMachine { return &diary{} }}); err == nil {
		t.Fatalf("it started: %+v", g.State())
	}
	bad.logs(1).missing.Store(0)
	bad.open(1, nil)
	w.agree(1, three()...)
}

func TestHoleWithoutGuard(t *testing.T) {
	dies(t, "TestHole", "guard", "log not found")
}

// TestHoleWhileRunning: an entry vanishes before it is applied.
func TestHoleWhileRunning(t *testing.T) {
	t.Parallel()
	w := newTown(t, 3, withTune(func(g *Group) { g.noCures.guard.Store(off(t, "guard")) }))
	w.open(1, three(), three()...)
	led := w.leader(1)
	bad := w.nodes[others(led.name)[0]]
	w.propose(1, "x")
	w.agree(1, three()...)
	last, _ := bad.logs(1).LastIndex()
	bad.logs(1).missing.Store(last + 1)
	w.propose(1, strings.Repeat("vanishes", tailMost/4)) // a small one would be in memory
	w.eventually(func() string {
		if s := bad.groups.Group(1).State(); s.Fault == nil {
			return fmt.Sprintf("it goes on: %+v", s)
		}
		return ""
	})
	bad.logs(1).missing.Store(0)
	w.agree(1, three()...)
}

func TestHoleWhileRunningWithoutGuard(t *testing.T) {
	dies(t, "TestHoleWhileRunning", "guard", "log not found")
}

// TestSlowListener: whoever is told of leaders never blocks Raft. A channel as
// Raft has it for that purpose does.
func TestSlowListener(t *testing.T) {
	t.Parallel()
	t.Run("ours", func(t *testing.T) {
		w := newTown(t, 3)
		forever := make(chan struct{})
		t.Cleanup(func() { close(forever) }) // before the town ends
		for _, name := range three() {
			n := w.nodes[name]
			_, err := n.groups.Open(Spec{ID: groupID(1), Founders: three(), Machine: func() StateMachine { return &diary{} }, Changed: func(s State) {
				if s.Open {
					<-forever
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		w.propose(1, "x")
		g := w.leader(1).groups.Group(1)
		if _, err := g.Proven(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("Raft's channel", func(t *testing.T) {
		w := newTown(t, 1, withTune(func(g *Group) { g.noCures.notify.Store(true) }))
		g := w.nodes["a"].open(1, []string{"a"})
		w.eventually(func() string {
			if !g.State().Led {
				return "no leader"
			}
			return ""
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.Propose(ctx, []byte("x")); err == nil {
			t.Error("Raft was not blocked: is the cure still needed?")
		}
	})
}

// TestShutdownOrder: Raft waits for RPCs that are under way, unless the transport
// is closed first.
func TestShutdownOrder(t *testing.T) {
	took := make(map[bool]time.Duration)
	for _, cured := range []bool{true, false} {
		w := newTown(t, 3, withTune(func(g *Group) { g.noCures.order.Store(!cured) }))
		w.open(1, three(), three()...)
		led := w.leader(1)
		r := road{led.name, others(led.name)[0]}
		release := w.net.hold(r)
		w.eventually(func() string {
			if !w.net.kept(r) {
				return "no RPC is under way"
			}
			return ""
		})
		began := time.Now()
		led.groups.Close(t.Context(), led.groups.Group(1))
		took[cured] = time.Since(began)
		release()
	}
	t.Logf("closed first %v, closed last %v", took[true], took[false])
	if took[false] < 300*time.Millisecond || took[true] > took[false]/2 {
		t.Error("the order makes no difference")
	}
}

// obstinate has a node keep its office for a minute whatever it hears.
func obstinate(name string) build {
	return withTimes(func(n string) Timing {
		c := quick()
		if n == name {
			c.Heartbeat, c.Lease = time.Minute, time.Minute
		}
		return c
	})
}

func (w *town) makeLead(t *testing.T, name string) *Group {
	g := w.nodes[name].groups.Group(1)
	w.eventually(func() string {
		if now := w.leader(1); now.name != name {
			_ = now.groups.Transfer(t.Context(), now.groups.Group(1), name)
			return "it does not lead"
		}
		return ""
	})
	return g
}

// TestAnswerUnderWay: a leader that was stopped, and has an answer from before
// under way when it goes on, must not take it for a proof. Raft's own check does.
func TestAnswerUnderWay(t *testing.T) {
	t.Parallel()
	w := newTown(t, 3, obstinate("a"), withTune(func(g *Group) { g.rpc = patience }))
	w.open(1, three(), three()...)
	g := w.makeLead(t, "a")
	w.net.close(road{"b", "a"}) // they do not hear it from now on, and it shall not hear of their election
	w.net.close(road{"c", "a"})
	toB, toC := road{"a", "b"}, road{"a", "c"}
	releaseB, releaseC := w.net.hold(toB), w.net.hold(toC)
	before := g.current().raft.VerifyLeader()
	w.eventually(func() string {
		if !w.net.kept(toB) || !w.net.kept(toC) {
			return "no answer is under way"
		}
		return ""
	})
	w.net.part([]string{"a"}, []string{"b", "c"})
	w.propose(1, "committed elsewhere", "b", "c")
	proof := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	asked := make(chan struct{})
	go func() {
		close(asked)
		_, err := g.Proven(ctx)
		proof <- err
	}()
	<-asked
	late := g.current().raft.VerifyLeader()
	for range 30 { // Raft takes from its queues in any order: by now it has taken this one, too
		_ = g.current().raft.BootstrapCluster(raft.Configuration{}).Error()
	}
	releaseB()
	releaseC()
	if err := before.Error(); err != nil {
		t.Errorf("the question from before: %v", err)
	}
	if err := late.Error(); err != nil {
		t.Errorf("Raft's check is not fooled (%v): is the cure still needed?", err)
	}
	if err := <-proof; err == nil {
		t.Error("a leader that is none any more proved itself")
	}
}

// TestNonVoterProvesNothing: a leader with a non-voter on its side of a split.
func TestNonVoterProvesNothing(t *testing.T) {
	t.Parallel()
	w := newTown(t, 4, obstinate("a"))
	w.open(1, three(), three()...)
	g := w.makeLead(t, "a")
	w.nodes["d"].open(1, nil)
	if err := g.Change(t.Context(), AddNonvoter, "d", 0); err != nil {
		t.Fatal(err)
	}
	w.agree(1, "a", "d")
	w.net.part([]string{"a", "d"}, []string{"b", "c"})
	w.propose(1, "committed elsewhere", "b", "c")
	if err := g.current().raft.VerifyLeader().Error(); err != nil {
		t.Errorf("Raft's check is not fooled (%v): is the cure still needed?", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := g.Proven(ctx); err == nil {
		t.Error("a leader that is none any more proved itself")
	}
}

// TestHint: when a node's process ends, its groups have leaders again long before
// timers say so.
func TestHint(t *testing.T) {
	t.Parallel()
	const shards = 12
	took := make(map[bool]time.Duration)
	for _, hinted := range []bool{true, false} {
		w := newTown(t, 3, withTimes(func(string) Timing { return DefaultTiming() }), withTune(func(g *Group) { g.noCures.hint.Store(!hinted) }))
		for s := range uint32(shards) {
			w.open(s+1, three(), three()...)
		}
		led := make(map[string][]uint32)
		for s := range uint32(shards) {
			n := w.leader(s + 1).name
			led[n] = append(led[n], s+1)
		}
		most := "a"
		for n := range led {
			if len(led[n]) > len(led[most]) {
				most = n
			}
		}
		began := time.Now()
		go w.nodes[most].kill()
		var times []time.Duration
		for _, s := range led[most] {
			w.leader(s, others(most)...)
			times = append(times, time.Since(began))
		}
		took[hinted] = times[len(times)/2]
		t.Logf("hinted %v: %d shards led again, median %v, last %v", hinted, len(times), times[len(times)/2], times[len(times)-1])
		w.eventually(func() string {
			if w.nodes[most].groups.Group(led[most][0]) != nil {
				return "it does not end"
			}
			return ""
		})
	}
	if took[true] > took[false] {
		t.Error("the hint does not help")
	}
}
