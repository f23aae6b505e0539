package meta

import (
	"fmt"
	"testing"
	"time"
)

// heavy is a map of shards that are ready on a, b and c, with long logs, and what a
// controller sees of them and of the other nodes.
func heavy(t *testing.T, count int, others ...string) (*Map, Seen) {
	t.Helper()
	m := founded(t, count, 3, append([]string{"a", "b", "c"}, others...)...)
	seen := Seen{Peers: map[string]Peer{}, Groups: map[int]Group{}, Led: time.Hour}
	for id, n := range m.Nodes {
		seen.Peers[id] = Peer{Node: n, Alive: true, Heard: true}
	}
	for i := range m.Shards {
		s := Shard{Incarnation: 1, Phase: Ready, Founder: "a", Replicas: set("a", "b", "c")}
		m = must(t, m, Command{Op: OpShard, Number: i, Seen: m.Shards[i].Revision, Shard: &s})
		g := group("a b c")
		seen.Groups[i] = g
	}
	return m, seen
}

// steps applies a plan and counts the copies it begins, by node.
func steps(t *testing.T, m *Map, seen Seen) (*Map, map[string]int) {
	t.Helper()
	copies := map[string]int{}
	touched := map[int]bool{}
	for _, c := range Plan(m, seen) {
		if c.Op != OpShard {
			t.Fatalf("unexpected: %s", c.Encode())
		}
		if touched[c.Number] || m.Shards[c.Number].Step != nil && c.Shard.Step != nil {
			t.Errorf("shard %d gets a step while it has one", c.Number)
		}
		touched[c.Number] = true
		for _, r := range c.Shard.Replicas {
			if _, had := m.Shards[c.Number].Wants(r.Node); !had {
				copies[r.Node]++
			}
		}
		m = must(t, m, c)
	}
	return m, copies
}

func TestPlanLimits(t *testing.T) {
	for name, c := range map[string]struct {
		others []string
		want   string
	}{
		"one new node":    {[]string{"d"}, "map[d:2]"},
		"three new nodes": {[]string{"d", "e", "f"}, "4 in all"},
	} {
		t.Run(name, func(t *testing.T) {
			m, seen := heavy(t, 16, c.others...)
			m, copies := steps(t, m, seen)
			all := 0
			for node, n := range copies {
				if all += n; n > copiesPerNode {
					t.Errorf("node %s gets %d copies", node, n)
				}
			}
			if got := fmt.Sprint(copies); got != c.want && fmt.Sprintf("%d in all", all) != c.want {
				t.Errorf("copies %v, want %s", copies, c.want)
			}
			if _, more := steps(t, m, seen); len(more) > 0 {
				t.Errorf("while those are under way, more begin: %v", more)
			}
		})
	}
}

func TestPlanDoesNotCountWhatCostsNothing(t *testing.T) {
	m, seen := heavy(t, 16, "d")
	for i, g := range seen.Groups {
		g.Last = fewLacked
		seen.Groups[i] = g
	}
	if _, copies := steps(t, m, seen); copies["d"] != 12 {
		t.Errorf("copies %v, want all 12 that even things out", copies)
	}
}

func TestPlanMovesMetaLast(t *testing.T) {
	m, seen := heavy(t, 2, "d")
	n := m.Nodes["a"]
	n.State = Draining
	m = must(t, m, Command{Op: OpNode, Key: "a", Seen: n.Revision, Node: &n})
	m, _ = steps(t, m, seen)
	if m.Shards[1].Step == nil || m.Shards[0].Step != nil {
		t.Errorf("steps of shard 1 %+v, of shard 0 %+v", m.Shards[1].Step, m.Shards[0].Step)
	}
	for i := range m.Shards[1:] { // they arrive
		g := seen.Groups[i+1]
		g.Members = nil
		for _, r := range m.Shards[i+1].Replicas {
			g.Members = append(g.Members, Member{Node: r.Node, Life: r.Life, Voter: r.Voter, Live: true, Level: time.Minute})
		}
		seen.Groups[i+1] = g
	}
	m, _ = steps(t, m, seen) // their steps are over
	if m, _ = steps(t, m, seen); m.Shards[0].Step == nil || m.Shards[0].Step.Kind != Move {
		t.Errorf("shard 0: %+v", m.Shards[0].Step)
	}
}

func TestPlanGivesNothingToTheDead(t *testing.T) {
	m, seen := heavy(t, 8, "d")
	d := seen.Peers["d"]
	d.Alive, d.Heard, d.Gone = false, false, time.Second
	seen.Peers["d"] = d
	if _, copies := steps(t, m, seen); len(copies) > 0 {
		t.Errorf("copies %v", copies)
	}
}

// A node whose disk was wiped comes back as a new one, beside the one it was: what
// that one held is the new one's, and nothing is taken from the others for it.
func TestPlanTakesNothingFromTheLivingForAMissingOne(t *testing.T) {
	m, seen := heavy(t, 8, "d")
	b := seen.Peers["b"]
	b.Alive, b.Heard, b.Gone = false, false, time.Second
	seen.Peers["b"] = b
	if _, copies := steps(t, m, seen); len(copies) > 0 {
		t.Errorf("copies %v while b may yet be back", copies)
	}
}

