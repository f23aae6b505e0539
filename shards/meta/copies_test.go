package meta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// copied is a copy of a node's data directory.
type copied struct {
	disk map[string][]byte
	logs map[Own]*log
}

func (b *box) copy() copied {
	c := copied{maps.Clone(b.disk), map[Own]*log{}}
	for own, l := range b.logs {
		twin := *l
		twin.entries, twin.open, twin.leads = slices.Clone(l.entries), false, false
		c.logs[own] = &twin
	}
	return c
}

func (b *box) putBack(c copied) {
	b.disk, b.logs = c.disk, c.logs
	delete(b.w.had, b.id)
}

// reset asks until it is done: who asks may have to hear of something first.
func (w *world) reset(shard int, empty bool) (founder string) {
	w.t.Helper()
	w.until("the reset is taken", 10*time.Second, func() (err error) {
		l := w.leads(0)
		if l == nil {
			return errors.New("meta has no leader")
		}
		founder, err = l.box.keeper.Reset(context.Background(), shard, empty)
		return err
	})
	return founder
}

// TestCopyHasNoVoice: a copy of a node's data directory is started beside it, at another
// address than gossip knows the node at. Its reports and commands change nothing; the
// node's own do.
func TestCopyHasNoVoice(t *testing.T) {
	w := begin(t, 1, 3, 2)
	w.run(30 * time.Second)
	before, leader, of := w.newest(), w.leads(0).box.id, "n01"
	if leader == of {
		of = "n02"
	}
	said := question{Node: before.Nodes[of], At: "n99:7947", Revision: before.Revision, Run: 1 << 40, Runs: []uint64{1 << 40}}
	for range 200 { // often enough to be what the leader heard last when it looks
		w.ask(t, leader, of, said)
		w.run(50 * time.Millisecond)
	}
	order := question{Node: said.Node, At: said.At, Command: Command{Op: OpPool, Key: "p", Pool: &Pool{}}.Encode()}
	if r := w.ask(t, leader, of, order); r.Invalid || !strings.Contains(r.Refused, "a data directory was copied") {
		t.Errorf("a copy's command is refused with %q", r.Refused)
	}
	if r := w.ask(t, leader, of, said); r.Place != of+":7947" {
		t.Errorf("a copy is told that its node is at %q", r.Place)
	}
	if now := w.newest(); now.Revision != before.Revision {
		t.Errorf("the copy had revision %d become %d: %+v", before.Revision, now.Revision, now.Shards)
	}
	order.At = of + ":7947"
	if r := w.ask(t, leader, of, order); r.Refused != "" || r.Place != "" || r.Revision <= before.Revision {
		t.Errorf("the node's own: %q, revision %d; it is told that it is at %q", r.Refused, r.Revision, r.Place)
	}
}

// TestSituationOlderCopyPutBack: a data directory is put back as it was before its
// node's last run. None of its replicas votes: they get other lives.
func TestSituationOlderCopyPutBack(t *testing.T) {
	w := begin(t, 1, 4, 4)
	b := w.nodes["n02"]
	b.stop()
	older := b.copy()
	w.run(5 * time.Second)
	b.start()
	w.run(30 * time.Second)
	b.stop()
	before := w.newest()
	b.putBack(older)
	w.run(5 * time.Second)
	b.start()
	w.until("its replicas have other lives", 5*time.Minute, func() error {
		for i, s := range w.newest().Shards {
			was, had := before.Shards[i].Wants("n02")
			if now, has := s.Wants("n02"); had && has && now.Life == was.Life {
				return fmt.Errorf("shard %d: it has the old one", i)
			}
		}
		return w.well()
	})
	for own := range b.logs {
		if was, had := before.Shards[own.Shard].Wants("n02"); had && was.Life == own.Life {
			t.Errorf("it keeps %+v", own)
		}
	}
	steps := w.steps
	b.stop()
	w.run(5 * time.Second)
	b.start()
	w.run(time.Minute)
	if w.steps != steps {
		t.Error("a restart makes them anew once more")
	}
}

