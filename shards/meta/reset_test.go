package meta

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSituationShardLostWhole: no replica of a shard is left. It is not made anew
// unless an operator says that it may be empty, and not empty while something is left.
func TestSituationShardLostWhole(t *testing.T) {
	w := begin(t, 1, 8, 12)
	lost := 0
	for i, s := range w.newest().Shards[1:] {
		if !slices.ContainsFunc(s.Replicas, func(r Replica) bool { return w.newest().Shards[0].keeps(r.Node) }) {
			lost = i + 1
		}
	}
	if lost == 0 {
		t.Fatal("no shard is beside meta's nodes")
	}
	before := w.newest().Shards[lost]
	for _, r := range before.Replicas {
		w.nodes[r.Node].stop()
	}
	w.run(5 * time.Second)
	k := w.leads(0).box.keeper
	if _, err := k.Reset(t.Context(), lost, false); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "--empty") {
		t.Errorf("nothing of it is left, and the reset says %v", err)
	}
	other := lost%12 + 1
	if _, err := k.Reset(t.Context(), other, true); !errors.Is(err, ErrInvalid) {
		t.Errorf("something of shard %d is left, and it is emptied: %v", other, err)
	}
	w.acked[[2]int{lost, int(before.Incarnation)}] = nil // they are lost indeed
	if founder := w.reset(lost, true); !w.nodes[founder].up {
		t.Errorf("%s does not run, and makes it anew", founder)
	}
	w.until("the shard is there again", 2*time.Minute, func() error {
		s, l := w.newest().Shards[lost], w.leads(lost)
		if s.Phase != Ready || s.Incarnation != before.Incarnation+1 || l == nil || l.own.Incarnation != s.Incarnation {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	for _, r := range before.Replicas {
		w.nodes[r.Node].start()
	}
	w.until("those that come back are fenced", 10*time.Minute, w.well)
}

// TestSituationFounderLostInAReset: the node that makes a shard anew is lost before
// it is done. What another has left of it makes it anew.
func TestSituationFounderLostInAReset(t *testing.T) {
	w := begin(t, 1, 8, 12)
	w.run(30 * time.Second)
	lost, rest := 0, []string{}
	for i, s := range w.newest().Shards[1:] {
		rest = nil
		for _, r := range s.Replicas {
			if !w.newest().Shards[0].keeps(r.Node) {
				rest = append(rest, r.Node)
			}
		}
		if lost = i + 1; len(rest) == 3 {
			break
		}
	}
	if len(rest) < 3 {
		t.Fatal("no shard is beside meta's nodes")
	}
	before := w.newest().Shards[lost]
	w.acked[[2]int{lost, int(before.Incarnation)}] = nil
	w.nodes[rest[0]].stop()
	w.nodes[rest[1]].stop()
	w.run(3 * time.Second)
	first := w.reset(lost, false)
	if first != rest[2] {
		t.Fatalf("%s makes it anew, %s is left", first, rest[2])
	}
	w.nodes[first].stop() // before it has begun
	w.nodes[rest[0]].start()
	w.run(5 * time.Second)
	second := w.reset(lost, false)
	if second != rest[0] {
		t.Errorf("then %s makes it anew, %s has what is left", second, rest[0])
	}
	w.until("it is made anew", 2*time.Minute, func() error {
		if s := w.newest().Shards[lost]; s.Phase != Ready || s.Incarnation != before.Incarnation+2 {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	w.nodes[first].start()
	w.nodes[rest[1]].start()
	w.until("all are back", 10*time.Minute, w.well)
}

// TestSurvivor: the node that has most is the one whose last entry has the highest
// term, whatever its number; an earlier incarnation's count only where there is
// none of a later one. Nodes that the map does not name may have it, too.
func TestSurvivor(t *testing.T) {
	m := founded(t, 1, 3, "a", "b", "c", "d")
	m = must(t, m, Command{Op: OpShard, Number: 1, Seen: m.Shards[1].Revision, Shard: &Shard{
		Incarnation: 2, Phase: Ready, Replicas: []Replica{{"a", 5, true}, {"b", 5, true}, {"c", 5, true}},
	}})
	for _, c := range []struct {
		what  string
		kept  map[string][]Kept
		want  string
		err   error
		group []Replica
	}{
		{"nobody has any", map[string][]Kept{"a": {{2, 5, 0, 0}}, "b": nil}, "", nil, nil},
		{"a later term beats a longer log", map[string][]Kept{"a": {{2, 5, 3, 900}}, "d": {{2, 4, 4, 17}}}, "d", nil, nil},
		{"of one term the longer", map[string][]Kept{"a": {{2, 5, 3, 16}}, "d": {{2, 4, 3, 17}}}, "d", nil, nil},
		{"the incarnation counts first", map[string][]Kept{"a": {{1, 1, 9, 900}}, "b": {{2, 5, 1, 3}}}, "b", nil, nil},
		{"an earlier one is better than none", map[string][]Kept{"a": {{1, 1, 9, 900}}}, "a", nil, nil},
		{"a majority of its voters is there", map[string][]Kept{"a": {{2, 5, 3, 16}}, "b": {{2, 5, 3, 17}}}, "", ErrLed, nil},
		{"other lives of them have no vote", map[string][]Kept{"a": {{2, 4, 3, 16}}, "b": {{2, 5, 3, 15}}}, "a", nil, nil},
		{"nor have other incarnations", map[string][]Kept{"a": {{1, 5, 3, 16}}, "b": {{1, 5, 3, 15}}}, "a", nil, nil},
		{"a majority that the map wants, and the group has not", map[string][]Kept{"a": {{2, 5, 3, 17}}, "b": {{2, 5, 3, 16}}}, "a", nil, []Replica{{"a", 5, true}, {"b", 5, false}, {"d", 4, true}, {"e", 4, true}}},
		{"a majority that the group has, and the map does not want", map[string][]Kept{"a": {{2, 5, 3, 17}}, "d": {{2, 4, 3, 16}}}, "", ErrLed, []Replica{{"a", 5, true}, {"b", 5, true}, {"d", 4, true}}},
	} {
		if got, err := survivor(m, 1, c.kept, c.group); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", c.what, got, err)
		}
	}
}
