package meta

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// The situations that a cluster gets into, one test each; docs/operations.md tells
// them to people.

func TestSituationFirstStart(t *testing.T) {
	all := newcomers("a", "b", "c", "d")
	founders := 0
	for _, n := range all {
		for _, half := range [][]Newcomer{all[:2], all[2:]} {
			if f := Found(n.ID, half); f.Found {
				t.Errorf("%s founds with half of the nodes", n.ID)
			}
		}
		if f := Found(n.ID, all); f.Found {
			founders++
		}
	}
	if founders != 1 {
		t.Errorf("%d nodes found a cluster", founders)
	}
	w := newWorld(t, 1)
	for range 4 {
		w.add("", true)
	}
	w.found(8)
	t.Log("4 nodes found a cluster and its shards in", w.until("the beginning", time.Minute, w.well))
}

func TestSituationFounderEndsWhileItFounds(t *testing.T) {
	w := newWorld(t, 1)
	for range 3 {
		w.add("", true)
	}
	w.found(4)
	founder := w.nodes["n01"]
	founder.stop() // the map is kept, the group may be made, nothing is in its log
	w.run(10 * time.Second)
	founder.logs = map[Own]*log{}
	founder.start()
	w.until("the beginning", time.Minute, w.well)
}

func TestSituationColdRestartOfAll(t *testing.T) {
	w := begin(t, 1, 3, 8)
	w.run(10 * time.Second)
	before := w.newest()
	for _, b := range w.nodes {
		b.stop()
	}
	w.run(2 * time.Minute)
	w.nodes["n02"].start()
	w.nodes["n03"].start()
	took := w.until("leaders from disk alone", 30*time.Second, func() error {
		for i := range before.Shards {
			if w.leads(i) == nil {
				return fmt.Errorf("shard %d has no leader", i)
			}
		}
		return nil
	})
	t.Log("two of three nodes lead all shards after", took)
	w.nodes["n01"].start()
	w.until("all is well", time.Minute, w.well)
	for i, s := range w.newest().Shards {
		if s.Incarnation != before.Shards[i].Incarnation {
			t.Errorf("shard %d was made anew", i)
		}
	}
}

func TestSituationColdRestartWithoutMeta(t *testing.T) {
	w := begin(t, 1, 7, 4)
	m := w.newest()
	for id, b := range w.nodes {
		if b.stop(); !m.Shards[0].keeps(id) {
			b.start()
		}
	}
	w.run(20 * time.Second)
	for i, s := range m.Shards[1:] {
		up := 0
		for _, r := range s.Replicas {
			if w.nodes[r.Node].up {
				up++
			}
		}
		if led := w.leads(i+1) != nil; led != (up >= 2) {
			t.Errorf("shard %d: %d of 3 replicas run, led is %v", i+1, up, led)
		}
	}
}

func TestSituationNodeLostForEver(t *testing.T) {
	w := begin(t, 1, 5, 16)
	w.nodes["n02"].stop()
	w.run(50 * time.Second)
	if s := w.newest().Nodes["n02"].State; s != Active {
		t.Errorf("after 50 s it is %s", s)
	}
	t.Log("replaced after another", w.until("its replicas are elsewhere", 5*time.Minute, func() error {
		if w.newest().used("n02") {
			return errors.New("it still has some")
		}
		return w.well()
	}))
	w.nodes["n02"].start()
	w.until("it is back and gets its share", 5*time.Minute, w.well)
}

func TestSituationNodeLostWithoutAnother(t *testing.T) {
	w := begin(t, 1, 3, 4)
	w.nodes["n02"].stop()
	w.run(5 * time.Minute)
	m := w.newest()
	if s := m.Nodes["n02"].State; s != Dead {
		t.Errorf("it is %s", s)
	}
	for i, s := range m.Shards {
		if s.Voters() != 3 || s.Step != nil {
			t.Errorf("shard %d shrank: %v, %+v", i, s.Replicas, s.Step)
		}
	}
	w.nodes["n02"].start()
	w.until("it is back", time.Minute, w.well)
}

func TestSituationManyLookDead(t *testing.T) {
	w := begin(t, 1, 5, 4)
	before := w.newest()
	w.nodes["n02"].stop()
	w.nodes["n04"].stop()
	w.run(10 * time.Minute)
	if m := w.newest(); m.Revision != before.Revision {
		t.Errorf("two of five nodes look dead, and something was decided: %v", w.story[len(w.story)-5:])
	}
}