// TestSituationOlderCopyOfTheOnlyReplica: it is all there is of its shards, which begin
// again with it, so that nobody takes an old word for a new one.
func TestSituationOlderCopyOfTheOnlyReplica(t *testing.T) {
	m := founded(t, 1, 1, "a", "b")
	m = must(t, m, Command{Op: OpShard, Number: 1, Seen: m.Shards[1].Revision, Shard: &Shard{Incarnation: 1, Phase: Ready, Replicas: []Replica{{"b", 0, true}}}})
	n := m.Nodes["b"]
	n.Run = 7
	m = must(t, m, Command{Op: OpNode, Key: "b", Seen: n.Revision, Node: &n})
	seen := Seen{Led: time.Hour, Peers: map[string]Peer{
		"a": {Node: m.Nodes["a"], Alive: true, Heard: true},
		"b": {Node: m.Nodes["b"], Alive: true, Heard: true, Run: 9, Runs: []uint64{7, 9}},
	}}
	if got := must(t, m, Plan(m, seen)...); got.Shards[1].Incarnation != 1 || got.Nodes["b"].Run != 9 {
		t.Errorf("a node that was started again: %+v, %+v", got.Shards[1], got.Nodes["b"])
	}
	p := seen.Peers["b"]
	p.Runs = []uint64{5, 9}
	seen.Peers["b"] = p
	got := must(t, m, Plan(m, seen)...)
	if s := got.Shards[1]; s.Incarnation != 2 || s.Phase != Creating || s.Founder != "b" || got.Nodes["b"].Run != 9 {
		t.Errorf("an older copy: %+v, %+v", s, got.Nodes["b"])
	}
}

// TestRunsAreRemembered: a run that nobody has acknowledged is not forgotten by
// those that follow, and what is acknowledged ends the list, but for some before it.
func TestRunsAreRemembered(t *testing.T) {
	b := &box{disk: map[string][]byte{}}
	at := func(last uint64) *Map { return &Map{Nodes: map[string]Node{"a": {Run: last}}} }
	for _, c := range []struct {
		last, run uint64
		want      []uint64
	}{
		{0, 1, []uint64{0, 1}}, {0, 2, []uint64{0, 1, 2}}, {1, 5, []uint64{0, 1, 2, 5}}, {5, 6, []uint64{0, 1, 2, 5, 6}},
	} {
		got, err := countRun(b, at(c.last), "a", c.run)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("run %d, %d is acknowledged: %v, %v", c.run, c.last, got, err)
		}
	}
	for run := uint64(7); run < 100; run++ {
		got, err := countRun(b, at(run-1), "a", run)
		if want := min(int(run)-1, priorRuns+2); err != nil || len(got) != want || got[len(got)-1] != run || got[len(got)-2] != run-1 {
			t.Fatalf("run %d: %d are kept, want %d: %v, %v", run, len(got), want, got, err)
		}
	}
	for run := uint64(100); run < 100+2*mostRuns; run++ {
		if got, err := countRun(b, nil, "a", run); err != nil || len(got) > mostRuns {
			t.Fatalf("%d runs are kept, %v", len(got), err)
		}
	}
}

// TestOlderCopyIsKnownBeforeItVotes, where another node that runs knows better.
func TestOlderCopyIsKnownBeforeItVotes(t *testing.T) {
	w := begin(t, 1, 3, 2)
	b := w.nodes["n02"]
	b.stop()
	older := b.copy()
	b.start()
	w.run(10 * time.Second)
	back := func(c copied) (opened int) {
		b.stop()
		b.putBack(c)
		b.boot++
		b.up, b.machine, b.fed = true, NewMachine(), 0
		o := b.keeper.o
		o.Run, o.Machine = b.boot, b.machine
		k, err := NewKeeper(o)
		if err != nil {
			t.Fatal(err)
		}
		b.keeper = k
		k.LookBack(t.Context())
		k.place(t.Context())
		for _, l := range b.logs {
			if l.open {
				opened++
			}
		}
		return opened
	}
	if n := back(b.copy()); n != 3 {
		t.Errorf("of its own directory %d of 3 replicas are open", n)
	}
	w.run(10 * time.Second)
	if n := back(older); n != 0 {
		t.Errorf("of an older copy %d replicas are open", n)
	}
	w.until("they are made anew", 5*time.Minute, w.well)
}
