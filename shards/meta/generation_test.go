package meta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"
)

// recover has a node begin meta anew, and returns of which generation.
func (b *box) recover() uint32 {
	b.w.t.Helper()
	b.stop()
	r, err := recovery(b, b.id, 0)
	if err != nil {
		b.w.t.Fatal(err)
	}
	if err := r.Do(); err != nil {
		b.w.t.Fatal(err)
	}
	b.start()
	return r.after.Generation()
}

// TestSituationOldMajorityComesBack: a cluster was recovered although most of meta's
// nodes were only cut off. They went on deciding; once the two meet, they do no
// more, over a restart too, and the cluster is one.
func TestSituationOldMajorityComesBack(t *testing.T) {
	w := begin(t, 1, 5, 4)
	w.run(10 * time.Second)
	old := w.newest()
	var here *box // the one of meta's nodes that is on this side
	for _, r := range old.Shards[0].Replicas {
		if b := w.nodes[r.Node]; b != w.leads(0).box && here == nil {
			here = b
		}
	}
	far := map[string]bool{}
	for _, r := range old.Shards[0].Replicas {
		far[r.Node] = r.Node != here.id
	}
	w.split = far
	w.run(5 * time.Second)
	next := here.recover()
	w.until("this side decides", time.Minute, func() error {
		if l := here.log(0); l == nil || !here.keeper.leads() || here.keeper.Map().Generation() != next {
			return errors.New("it does not")
		}
		return nil
	})
	decide := func(b *box, pool string) error {
		p := Pool{Backends: says("b1")["p"].Backends}
		_, err := b.keeper.Propose(t.Context(), Command{Op: OpPool, Key: pool, Pool: &p})
		return err
	}
	there := w.nodes[here.other(far)]
	w.until("the other side decides, too", time.Minute, func() error { return decide(there, "old") })
	there.ahead(2 * leap) // and has decided more than anybody could
	if err := decide(here, "new"); err != nil {
		t.Fatal(err)
	}
	heard := there.copy()
	w.split = nil
	w.until("it decides no more", 10*time.Second, func() error {
		for id := range far {
			if far[id] && w.nodes[id].keeper.leads() {
				return fmt.Errorf("%s still decides", id)
			}
		}
		return nil
	})
	if err := decide(there, "late"); err == nil && there.keeper.Map().Generation() < next {
		t.Error("it decided something")
	}
	w.until("there is one map", 2*time.Minute, func() error {
		for _, b := range w.nodes {
			m := b.keeper.Map()
			if _, lost := m.Pools["old"]; m.Generation() != next || lost {
				return fmt.Errorf("%s has generation %d, revision %d", b.id, m.Generation(), m.Revision)
			}
			if _, kept := m.Pools["new"]; !kept {
				return fmt.Errorf("%s lacks what was decided here", b.id)
			}
		}
		return nil
	})
	w.until("all is well", 10*time.Minute, w.well)

	// One that has heard of it, and ended before it had the map, is fenced still.
	b := w.nodes[there.id]
	b.stop()
	b.putBack(heard)
	if err := b.write(fenceFile, append(encode(fence{next}), '\n')); err != nil {
		t.Fatal(err)
	}
	w.split = map[string]bool{b.id: true}
	b.start()
	if !b.keeper.fenced() || b.keeper.leads() || !strings.Contains(b.keeper.Pauses(), "recovered without this node") {
		t.Error("after its restart it would decide again")
	}
}

// other is a node of a side.
func (b *box) other(side map[string]bool) string {
	for _, id := range b.w.ids() {
		if side[id] && id != b.id {
			return id
		}
	}
	return ""
}

// ahead has a node's map be of a far higher revision, as if so much had been decided.
func (b *box) ahead(revisions uint64) {
	m := b.keeper.Map().clone()
	m.Revision += revisions
	if err := b.keeper.Take(m); err != nil {
		b.w.t.Fatal(err)
	}
}

// TestSituationRecoveredTwice: who recovers a node that has heard of a generation
// begins a later one, whichever node that was on; of two nodes that have heard of the
// same, each begins another, and the later one has the higher revisions, whichever
// map it begins with.
func TestSituationRecoveredTwice(t *testing.T) {
	w := begin(t, 1, 3, 2)
	after := map[string]*Map{}
	for _, heard := range []uint32{7, 1<<nodeBits | 1, 3<<nodeBits - 1} {
		for _, id := range []string{"n02", "n03"} {
			b := w.nodes[id]
			b.stop()
			if err := b.write(fenceFile, append(encode(fence{heard}), '\n')); err != nil {
				t.Fatal(err)
			}
			r, err := recovery(b, b.id, 0)
			if err != nil || r.after.Generation() <= heard || r.after.Generation()>>nodeBits != heard>>nodeBits+1 {
				t.Fatalf("generation %d comes after %d, %v", r.after.Generation(), heard, err)
			}
			for other, m := range after {
				if later := m.Generation() > r.after.Generation(); m.Generation() == r.after.Generation() || later != (m.Revision > r.after.Revision+leap/2) {
					t.Errorf("%s begins generation %d, revision %d; %s has begun %d, %d", id, r.after.Generation(), r.after.Revision, other, m.Generation(), m.Revision)
				}
			}
			after[fmt.Sprint(id, " after ", heard)] = r.after
		}
	}
	b := w.nodes["n02"]
	if err := b.write(fenceFile, append(encode(fence{math.MaxUint32}), '\n')); err != nil {
		t.Fatal(err)
	}
	if _, err := recovery(b, b.id, 0); err == nil {
		t.Error("there is a generation after the last one")
	}
}

