package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// beside is a shard none of whose replicas is on a node of meta, and their nodes.
func (w *world) beside() (shard int, nodes []string) {
	w.t.Helper()
	for i, s := range w.newest().Shards[1:] {
		if nodes = nil; !slices.ContainsFunc(s.Replicas, func(r Replica) bool { return w.newest().Shards[0].keeps(r.Node) }) {
			for _, r := range s.Replicas {
				nodes = append(nodes, r.Node)
			}
			return i + 1, nodes
		}
	}
	w.t.Fatal("no shard is beside meta's nodes")
	return 0, nil
}

// half has a shard lose two of its three replicas, and returns the node that is left
// and what it has.
func (w *world) half() (shard int, left *box, before Shard, has []int) {
	shard, nodes := w.beside()
	before = w.newest().Shards[shard]
	for _, id := range nodes[:2] {
		w.nodes[id].stop()
	}
	left = w.nodes[nodes[2]]
	for _, e := range left.log(shard).entries {
		if e.client > 0 {
			has = append(has, e.client)
		}
	}
	w.acked[[2]int{shard, int(before.Incarnation)}] = nil // what only the others have is lost
	return shard, left, before, has
}

// remade runs until a shard is made anew, of all that its survivor had.
func (w *world) remade(shard int, before Shard, by *box, has []int) Shard {
	w.t.Helper()
	w.until("it is made anew", 2*time.Minute, func() error {
		if s := w.newest().Shards[shard]; s.Phase != Ready || s.Incarnation == before.Incarnation || w.leads(shard) == nil {
			return fmt.Errorf("it is %+v, step %+v", s, s.Step)
		}
		return nil
	})
	s := w.newest().Shards[shard]
	if s.Founder != by.id {
		w.fail("it was made by %s, and %s has what is left", s.Founder, by.id)
	}
	var have []int
	for _, e := range w.leads(shard).entries {
		have = append(have, e.client)
	}
	for _, c := range has {
		if !slices.Contains(have, c) {
			w.fail("command %d of %d that the survivor had is lost", c, len(has))
		}
	}
	return s
}

// TestSituationShardLongLost: a shard has had no leader for longer than a node has to
// make it anew. That is no fault of the node that is to: it is made anew once.
func TestSituationShardLongLost(t *testing.T) {
	w := begin(t, 1, 8, 12)
	w.run(10 * time.Second)
	shard, left, before, has := w.half()
	w.run(90 * time.Second)
	w.reset(shard, false)
	if s := w.remade(shard, before, left, has); s.Incarnation != before.Incarnation+1 {
		t.Errorf("incarnation %d comes after %d", s.Incarnation, before.Incarnation)
	}
}

// TestSituationFounderCannotWrite: the node that is to make a shard anew cannot, since
// its disk is full, over its restart too. It does once it can, of all that it has;
// nobody makes an empty one meanwhile.
func TestSituationFounderCannotWrite(t *testing.T) {
	w := begin(t, 1, 8, 12)
	w.run(10 * time.Second)
	shard, left, before, has := w.half()
	w.run(5 * time.Second)
	left.full = true
	w.reset(shard, false)
	first := w.newest().Shards[shard]
	for range 2 {
		w.run(20 * time.Second)
		if s := w.newest().Shards[shard]; s.Phase != Creating || s.Step == nil || s.Step.Kind != Reset || s.Revision != first.Revision {
			t.Fatalf("it is %+v, step %+v", s, s.Step)
		}
		left.stop()
		w.run(time.Second)
		left.start()
	}
	w.run(2 * time.Minute)
	left.full = false
	w.remade(shard, before, left, has)
}

// TestSituationBrokenWhileMadeAnew: what a founder has begun is broken when it starts
// again. It begins again, of the same.
func TestSituationBrokenWhileMadeAnew(t *testing.T) {
	w := begin(t, 1, 8, 12)
	w.run(10 * time.Second)
	shard, left, before, has := w.half()
	w.run(5 * time.Second)
	w.reset(shard, false)
	next := w.newest().Shards[shard]
	w.until("it is begun", 10*time.Second, func() error {
		if err := left.keeper.Take(w.newest()); err != nil {
			return err
		}
		if left.keeper.place(t.Context()); left.logs[Own{Shard: shard, Incarnation: next.Incarnation, Life: next.Replicas[0].Life}] == nil {
			return errors.New("it is not")
		}
		return nil
	})
	left.stop()
	left.hole = Own{Shard: shard, Incarnation: next.Incarnation, Life: next.Replicas[0].Life}
	left.full = true
	w.run(time.Second)
	left.start()
	w.run(90 * time.Second)
	left.full = false
	w.remade(shard, before, left, has)
}