// A replica that begins anew in the middle of a move must not have the leaving one,
// which still votes, deleted.
func TestARenewalKeepsWhoIsLeaving(t *testing.T) {
	s := Shard{Phase: Ready, Replicas: set("a", "b", "d"), Step: &Step{Kind: Move, Node: "c", Leaving: []string{"c"}}}
	s.Replicas[1].Life = 7
	if next := s.renewed("b"); !next.keeps("c") || next.Replicas[1].Life != 0 || s.Replicas[1].Life != 7 {
		t.Errorf("%+v, step %+v, and was %+v", next.Replicas, next.Step, s.Replicas)
	}
}

// TestPlanTakesALaterLife: what a generation that gave way has made anew more often than
// this one, and what leads still, is the shard, however far this one has come; an earlier
// life is not, nor one of nobody that the map knows.
func TestPlanTakesALaterLife(t *testing.T) {
	for what, c := range map[string]struct {
		phase  Phase
		kind   Kind
		leads  uint32
		node   string
		adopts bool
	}{
		"it is made here":            {Creating, Create, 3, "b", true},
		"it is made anew here":       {Creating, Reset, 3, "b", true},
		"nobody makes it here yet":   {Planned, "", 3, "b", true},
		"it is ready here":           {Ready, "", 3, "b", true},
		"an earlier life leads":      {Creating, Reset, 1, "b", false},
		"it is of an unknown node":   {Creating, Reset, 3, "x", false},
		"the life that is made here": {Creating, Create, 2, "b", false},
	} {
		m, seen := heavy(t, 1)
		m = m.clone()
		m.Shards[1] = Shard{Incarnation: 2, Phase: c.phase, Founder: "a", Replicas: []Replica{{"a", 7, true}}, Revision: m.Revision}
		if c.kind != "" {
			m.Shards[1].Step = &Step{Kind: c.kind, Node: "a"}
		}
		seen.Groups[1] = Group{Incarnation: c.leads, Leader: c.node, Term: 1, Last: 1, Members: []Member{{Node: c.node, Life: 9, Voter: true, Live: true, Level: time.Hour}}}
		s := must(t, m, Plan(m, seen)...).Shards[1]
		r, wanted := s.Wants(c.node)
		if adopts := s.Incarnation == 3 && s.Phase == Ready && wanted && r.Life == 9 && r.Voter; adopts != c.adopts {
			t.Errorf("%s: it becomes %+v", what, s)
		}
	}
}

// TestPlanAfterARecovery: what the recovered map does not know to be made is not made
// once more before those who lead it could say so, and is taken as it has come to be.
func TestPlanAfterARecovery(t *testing.T) {
	const later = 1<<nodeBits | 7
	made := []Replica{{"a", 7, true}}
	at := func(life uint64, nodes ...string) (g Group) {
		g = Group{Incarnation: 1, Leader: nodes[0], Term: 1, Last: 1}
		for _, n := range nodes {
			g.Members = append(g.Members, Member{Node: n, Life: life, Voter: true, Live: true, Level: time.Hour})
		}
		return g
	}
	for what, c := range map[string]struct {
		generation uint32
		shard      Shard
		dead       bool // the founder
		led        time.Duration
		group      *Group
		want       string
	}{
		"founded, and nobody has made it":  {1, Shard{Phase: Planned}, false, time.Second, nil, "1 creating"},
		"recovered, it may be made":        {later, Shard{Phase: Planned}, false, time.Second, nil, "0 planned"},
		"recovered, nobody has said so":    {later, Shard{Phase: Planned}, false, joinWait, nil, "1 creating"},
		"its founder is lost":              {1, Shard{Incarnation: 1, Phase: Creating, Founder: "a", Replicas: made}, true, time.Second, nil, "2 creating"},
		"recovered, its founder is lost":   {later, Shard{Incarnation: 1, Phase: Creating, Founder: "a", Replicas: made}, true, time.Second, nil, "1 creating"},
		"it was made":                      {later, Shard{Incarnation: 1, Phase: Creating, Founder: "a", Replicas: made}, false, time.Second, new(at(7, "a")), "1 ready a7"},
		"it was made, and has gone on":     {later, Shard{Incarnation: 1, Phase: Creating, Founder: "a", Replicas: made}, false, time.Second, new(at(9, "b", "c")), "1 ready b9 c9"},
		"it was made, and has grown since": {later, Shard{Incarnation: 1, Phase: Creating, Founder: "a", Replicas: made}, false, time.Second, new(at(7, "a", "b", "c")), "1 ready a7 b7 c7"},
	} {
		m, seen := heavy(t, 1)
		m = m.clone()
		m.Shards[0].Incarnation, c.shard.Revision = c.generation, m.Revision
		m.Shards[1] = c.shard
		if c.shard.Phase == Creating {
			m.Shards[1].Step = &Step{Kind: Create, Node: "a"}
		}
		if c.dead {
			n := m.Nodes["a"]
			n.State = Dead
			m.Nodes["a"] = n
			seen.Peers["a"] = Peer{Node: n, Gone: time.Hour}
		}
		delete(seen.Groups, 1)
		if c.group != nil {
			seen.Groups[1] = *c.group
		}
		seen.Led = c.led
		s := must(t, m, Plan(m, seen)...).Shards[1]
		got := fmt.Sprintf("%d %s", s.Incarnation, s.Phase)
		if s.Phase == Ready {
			for _, r := range s.Replicas {
				got += fmt.Sprintf(" %s%d", r.Node, r.Life)
			}
		}
		if got != c.want {
			t.Errorf("%s: it is %s, want %s; %+v", what, got, c.want, s)
		}
	}
}
