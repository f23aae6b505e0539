package meta

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// recover has a node begin meta anew.
func (b *box) recover() {
	b.w.t.Helper()
	b.stop()
	r, err := recovery(b, b.id)
	if err != nil {
		b.w.t.Fatal(err)
	}
	if err := r.Do(); err != nil {
		b.w.t.Fatal(err)
	}
	b.start()
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
	here.recover()
	w.until("this side decides", time.Minute, func() error {
		if l := here.log(0); l == nil || !here.keeper.leads() || here.keeper.Map().Generation() != 2 {
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
	if err := decide(there, "late"); err == nil && there.keeper.Map().Generation() < 2 {
		t.Error("it decided something")
	}
	w.until("there is one map", 2*time.Minute, func() error {
		for _, b := range w.nodes {
			m := b.keeper.Map()
			if _, lost := m.Pools["old"]; m.Generation() != 2 || lost {
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
	if err := b.write(fenceFile, append(encode(fence{2}), '\n')); err != nil {
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
// begins a later one.
func TestSituationRecoveredTwice(t *testing.T) {
	w := begin(t, 1, 3, 2)
	b := w.nodes["n02"]
	b.stop()
	if err := b.write(fenceFile, append(encode(fence{7}), '\n')); err != nil {
		t.Fatal(err)
	}
	if r, err := recovery(b, b.id); err != nil || r.after.Generation() != 8 {
		t.Errorf("generation %d comes after 7, %v", r.after.Generation(), err)
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
		here.recover()
		w.until("this side decides", time.Minute, func() error {
			if !here.keeper.leads() || here.keeper.Map().Generation() != 2 {
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