// TestSituationSilenceIsNoWord: a node that is there and does not answer, or cannot
// read its disk, may have all that is left of a shard, or lead it: nobody makes it
// anew without its word.
func TestSituationSilenceIsNoWord(t *testing.T) {
	w := begin(t, 1, 8, 12)
	w.run(10 * time.Second)
	shard, left, before, has := w.half()
	w.run(5 * time.Second)
	k := w.leads(0).box.keeper
	for what, silent := range map[string]*bool{"mute": &left.mute, "blind": &left.blind} {
		*silent = true
		for _, empty := range []bool{false, true} {
			if founder, err := k.Reset(t.Context(), shard, empty); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), left.id) {
				t.Errorf("%s is %s, and with empty %v the reset says %q, %v", left.id, what, empty, founder, err)
			}
		}
		*silent = false
	}
	led := shard%12 + 1
	for w.leads(led) == nil {
		led = led%12 + 1
	}
	if _, err := k.Reset(t.Context(), led, false); !errors.Is(err, ErrLed) {
		t.Errorf("shard %d is led, and the reset says %v", led, err)
	}
	for _, r := range w.newest().Shards[led].Replicas {
		w.nodes[r.Node].mute = r.Node != k.o.Self
	}
	if _, err := k.Reset(t.Context(), led, false); !errors.Is(err, ErrInvalid) {
		t.Errorf("shard %d is led by a node that is mute, and the reset says %v", led, err)
	}
	for _, b := range w.nodes {
		b.mute = false
	}
	w.reset(shard, false)
	w.remade(shard, before, left, has)
}

// TestSituationResetIsUnsure: a reset is done, and who asked for it does not hear of
// it. It is no fault that it finds it done.
func TestSituationResetIsUnsure(t *testing.T) {
	w := begin(t, 1, 8, 12)
	w.run(10 * time.Second)
	shard, left, before, has := w.half()
	w.run(5 * time.Second)
	l := w.leads(0).box
	l.unsure = true
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if founder, err := l.keeper.Reset(ctx, shard, false); err != nil || founder != left.id || l.unsure {
		t.Errorf("founder %q, %v", founder, err)
	}
	w.remade(shard, before, left, has)
}

// TestSituationDiskFails: a node's disk fails, and it says so; it is as lost to its
// shards as if it were dead, and gets nothing until it is started on one that works.
func TestSituationDiskFails(t *testing.T) {
	w := begin(t, 1, 5, 8)
	b := w.nodes["n02"]
	b.failed = true
	for _, l := range b.logs {
		l.open, l.leads = false, false
	}
	w.until("others have its replicas", 10*time.Minute, func() error {
		if w.newest().used(b.id) {
			return errors.New("it still has some")
		}
		return w.reached()
	})
	w.run(time.Minute)
	if m := w.newest(); m.used(b.id) || m.Nodes[b.id].State != Active {
		t.Errorf("it is %+v, and has replicas: %v", m.Nodes[b.id], m.used(b.id))
	}
	b.stop()
	b.failed = false
	b.start()
	w.until("it has its share again", 10*time.Minute, w.well)
}

// TestPlanDoesNotWaitForAFailedDisk: a replica that was to come to a node whose disk
// has failed comes to another.
func TestPlanDoesNotWaitForAFailedDisk(t *testing.T) {
	for _, to := range []string{"d", "-d"} {
		m, seen := heavy(t, 2, "d", "e")
		s := Shard{Incarnation: 1, Phase: Ready, Founder: "a", Replicas: set("a", "b", to), Step: &Step{Kind: Move, Node: "c", Leaving: []string{"c"}}}
		m = must(t, m, Command{Op: OpShard, Number: 1, Seen: m.Shards[1].Revision, Shard: &s})
		d := seen.Peers["d"]
		d.Failed = true
		seen.Peers["d"] = d
		m = must(t, m, Plan(m, seen)...)
		if _, waits := m.Shards[1].Wants("d"); waits || !m.Shards[1].keeps("c") {
			t.Errorf("%s: it is to have %+v, step %+v", to, m.Shards[1].Replicas, m.Shards[1].Step)
		}
	}
}

