package meta

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// strangers are two nodes that have no shard in common.
func (w *world) strangers() (one, two string) {
	shards := w.newest().Shards
	for _, one = range w.ids() {
		for _, two = range w.ids() {
			if one != two && !slices.ContainsFunc(shards, func(s Shard) bool { return s.keeps(one) && s.keeps(two) }) {
				return one, two
			}
		}
	}
	w.fail("any two nodes have a shard in common")
	return "", ""
}

// pauses is what meta's leader says of that.
func (w *world) pauses() string {
	w.until("meta has a leader", 10*time.Second, func() error {
		if w.leads(0) == nil {
			return errors.New("it has none")
		}
		return nil
	})
	return w.leads(0).box.keeper.Pauses()
}

// TestSituationManyLost: two of five nodes are lost for ever. For a quarter of an hour
// that is taken for a fault of the network; then others get what they had.
func TestSituationManyLost(t *testing.T) {
	w := begin(t, 1, 5, 2)
	one, two := w.strangers()
	w.nodes[one].stop()
	w.nodes[two].stop()
	w.run(14 * time.Minute)
	if m := w.newest(); m.Nodes[one].State != Active || m.Nodes[two].State != Active || w.pauses() == "" {
		t.Errorf("after 14 minutes they are %+v, %+v", m.Nodes[one], m.Nodes[two])
	}
	w.until("the others have what they had", 10*time.Minute, func() error {
		m := w.newest()
		if m.used(one) || m.used(two) {
			return errors.New("they still have some")
		}
		return w.well()
	})
	if why := w.pauses(); why != "" {
		t.Errorf("it pauses still: %s", why)
	}
}

// TestSituationMetaLeadersFollowEachOther: each leader of meta has seen for itself
// since when a node is gone, before it led.
func TestSituationMetaLeadersFollowEachOther(t *testing.T) {
	w := begin(t, 1, 5, 4)
	lost := ""
	for _, id := range w.ids() {
		if !w.newest().Shards[0].keeps(id) {
			lost = id
		}
	}
	w.nodes[lost].stop()
	gone, handed := w.now, w.now
	w.until("it is declared dead", 80*time.Second, func() error {
		if s := w.newest().Nodes[lost].State; s == Dead || !w.newest().used(lost) {
			return nil
		}
		if l := w.leads(0); l != nil && w.now-handed > 20*time.Second {
			handed = w.now
			for _, r := range w.newest().Shards[0].Replicas {
				if r.Node != l.box.id && l.transfer(r) == nil {
					break
				}
			}
		}
		return errors.New("it is not")
	})
	if handed == gone {
		t.Error("meta had one leader all the while")
	}
}

// TestDeadNodesAreForgottenInADay, however often meta's leader changes.
func TestDeadNodesAreForgottenInADay(t *testing.T) {
	m := founded(t, 1, 1, "a", "b", "c", "d")
	seen := Seen{Led: time.Minute, Wall: 1000, Peers: map[string]Peer{"d": {Node: m.Nodes["d"], Gone: deadAfter}}}
	for _, id := range []string{"a", "b", "c"} {
		seen.Peers[id] = Peer{Node: m.Nodes[id], Alive: true, Heard: true}
	}
	m = must(t, m, Plan(m, seen)...)
	if n := m.Nodes["d"]; n.State != Dead || n.Since != 1000 {
		t.Fatalf("it is %+v", n)
	}
	p := seen.Peers["d"]
	p.Gone = time.Second // to a leader that has just begun
	seen.Peers["d"], seen.Wall = p, 1000+uint64(23*time.Hour/time.Millisecond)
	if m = must(t, m, Plan(m, seen)...); m.Nodes["d"].State != Dead {
		t.Errorf("after 23 hours it is %s", m.Nodes["d"].State)
	}
	seen.Wall += uint64(time.Hour / time.Millisecond)
	if m = must(t, m, Plan(m, seen)...); m.Nodes["d"].State != Removed {
		t.Errorf("after a day it is %s", m.Nodes["d"].State)
	}
}

