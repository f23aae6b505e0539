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

func (b *box) putBack(c copied) { b.disk, b.logs = c.disk, c.logs }

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
		what string
		kept map[string][]Kept
		want string
		err  error
	}{
		{"nobody has any", map[string][]Kept{"a": {{2, 5, 0, 0}}, "b": nil}, "", nil},
		{"a later term beats a longer log", map[string][]Kept{"a": {{2, 5, 3, 900}}, "d": {{2, 4, 4, 17}}}, "d", nil},
		{"of one term the longer", map[string][]Kept{"a": {{2, 5, 3, 16}}, "d": {{2, 4, 3, 17}}}, "d", nil},
		{"the incarnation counts first", map[string][]Kept{"a": {{1, 1, 9, 900}}, "b": {{2, 5, 1, 3}}}, "b", nil},
		{"an earlier one is better than none", map[string][]Kept{"a": {{1, 1, 9, 900}}}, "a", nil},
		{"a majority of its voters is there", map[string][]Kept{"a": {{2, 5, 3, 16}}, "b": {{2, 5, 3, 17}}}, "", ErrLed},
		{"other lives of them have no vote", map[string][]Kept{"a": {{2, 4, 3, 16}}, "b": {{2, 5, 3, 15}}}, "a", nil},
		{"nor have other incarnations", map[string][]Kept{"a": {{1, 5, 3, 16}}, "b": {{1, 5, 3, 15}}}, "a", nil},
	} {
		if got, err := survivor(m, 1, c.kept); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", c.what, got, err)
		}
	}
}

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
	if !b.keeper.fenced() || b.keeper.leads() {
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
// those that follow, and what is acknowledged ends the list.
func TestRunsAreRemembered(t *testing.T) {
	b := &box{disk: map[string][]byte{}}
	at := func(last uint64) *Map { return &Map{Nodes: map[string]Node{"a": {Run: last}}} }
	for _, c := range []struct {
		last, run uint64
		want      []uint64
	}{
		{0, 1, []uint64{0, 1}}, {0, 2, []uint64{0, 1, 2}}, {1, 5, []uint64{1, 2, 5}}, {5, 6, []uint64{5, 6}},
	} {
		got, err := countRun(b, at(c.last), "a", c.run)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("run %d, %d is acknowledged: %v, %v", c.run, c.last, got, err)
		}
	}
	for run := uint64(100); run < 100+2*mostRuns; run++ {
		if got, err := countRun(b, nil, "a", run); err != nil || len(got) > mostRuns {
			t.Fatalf("%d runs are kept, %v", len(got), err)
		}
	}
}

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