// TestSituationOldMajorityHasMovedReplicas: before it comes back it has given the
// replicas of the nodes that it missed to others, and taken them away again. What
// was acknowledged on either side is there, and nobody votes who has forgotten.
func TestSituationOldMajorityHasMovedReplicas(t *testing.T) {
	for seed := range uint64(2) {
		w := begin(t, seed, 7, 6)
		w.run(10 * time.Second)
		here := w.nodes[w.newest().Shards[0].Replicas[seed].Node]
		far, near := map[string]bool{}, 0
		for _, id := range w.ids() { // one of meta's nodes is near, and one that is none
			if far[id] = id != here.id && (near > 0 || w.newest().Shards[0].keeps(id)); !far[id] && id != here.id {
				near++
			}
		}
		moves := w.steps
		w.split = far
		w.run(4 * time.Minute)
		if w.steps == moves {
			t.Error("the other side has moved nothing")
		}
		next := here.recover()
		w.until("this side decides", time.Minute, func() error {
			if !here.keeper.leads() || here.keeper.Map().Generation() != next {
				return errors.New("it does not")
			}
			return nil
		})
		w.run(10 * time.Second)
		w.split = nil
		w.until("all is well", 20*time.Minute, w.well)
	}
}

// TestAReplicaThatWasGivenUpIsNoMore: a recovered map gives a node a replica that it
// had, and has given up since for what the old generation decided. It must not
// vote as what it was; one that is new to the node may.
func TestAReplicaThatWasGivenUpIsNoMore(t *testing.T) {
	w := begin(t, 1, 4, 8)
	b, m := w.nodes["n02"], w.newest()
	var free []int
	for i, s := range m.Shards {
		if _, wants := s.Wants(b.id); i > 0 && !wants {
			free = append(free, i)
		}
	}
	if len(free) < 2 {
		t.Fatalf("it lacks shards %v", free)
	}
	if err := b.keeper.Take(m); err != nil {
		t.Fatal(err)
	}
	next := m.clone()
	next.Revision += leap
	next.Shards[0].Incarnation++
	for i, life := range []uint64{m.Revision, next.Revision} {
		s := next.Shards[free[i]]
		s.Replicas = add(s.Replicas, Replica{b.id, life, true})
		next.Shards[free[i]] = s
	}
	if err := b.keeper.Take(next); err != nil {
		t.Fatal(err)
	}
	b.keeper.place(t.Context())
	if b.log(free[0]) != nil {
		t.Error("the one that it gave up is open again, empty")
	}
	if b.log(free[1]) == nil {
		t.Error("the new one is not open")
	}
}

// decides has an operator decide something that stays, and says so.
func (b *box) decides(pool string) error {
	_, err := b.keeper.Propose(context.Background(), Command{Op: OpPool, Key: pool, Pool: &Pool{Backends: []Backend{{ID: "b", URL: "http://b", Weight: 1, Added: true}}}})
	return err
}

// twoRecover has meta be recovered on two nodes that do not hear of each other, and
// returns them with the generation that each is of.
func (w *world) twoRecover() (nodes [2]*box, of [2]uint32) {
	w.t.Helper()
	w.run(10 * time.Second)
	all := w.newest().Shards[0].Replicas
	w.nodes[all[2].Node].stop()
	w.split = map[string]bool{all[1].Node: true}
	w.run(5 * time.Second)
	for i := range nodes {
		b := w.nodes[all[i].Node]
		b.recover()
		nodes[i] = b
		w.until("it decides", time.Minute, func() error { return b.decides("by " + b.id) })
		of[i] = b.keeper.Map().Generation()
	}
	w.run(10 * time.Second)
	return nodes, of
}