// TestDeadNodesHoldNoLevelBack: what is dead does not keep the cluster at its level.
func TestDeadNodesHoldNoLevelBack(t *testing.T) {
	m := founded(t, 1, 1, "a", "b", "c", "d")
	n := m.Nodes["d"]
	n.State = Dead
	m = must(t, m, Command{Op: OpNode, Key: "d", Seen: n.Revision, Node: &n})
	seen := Seen{Led: time.Hour, Peers: map[string]Peer{"d": {Node: m.Nodes["d"], Gone: time.Hour}}}
	for _, id := range []string{"a", "b", "c"} {
		p := Peer{Node: m.Nodes[id], Alive: true, Heard: true}
		p.Level = 2
		seen.Peers[id] = p
	}
	if m = must(t, m, Plan(m, seen)...); m.Level != 2 {
		t.Errorf("level %d", m.Level)
	}
	p := seen.Peers["d"]
	p.Alive, p.Heard, p.Level = true, true, 1
	seen.Peers["d"] = p
	if m = must(t, m, Plan(m, seen)...); m.Nodes["d"].State == Active {
		t.Error("a node that is too old counts again")
	}
}

// TestAllLeaveAtOnce: of two nodes that leave in the same moment one is told that it
// is the last, whoever decides.
func TestAllLeaveAtOnce(t *testing.T) {
	w := begin(t, 1, 2, 2)
	k := w.leads(0).box.keeper
	m := k.Map()
	refused := 0
	for _, id := range w.ids() { // both have seen the same map
		n := m.Nodes[id]
		n.State, n.Leaving = Draining, true
		if _, err := k.Propose(t.Context(), Command{Op: OpNode, Key: id, Seen: m.Nodes[id].Revision, Node: &n}); errors.Is(err, ErrStale) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused != 1 {
		t.Errorf("%d of two were refused", refused)
	}
	k.adopt()
	for _, id := range w.ids() {
		if err := k.Leave(t.Context(), id); !k.Map().Nodes[id].Leaving && !errors.Is(err, ErrLast) {
			t.Errorf("%s is told %v", id, err)
		}
	}
}

// TestRefusalsComeOver: what a rule forbids is told as that by another node, too,
// and nobody tries it again.
func TestRefusalsComeOver(t *testing.T) {
	w := begin(t, 1, 3, 2)
	for _, id := range w.ids() {
		k := w.nodes[id].keeper
		s := k.Map().Shards[1]
		next := s
		next.Incarnation = 0
		if _, err := k.Propose(t.Context(), Command{Op: OpShard, Number: 1, Seen: s.Revision, Shard: &next}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestNoReplicaIsDroppedEarly: a node keeps its replica until its group is known to
// be without it.
func TestNoReplicaIsDroppedEarly(t *testing.T) {
	m := founded(t, 1, 3, "a", "b", "c", "d")
	become := func(s Shard) error {
		next, r := Apply(m, Command{Op: OpShard, Number: 1, Seen: m.Shards[1].Revision, Shard: &s})
		m = next
		return r.Refused
	}
	abc := []Replica{{"a", 5, true}, {"b", 5, true}, {"c", 5, true}}
	abd := []Replica{{"a", 5, true}, {"b", 5, true}, {"d", 0, true}}
	leaving := &Step{Kind: Move, Node: "c", Leaving: []string{"c"}}
	for _, c := range []struct {
		what  string
		to    Shard
		works bool
	}{
		{"it is made", Shard{Incarnation: 1, Phase: Ready, Replicas: abc}, true},
		{"c is dropped", Shard{Incarnation: 1, Phase: Ready, Replicas: abd}, false},
		{"c is dropped, with a step that forgets it", Shard{Incarnation: 1, Phase: Ready, Replicas: abd, Step: &Step{Kind: Move}}, false},
		{"c leaves", Shard{Incarnation: 1, Phase: Ready, Replicas: abd, Step: leaving}, true},
		{"c is forgotten on its way", Shard{Incarnation: 1, Phase: Ready, Replicas: abd, Step: &Step{Kind: Replace}}, false},
		{"another is wanted instead, and c forgotten", Shard{Incarnation: 1, Phase: Ready, Replicas: abd[:2]}, false},
		{"the step is done", Shard{Incarnation: 1, Phase: Ready, Replicas: abd}, true},
		{"a new incarnation drops whom it likes", Shard{Incarnation: 2, Phase: Creating, Founder: "a", Replicas: abc[:1]}, true},
	} {
		if err := become(c.to); (err == nil) != c.works {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