// TestSituationRecoveredWithAStaleMap: meta is recovered from a map that does not know
// where replicas are by now. Nobody loses one that votes, and the map learns it.
func TestSituationRecoveredWithAStaleMap(t *testing.T) {
	w := begin(t, 1, 9, 12)
	w.run(10 * time.Second)
	holders := w.newest().Shards[0].Replicas
	here := w.nodes[holders[0].Node]
	here.stop()
	aside := w.ids()[slices.IndexFunc(w.ids(), func(id string) bool { return !w.newest().Shards[0].keeps(id) })]
	w.until("a node is set aside", time.Minute, func() error { return w.setAside(aside, true) })
	w.until("its replicas are elsewhere", 10*time.Minute, func() error {
		if w.newest().used(aside) {
			return errors.New("it has some")
		}
		return nil
	})
	stale, newest := here.keeper.Map(), w.newest()
	for _, r := range newest.Shards[0].Replicas {
		if b := w.nodes[r.Node]; b != here {
			b.stop()
		}
	}
	moved := 0
	for i, s := range newest.Shards[1:] {
		for _, r := range s.Replicas {
			if _, known := stale.Shards[i+1].Wants(r.Node); !known && w.nodes[r.Node].up {
				moved++
			}
		}
	}
	if moved == 0 {
		t.Fatal("the map that is to be stale knows all")
	}
	next := here.recover()
	since := w.now
	w.until("the map has the groups as they are", 10*time.Minute, func() error {
		waits := error(nil)
		if w.now < since+time.Minute {
			waits = errors.New("a minute is not over")
		}
		for _, id := range w.ids() {
			if b := w.nodes[id]; b.up && b.keeper.Map().Generation() != next {
				waits = fmt.Errorf("%s has the old map", id)
			}
		}
		for i, s := range here.keeper.Map().Shards[1:] {
			if led := w.voters(i + 1); led && s.Step != nil && s.Step.Kind == Regain {
				waits = fmt.Errorf("shard %d: %+v, step %+v", i+1, s, s.Step)
			}
		}
		return waits
	})
}

// voters fails if a node that runs has lost the replica that a group counts on, and
// says whether the group has a leader.
func (w *world) voters(shard int) bool {
	w.t.Helper()
	l := w.leads(shard)
	if l == nil {
		return false
	}
	config, _ := l.config()
	for _, r := range config {
		if b := w.nodes[r.Node]; b.up && b.logs[Own{Shard: shard, Incarnation: l.own.Incarnation, Life: r.Life}] == nil {
			w.fail("shard %d: %s has lost its replica, which counts: %v", shard, b.id, config)
		}
	}
	return true
}

// TestPlanGoesOnWithALeave: a node that leaves, and is dead for a while, leaves when
// it is back.
func TestPlanGoesOnWithALeave(t *testing.T) {
	m, seen := heavy(t, 2, "d")
	n := m.Nodes["a"]
	n.State, n.Leaving = Dead, true
	m = must(t, m, Command{Op: OpNode, Key: "a", Seen: n.Revision, Node: &n})
	m = must(t, m, Plan(m, seen)...)
	if n := m.Nodes["a"]; n.State != Draining || !n.Leaving {
		t.Errorf("it is %+v", n)
	}
}

// TestOnlyReportsAreHeard: a question that is no report does not say what its node
// names, nor which run it is in.
func TestOnlyReportsAreHeard(t *testing.T) {
	w := begin(t, 1, 3, 2)
	for _, b := range w.nodes {
		b.names = says("b1")
	}
	w.run(5 * time.Second)
	k, shard := w.leads(0).box.keeper, 1
	from := w.ids()[slices.IndexFunc(w.ids(), func(id string) bool { return id != k.o.Self })]
	before := k.office.heard[from]
	if before.run == 0 || before.hash == 0 || before.names == nil {
		t.Fatalf("it reports %+v", before)
	}
	for _, q := range []question{{}, {Revision: 9, Look: &shard}, {Revision: 9, Open: &Own{}}, {Command: []byte("{}")}} {
		w.ask(t, k.o.Self, from, q)
		if h := k.office.heard[from]; h.run != before.run || h.hash != before.hash || h.names == nil {
			t.Errorf("after %+v it is %+v", q, h)
		}
	}
}

// TestSituationHeirsEnd: a node that gives its replicas away hands the lead to one that
// stays, though another would come first.
func TestSituationHeirsEnd(t *testing.T) {
	w := begin(t, 1, 4, 4)
	l := w.leads(1).box
	others := slices.DeleteFunc(w.ids(), func(id string) bool { return id == l.id })
	for _, id := range others[:2] {
		w.nodes[id].ends = true
	}
	w.until("it is set aside", time.Minute, func() error { return w.setAside(l.id, true) })
	w.until("others have its replicas", 10*time.Minute, func() error {
		if w.newest().used(l.id) {
			return errors.New("it has some")
		}
		return w.reached()
	})
}