func TestSituationWipedDisk(t *testing.T) {
	w := begin(t, 1, 3, 4)
	b := w.nodes["n02"]
	b.stop()
	b.wiped, b.logs = true, map[Own]*log{}
	w.add("", true)
	w.until("the new node has the old one's replicas", 5*time.Minute, func() error {
		if w.newest().used("n02") {
			return errors.New("the old one still has some")
		}
		return w.well()
	})
	m := w.newest()
	seen := Seen{Peers: map[string]Peer{"n02": {Node: m.Nodes["n02"], Gone: forgetAfter}}, Led: forgetAfter}
	for id, n := range m.Nodes {
		if id != "n02" {
			seen.Peers[id] = Peer{Node: n, Alive: true, Heard: true}
		}
	}
	if m = must(t, m, Plan(m, seen)...); m.Nodes["n02"].State != Removed {
		t.Errorf("a day later the old node is %s", m.Nodes["n02"].State)
	}
}

func TestSituationTwoClustersMixed(t *testing.T) {
	one, two := begin(t, 1, 1, 2), begin(t, 2, 1, 2)
	k := one.nodes["n01"].keeper
	before := k.Map()
	other := two.newest().clone()
	other.Revision += 1000
	if err := k.Take(other); !errors.Is(err, ErrInvalid) {
		t.Errorf("a map of another cluster: %v", err)
	}
	if k.Map() != before {
		t.Error("it was taken")
	}
	fresh := []Newcomer{{ID: "x", Expect: 1, Hosts: true}, {ID: "y", Cluster: before.Cluster}}
	if f := Found("x", fresh); f.Found || f.Join != before.Cluster {
		t.Errorf("a node that sees a cluster does %+v", f)
	}
}

func TestSituationRollingUpgrade(t *testing.T) {
	m := founded(t, 1, 1, "a", "b")
	peer := func(level uint32) Peer {
		return Peer{Node: Node{Hosts: true, Level: level, Boot: 2}, Alive: true, Heard: true}
	}
	level := func(a, b uint32) uint32 {
		for _, c := range Plan(m, Seen{Peers: map[string]Peer{"a": peer(a), "b": peer(b)}, Led: time.Hour}) {
			m = must(t, m, c)
		}
		return m.Level
	}
	if l := level(2, 1); l != 1 {
		t.Errorf("one node is new: level %d", l)
	}
	if l := level(2, 2); l != 2 {
		t.Errorf("both are new: level %d", l)
	}
	if l := level(2, 1); l != 2 {
		t.Errorf("one is old again: level %d", l)
	}
	for _, c := range Plan(m, Seen{Peers: map[string]Peer{"a": peer(2), "b": peer(2), "old": peer(1)}, Led: time.Hour}) {
		m = must(t, m, c)
	}
	if s := m.Nodes["old"].State; s != Joining {
		t.Errorf("a node that is too old is %s", s)
	}
	_, err := NewMachine().Apply(1, 1, [][]byte{[]byte(strings.Replace(string(Command{Op: OpLevel, Level: 9}.Encode()), "level", "tomorrow", 1))})
	if !errors.Is(err, errCode) {
		t.Errorf("a command of tomorrow: %v", err)
	}
}

func TestSituationRestart(t *testing.T) {
	w := begin(t, 1, 3, 4)
	before := w.steps
	for _, id := range w.ids() {
		w.nodes[id].stop()
		w.run(30 * time.Second)
		w.nodes[id].start()
		w.until("all is well after its restart", 2*time.Minute, w.well)
	}
	if w.steps != before {
		t.Errorf("restarts of half a minute moved replicas: %d steps", w.steps-before)
	}
}

func TestSituationDrainedNode(t *testing.T) {
	w := begin(t, 1, 4, 8)
	set := func(state NodeState) {
		m := w.newest()
		n := m.Nodes["n03"]
		n.State = state
		if _, err := w.nodes["n01"].keeper.Propose(context.Background(), Command{Op: OpNode, Key: "n03", Seen: n.Revision, Node: &n}); err != nil {
			t.Fatal(err)
		}
	}
	set(Draining)
	w.until("it has no replicas", 5*time.Minute, func() error {
		if m := w.newest(); m.used("n03") || m.Nodes["n03"].State != Draining || len(w.nodes["n03"].keeper.Own()) > 0 {
			return fmt.Errorf("it is %+v", m.Nodes["n03"])
		}
		return w.reached()
	})
	set(Active)
	w.until("it has its share again", 5*time.Minute, w.well)
}

