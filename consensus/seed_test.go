package consensus

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/starling-lb/starling/consensus/transport"
)

// TestSeed: a group that lost its other two members is made anew by the third,
// with all that it had, over a snapshot, too; and is not made twice.
func TestSeed(t *testing.T) {
	w := newTown(t, 1)
	n := w.nodes["a"]
	n.dir = t.TempDir()
	n.kill()
	n.up()
	open := func(s Spec) *Group {
		t.Helper()
		s.Machine = func() StateMachine {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.diaries[1] = &diary{}
			return n.diaries[1]
		}
		g, err := n.groups.Open(s)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	old := open(Spec{ID: transport.GroupID{Shard: 1, Incarnation: 1}, Life: 3, Founders: []string{"a"}})
	var want []string
	say := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			line := fmt.Sprint("line ", i)
			want = append(want, line)
			w.propose(1, line)
		}
	}
	say(0, 20)
	if err := old.current().raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	say(20, 30)
	n.groups.Close(context.Background(), old)

	memory := &diary{}
	old = open(Spec{ID: old.ID, Life: 3, Memory: memory})
	if got := memory.all(); !slices.Equal(got, want) { // when it opens, not when it has a leader
		t.Errorf("it remembers %d lines, want %d: %v", len(got), len(want), got)
	}
	n.groups.Close(context.Background(), old)

	again := Spec{ID: transport.GroupID{Shard: 1, Incarnation: 2}, Life: 9, Founders: []string{"a"}, Seeds: []Seed{{1, 77}, {1, 3}}}
	g := open(again)
	say(30, 31)
	if got := n.diary(1).all(); !slices.Equal(got, want) {
		t.Errorf("it begins with %d lines, want %d: %v", len(got), len(want), got)
	}
	n.groups.Close(context.Background(), g)
	g = open(again)
	say(31, 32)
	if got := n.diary(1).all(); !slices.Equal(got, want) {
		t.Errorf("opened again it has %d lines, want %d", len(got), len(want))
	}
	if st := g.Status(); len(st.Replicas) != 1 || st.Replicas[0] != (Replica{Node: "a", Life: 9, Voter: true, Match: st.LastIndex}) {
		t.Errorf("its members are %+v", st.Replicas)
	}
}

// TestRemake: a group that is made anew is changed before it begins, whether
// anything is left of the one before or not, and once.
func TestRemake(t *testing.T) {
	w := newTown(t, 1)
	n := w.nodes["a"]
	n.dir = t.TempDir()
	n.kill()
	n.up()
	open := func(incarnation uint32, seeds ...Seed) *Group {
		t.Helper()
		d := &diary{}
		g, err := n.groups.Open(Spec{
			ID: transport.GroupID{Shard: 1, Incarnation: incarnation}, Life: 1, Founders: []string{"a"}, Seeds: seeds,
			Machine: func() StateMachine {
				n.mu.Lock()
				defer n.mu.Unlock()
				*d = diary{}
				n.diaries[1] = d
				return d
			},
			Remake: func() { _, _ = d.Apply(1, 1, [][]byte{[]byte("made anew")}) },
		})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := open(2)
	w.propose(1, "line")
	n.groups.Close(context.Background(), g)
	g = open(2)
	w.propose(1, "another")
	if got, want := n.diary(1).all(), []string{"made anew", "line", "another"}; !slices.Equal(got, want) {
		t.Errorf("of nothing it made %q, want %q", got, want)
	}
	n.groups.Close(context.Background(), g)
	open(3, Seed{2, 1})
	w.propose(1, "last")
	if got, want := n.diary(1).all(), []string{"made anew", "line", "another", "made anew", "last"}; !slices.Equal(got, want) {
		t.Errorf("of what was left it made %q, want %q", got, want)
	}
}