// TestSituationTwoRecoveries: meta is recovered on two nodes, against the rule. As long
// as they do not meet each decides; once they do, one gives way, and the cluster is one,
// of the later generation.
func TestSituationTwoRecoveries(t *testing.T) {
	for seed := range uint64(2) {
		w := begin(t, seed, 5, 4)
		nodes, of := w.twoRecover()
		last := 0
		if of[1] > of[0] {
			last = 1
		}
		nodes[1-last].ahead(1000) // however much it has decided
		w.split = nil
		w.until("one decides", 10*time.Second, func() error {
			if nodes[0].keeper.leads() == nodes[1].keeper.leads() {
				return errors.New("both do, or none")
			}
			return nil
		})
		w.until("there is one map", 2*time.Minute, func() error {
			for _, b := range w.nodes {
				if m := b.keeper.Map(); b.up && (m.Generation() != of[last] || len(m.Pools) != 1 || m.Pools["by "+nodes[last].id].Backends == nil) {
					return fmt.Errorf("%s has generation %d, pools %v", b.id, m.Generation(), m.Pools)
				}
			}
			return nil
		})
		for _, b := range w.nodes {
			if !b.up {
				b.start()
			}
		}
		w.until("all is well", 10*time.Minute, w.well)
	}
}

// TestSituationRecoveredAlready: a node is recovered of which the others have been
// recovered without it, which it has not heard. It says so and follows them.
func TestSituationRecoveredAlready(t *testing.T) {
	for _, second := range []int{1, 2} {
		w := begin(t, 1, 5, 4)
		w.run(10 * time.Second)
		all := w.newest().Shards[0].Replicas
		late := w.nodes[all[second].Node]
		w.nodes[all[1].Node].stop()
		w.nodes[all[2].Node].stop()
		w.nodes[all[0].Node].recover()
		w.until("the first decides", time.Minute, func() error { return w.nodes[all[0].Node].decides("first") })
		of := w.nodes[all[0].Node].keeper.Map().Generation()
		late.recover()
		w.until("all are of the first", time.Minute, func() error {
			for _, b := range w.nodes {
				if m := b.keeper.Map(); b.up && (m.Generation() != of || m.Pools["first"].Backends == nil) {
					return fmt.Errorf("%s has generation %d, the first is of %d; pools %v", b.id, m.Generation(), of, m.Pools)
				}
			}
			return nil
		})
		late.stop() // and what was not done is not done later
		w.split = map[string]bool{late.id: true}
		late.start()
		if m := late.keeper.Map(); m.Generation() != of {
			t.Errorf("alone it begins generation %d, and %d was there", m.Generation(), of)
		}
		w.split = nil
	}
}

// TestWhoMayDoubtAReplica: a node that is none of the cluster, and one that leads in an
// earlier term than the group's leader, take no voter's life; one that leads in a later
// term, of another group, does.
func TestWhoMayDoubtAReplica(t *testing.T) {
	w := begin(t, 1, 4, 4)
	var b *box
	var r Own
	other := ""
	for shard := 1; other == ""; shard++ { // one that has a node without a replica of it
		s := w.newest().Shards[shard]
		for _, id := range w.ids() {
			if !s.keeps(id) {
				other = id
			}
		}
		b = w.nodes[s.Replicas[0].Node]
		r = Own{Shard: shard, Incarnation: s.Incarnation, Life: s.Replicas[0].Life}
	}
	st, open := b.Status(r.Shard)
	if !open || st.Leader == "" {
		t.Fatalf("open %v, led by %q", open, st.Leader)
	}
	for _, c := range []struct {
		what, from string
		term       uint64
		doubted    bool
	}{
		{"a stranger", "stranger", st.Term + 1, false},
		{"a leader that is none any more", other, st.Term - 1, false},
		{"a program that tells no term", other, 0, false},
		{"a leader of another group", other, st.Term + 1, true},
	} {
		if got := w.ask(t, b.id, c.from, question{Open: &r, Term: c.term}); got.Open || b.keeper.doubts(r) != c.doubted {
			t.Errorf("%s: open %v, doubted %v", c.what, got.Open, b.keeper.doubts(r))
		}
	}
}

// TestGivingWayIsSaid: that two recoveries met is said of two of one round, and not
// of the numbers that older programs gave.
func TestGivingWayIsSaid(t *testing.T) {
	for _, c := range []struct {
		was, now uint32
		want     string
	}{
		{1<<nodeBits | 3, 1<<nodeBits | 7, "recovered on two nodes"},
		{1<<nodeBits | 3, 2<<nodeBits | 1, "goes on with it"},
		{1, 2, "goes on with it"},
		{1, 1<<nodeBits | 7, "goes on with it"},
	} {
		var said strings.Builder
		k := &Keeper{o: Options{Self: "a", Log: slog.New(slog.NewTextHandler(&said, nil))}}
		of := func(generation uint32) *Map { return &Map{Shards: []Shard{{Incarnation: generation, Founder: "b"}}} }
		if k.givesWay(of(c.was), of(c.now)); !strings.Contains(said.String(), c.want) {
			t.Errorf("generation %d after %d: %s", c.now, c.was, said.String())
		}
	}
}