// TestSituationDrainedNodeWithoutAnother: where there is no other node for its
// replicas a drained node keeps them, votes and all, and leads nothing; so it is over
// its restart. A node that leaves goes before it.
func TestSituationDrainedNodeWithoutAnother(t *testing.T) {
	w := begin(t, 1, 3, 8)
	rule := func(verb func(*Keeper, context.Context, string) error, node string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // of real time, on a machine that may be busy
		defer cancel()
		if err := verb(w.leads(0).box.keeper, ctx, node); err != nil {
			t.Fatal(err)
		}
	}
	rule((*Keeper).SetAside, "n03")
	rests := func() error {
		m := w.newest()
		if m.Nodes["n03"].State != Draining {
			return fmt.Errorf("it is %+v", m.Nodes["n03"])
		}
		for i, s := range m.Shards {
			if len(s.Replicas) != 3 || s.Voters() != 3 {
				return fmt.Errorf("shard %d has replicas %+v", i, s.Replicas)
			}
			if l := w.nodes["n03"].log(i); l == nil || l.leads {
				return fmt.Errorf("shard %d is led by the drained node, or not there", i)
			}
		}
		return w.reached()
	}
	w.until("it leads nothing and keeps all", 5*time.Minute, rests)
	w.nodes["n03"].stop()
	w.run(30 * time.Second)
	w.nodes["n03"].start()
	w.until("it rests as before", 5*time.Minute, rests)
	rule((*Keeper).Leave, "n02")
	w.until("the other one has left", 5*time.Minute, func() error {
		m := w.newest()
		if m.Nodes["n02"].State != Removed {
			return fmt.Errorf("it is %+v", m.Nodes["n02"])
		}
		for i, s := range m.Shards {
			if r, _ := s.Wants("n01"); !r.Voter || s.Voters() != 1 || len(s.Replicas) != 2 {
				return fmt.Errorf("shard %d has replicas %+v", i, s.Replicas)
			}
		}
		return nil
	})
	rule((*Keeper).Stay, "n03")
	w.until("it leads its share", 5*time.Minute, func() error {
		if m := w.newest(); m.Nodes["n03"].State != Active {
			return fmt.Errorf("it is %+v", m.Nodes["n03"])
		}
		return w.reached()
	})
}

// TestSituationDrainedNodesAreSwitchedOff: whoever was drained and holds nothing may be
// switched off: that is no sign of a network that failed, and a node that dies then is
// replaced as ever.
func TestSituationDrainedNodesAreSwitchedOff(t *testing.T) {
	w := begin(t, 1, 7, 8)
	for _, id := range []string{"n05", "n06", "n07"} {
		w.until(id+" is set aside", time.Minute, func() error { return w.setAside(id, true) })
	}
	w.until("they hold nothing", 10*time.Minute, func() error {
		for _, id := range []string{"n05", "n06", "n07"} {
			if w.newest().used(id) {
				return fmt.Errorf("%s holds replicas", id)
			}
		}
		return w.reached()
	})
	for _, id := range []string{"n05", "n06", "n07", "n04"} {
		w.nodes[id].stop()
	}
	w.until("n04 is replaced", 5*time.Minute, func() error {
		if m := w.newest(); m.used("n04") {
			return fmt.Errorf("it is %+v", m.Nodes["n04"])
		}
		return w.reached()
	})
}

func TestSituationPureProxy(t *testing.T) {
	w := begin(t, 1, 3, 4)
	w.add("", false)
	w.add("", false)
	w.run(time.Minute)
	for _, id := range []string{"n04", "n05"} {
		if n := w.newest().Nodes[id]; n.State != Active || len(w.nodes[id].keeper.Own()) > 0 {
			t.Errorf("%s is %+v with %v", id, n, w.nodes[id].keeper.Own())
		}
	}
	w.until("all is well", time.Minute, w.well)
}

func TestSituationZones(t *testing.T) {
	w := newWorld(t, 1)
	for _, zone := range []string{"x", "y", "z", "x", "y", "z"} {
		w.add(zone, true)
	}
	w.found(12)
	w.until("each shard is in three zones", 5*time.Minute, w.well)
	w.nodes["n02"].stop()
	w.until("a zone with half of its nodes gets no more than it can bear", 5*time.Minute, func() error {
		if m := w.newest(); m.used("n02") || m.loads()["n05"] > 8 {
			return fmt.Errorf("n05 has %d replicas", m.loads()["n05"])
		}
		return w.reached()
	})
}

// TestSituationControllerDiesAtEachDecision kills the leader of meta whenever it
// has decided something, in the midst of a growth.
func TestSituationControllerDiesAtEachDecision(t *testing.T) {
	w := begin(t, 3, 3, 4)
	w.add("", true)
	w.add("", true)
	deaths, down := 0, (*box)(nil)
	decided, since := w.newest().Revision, w.now
	w.until("five nodes", 30*time.Minute, func() error {
		if down != nil && w.now-since > 5*time.Second {
			down.start()
			down = nil
		}
		if m := w.newest(); down == nil && m.Revision > decided {
			decided = m.Revision
			if l := w.leads(0); l != nil && w.survives(l.box) {
				down, since, deaths = l.box, w.now, deaths+1
				down.stop()
			}
		}
		if down != nil {
			return errors.New("the controller is dead")
		}
		return w.well()
	})
	if deaths < 8 {
		t.Errorf("it died %d times only", deaths)
	}
	t.Logf("%d deaths", deaths)
}

func TestSituationShardMajorityLost(t *testing.T) {
	w := begin(t, 1, 7, 6)
	w.run(time.Minute)
	lost, gone := 0, []string{}
	for i, s := range w.newest().Shards[1:] {
		gone = nil
		for _, r := range s.Replicas {
			if !w.newest().Shards[0].keeps(r.Node) {
				gone = append(gone, r.Node)
			}
		}
		if len(gone) >= 2 {
			lost = i + 1
			break
		}
	}
	if lost == 0 {
		t.Fatal("no shard has two replicas beside meta's nodes")
	}
	before, acked := w.newest().Shards[lost], len(w.acked[[2]int{lost, 1}])
	for _, id := range gone[:2] {
		w.nodes[id].stop()
	}
	w.run(5 * time.Second)
	k := w.leads(0).box.keeper
	ctx := context.Background()
	if _, err := k.Reset(ctx, lost%6+1, false); err == nil && w.leads(lost%6+1) != nil {
		t.Error("a shard that has a leader was made anew")
	}
	founder, err := k.Reset(ctx, lost, false)
	if err != nil || !w.nodes[founder].up {
		t.Fatalf("founder %q: %v", founder, err)
	}
	w.until("the shard is whole again", 5*time.Minute, func() error {
		if s := w.newest().Shards[lost]; s.Phase != Ready || s.Incarnation != before.Incarnation+1 || s.Voters() != 3 {
			return fmt.Errorf("it is %+v", s)
		}
		return w.settled(lost)
	})
	have := map[int]bool{}
	for _, e := range w.leads(lost).entries {
		have[e.client] = true
	}
	missing := 0
	for _, c := range w.acked[[2]int{lost, 1}][:acked] {
		if !have[c] {
			missing++
		}
	}
	if missing > acked/10 {
		t.Errorf("%d of %d commands that the survivor had are lost", missing, acked)
	}
	for _, id := range gone[:2] {
		w.nodes[id].start()
	}
	w.until("those that come back are fenced", 5*time.Minute, w.well)
	for _, b := range w.nodes {
		for _, r := range b.keeper.Own() {
			if r.Shard == lost && r.Incarnation == before.Incarnation {
				t.Errorf("%s keeps %+v", b.id, r)
			}
		}
	}
}

func TestSituationMetaMajorityLost(t *testing.T) {
	w := begin(t, 1, 5, 4)
	w.run(30 * time.Second)
	var survivor *box
	for _, r := range w.newest().Shards[0].Replicas {
		if b := w.nodes[r.Node]; survivor == nil {
			survivor = b
		} else {
			b.stop()
			b.wiped = true
		}
	}
	w.run(20 * time.Second)
	if w.leads(0) != nil {
		t.Fatal("meta has a leader")
	}
	before := survivor.keeper.Map()
	survivor.stop()
	if _, err := Recover(t.TempDir(), survivor.id); err == nil {
		t.Error("a node without a map was recovered")
	}
	r, err := recovery(survivor, survivor.id, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Do(); err != nil {
		t.Fatal(err)
	}
	survivor.start()
	w.until("meta decides again", time.Minute, func() error {
		if l := w.leads(0); l == nil || l.box != survivor {
			return errors.New("it has no leader")
		}
		for _, id := range w.ids() {
			if b := w.nodes[id]; b.up && b.keeper.Map().Revision < before.Revision+leap {
				return fmt.Errorf("%s has revision %d", id, b.keeper.Map().Revision)
			}
		}
		return nil
	})
	if m := w.newest(); m.Cluster != before.Cluster || string(m.Secret) != string(before.Secret) {
		t.Error("it is another cluster")
	}
	w.add("", true)
	w.add("", true)
	w.until("meta has three voters", 5*time.Minute, func() error {
		if s := w.newest().Shards[0]; s.Voters() < 3 {
			return fmt.Errorf("it is %+v", s)
		}
		return w.settled(0)
	})
}
