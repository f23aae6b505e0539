package meta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// losses is a world that loses more than it can bear, and operators who reset shards
// and recover meta. What they say is lost may be, and nothing else.
type losses struct {
	*world
	groups  map[int][2]int               // by shard: the group that the map is about
	made    map[[2]int]bool              // groups whose beginning was seen; a map that is lost may name an earlier one again
	decided map[uint32]map[string]uint64 // by generation: pools that were acknowledged, and in which revision
	tried   map[int]map[string]left      // by shard: what there was of it when a reset was tried that may be done yet
	headed  time.Duration                // when meta had a leader last
	two     map[int]time.Duration        // by shard: since when two lead it that reach each other

	fires, resets, empties, recoveries, refused, twice int
}

// TestRandomLosses: in lives as of TestRandomLives, nodes are lost in numbers, some with
// their disks, and come back or do not; operators reset what has lost its majority, and
// recover meta, as they are told to. No shard has two leaders in a term, or for long in two
// incarnations; no node's map goes back; what a survivor had, and what was decided up
// to the revision that meta was recovered from, is there; and in the end all is well.
func TestRandomLosses(t *testing.T) {
	first, seeds := rand.Uint64N(1<<32), 2
	if s := os.Getenv("SEED"); s != "" {
		first, _ = strconv.ParseUint(s, 10, 64)
	}
	if s := os.Getenv("SEEDS"); s != "" {
		seeds, _ = strconv.Atoi(s)
	}
	sum, all := &losses{}, []uint64{19, 12003, 79487028, 79487723} // in which two groups of one incarnation met, a shard was lost on its way to other nodes, a leader of an earlier generation answered who recovers, and the side that gave way had made a shard anew more often
	for i := range seeds {
		all = append(all, first+uint64(i))
	}
	for _, seed := range all {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := lose(t, seed)
			sum.fires, sum.resets, sum.empties = sum.fires+w.fires, sum.resets+w.resets, sum.empties+w.empties
			sum.recoveries, sum.refused, sum.twice = sum.recoveries+w.recoveries, sum.refused+w.refused, sum.twice+w.twice
		})
	}
	t.Logf("%d fires, %d resets, %d of them empty, %d recoveries, %d of them not done, %d times on two nodes", sum.fires, sum.resets, sum.empties, sum.recoveries, sum.refused, sum.twice)
}

func lose(t *testing.T, seed uint64) *losses {
	w := &losses{world: begin(t, seed, 4+int(seed%3), 5), groups: map[int][2]int{}, made: map[[2]int]bool{}, tried: map[int]map[string]left{}, decided: map[uint32]map[string]uint64{}, two: map[int]time.Duration{}}
	w.each, w.births, w.acked, w.leaders = w.look, map[string]int{}, map[[2]int][]int{}, map[string]string{}
	for i := range w.newest().Shards {
		w.groups[i] = w.leads(i).group()
	}
	for range 20 {
		w.decide()
		if w.r.IntN(3) == 0 {
			w.burn()
		} else {
			w.harm()
		}
		w.run(time.Duration(1+w.r.IntN(30)) * time.Second)
		w.operate()
	}
	for _, b := range w.nodes {
		if b.cut = false; !b.up && !b.wiped && !b.left {
			b.start()
		}
	}
	w.say("quiet")
	w.tick() // of who has just started nobody knows
	w.until("nobody is set aside after quiet", 5*time.Minute, func() error { w.operate(); return w.restless() })
	last := w.now
	w.until("all is well after quiet", time.Hour, func() error {
		if w.now > last+30*time.Second {
			last = w.now
			w.operate()
		}
		return w.well()
	})
	if w.steps < 20 {
		t.Errorf("%d steps were taken: too few to show anything", w.steps)
	}
	return w
}

// restless is nobodyRests, where there may be nobody to ask.
func (w *losses) restless() error {
	if w.leads(0) == nil {
		return errors.New("meta has no leader")
	}
	return w.nobodyRests()
}

// burn has some nodes be lost in one moment, some with their disks. One that hosts is
// left, and another's disk.
func (w *losses) burn() {
	ids := w.ids()
	w.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	up, disks := 0, 0
	for _, b := range w.nodes {
		if b.whole() {
			disks++
			if b.up {
				up++
			}
		}
	}
	lost := 0
	for most := 1 + w.r.IntN(3); lost < most; lost++ {
		i := slices.IndexFunc(ids, func(id string) bool { return w.nodes[id].whole() && w.nodes[id].up })
		if i < 0 || up < 2 {
			break
		}
		b := w.nodes[ids[i]]
		up--
		b.stop()
		if wiped := disks > 2 && w.r.IntN(3) == 0; wiped {
			disks--
			b.wiped, b.logs = true, map[Own]*log{}
			w.add(b.zone, b.host)
			w.say("%s is lost with its disk", b.id)
		} else {
			w.say("%s is lost", b.id)
		}
	}
	if lost > 0 {
		w.fires++
	}
}

// whole tells whether a node has a disk from which meta may be recovered.
func (b *box) whole() bool {
	m := b.keeper.Map()
	return m != nil && m.Nodes[b.id].Hosts && !b.wiped && !b.left
}

// decide has an operator decide something, if anybody can.
func (w *losses) decide() {
	l := w.leads(0)
	if l == nil || !l.box.keeper.leads() {
		return
	}
	name := fmt.Sprintf("p%04d", len(w.story))
	r, err := l.box.keeper.propose(context.Background(), Command{Op: OpPool, Key: name, Pool: &Pool{Backends: []Backend{{ID: "b", URL: "http://b", Weight: 1, Added: true}}}})
	if err == nil {
		w.of(l.own.Incarnation)[name] = r.Revision
	}
}

func (w *losses) of(generation uint32) map[string]uint64 {
	if w.decided[generation] == nil {
		w.decided[generation] = map[string]uint64{}
	}
	return w.decided[generation]
}

// operate is what operators do about what has no leader.
func (w *losses) operate() {
	if l := w.leads(0); l != nil && l.box.keeper.leads() {
		for i := range w.newest().Shards[1:] {
			if w.leads(i+1) == nil && w.r.IntN(2) == 0 {
				w.makeAnew(l.box, i+1, false)
			}
		}
		return
	}
	if !w.metaIsLost() || w.r.IntN(3) == 0 {
		return
	}
	by := w.candidates()
	switch {
	case len(by) == 0:
	case len(by) > 1 && w.r.IntN(3) == 0:
		w.beginTwice(by[0], by[1])
	default:
		w.begins(by[0])
	}
}

// metaIsLost tells whether so many of meta's voters are down that it cannot lead, or
// nobody that is up has the map of the generation that all have heard of, or it has had no
// leader for long: who votes may be others than the map says.
func (w *losses) metaIsLost() bool {
	s, up, latest := w.newest().Shards[0], 0, uint32(0)
	for _, b := range w.nodes {
		if b.up && !b.cut && b.keeper.Map() != nil {
			latest = max(latest, b.keeper.latest())
		}
	}
	for _, r := range s.Replicas {
		if b := w.nodes[r.Node]; r.Voter && b.up && !b.cut {
			up++
		}
	}
	return 2*up <= s.Voters() || s.Incarnation < latest || w.now-w.headed > time.Minute
}

// candidates are the nodes to recover meta on, the best one first: of those that had
// a replica of it, the one with the highest revision.
func (w *losses) candidates() (all []*box) {
	holds := func(b *box) int {
		if slices.ContainsFunc(b.keeper.Own(), func(o Own) bool { return o.Shard == 0 }) {
			return 1
		}
		return 0
	}
	for _, id := range w.ids() {
		if b := w.nodes[id]; b.up && !b.cut && b.whole() {
			all = append(all, b)
		}
	}
	slices.SortStableFunc(all, func(a, b *box) int {
		m, o := a.keeper.Map(), b.keeper.Map()
		return cmp.Or(cmp.Compare(holds(b), holds(a)), cmp.Compare(o.Revision, m.Revision))
	})
	return all
}

// begins has meta recovered on a node: what was decided up to its revision stays. It
// follows those that were recovered without it, if it hears of any, and who leads meta.
func (w *losses) begins(b *box) {
	m, heard := b.keeper.Map(), b.keeper.latest()
	led := slices.ContainsFunc(w.ids(), func(id string) bool {
		o := w.nodes[id]
		return o != b && o.up && !o.cut && o.keeper.leads() && o.keeper.Map().Generation() >= max(m.Generation(), heard)
	})
	next, from := b.recover(), m.Revision
	for id, o := range w.nodes { // what others have of the same generation it hears of first
		if have := o.keeper.Map(); id != b.id && !o.mute && b.reaches(o) && have != nil && have.Generation() == m.Generation() {
			from = max(from, have.Revision)
		}
	}
	w.recoveries++
	now := b.keeper.Map().Generation()
	w.say("meta is recovered on %s, of generation %d and revision %d, as generation %d; it has %d", b.id, m.Generation(), m.Revision, next, now)
	switch {
	case now <= m.Generation() && (led || b.keeper.latest() > max(heard, m.Generation())): // or gossip names a later one, of a node that was lost just now
		w.refused++
		return
	case now <= m.Generation():
		w.fail("generation %d comes after %d", now, m.Generation())
	case now != next && !slices.ContainsFunc(w.ids(), func(id string) bool {
		return id != b.id && b.reaches(w.nodes[id]) && w.nodes[id].keeper.Map() != nil && w.nodes[id].keeper.Map().Generation() == now
	}):
		w.fail("it follows nobody")
	case now != next:
		w.refused++
		return
	}
	for name, revision := range w.of(m.Generation()) {
		if revision <= from {
			w.of(next)[name] = revision
		}
	}
}

// beginTwice has two operators recover two nodes that cannot hear of each other by then.
func (w *losses) beginTwice(a, b *box) {
	w.say("%s and %s are to be recovered, apart", a.id, b.id)
	w.split = map[string]bool{b.id: true}
	w.run(4 * time.Second)
	w.begins(a)
	w.run(time.Duration(w.r.IntN(10)) * time.Second)
	w.begins(b)
	w.run(time.Duration(w.r.IntN(20)) * time.Second)
	w.split = nil
	w.twice++
}

// makeAnew resets a shard, as far as that is allowed, and judges whether it was.
func (w *losses) makeAnew(by *box, shard int, empty bool) {
	k := by.keeper
	k.adopt()
	before := k.Map().Shards[shard]
	has, most := w.survivors(by, shard)
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // nobody waits
	founder, err := k.Reset(ctx, shard, empty)
	now := k.Map().Shards[shard]
	switch {
	case err != nil && strings.Contains(err.Error(), "--empty makes it anew") && most == (Kept{}):
		w.makeAnew(by, shard, true)
		return
	case err != nil || now.Incarnation == before.Incarnation:
		w.say("shard %d is not made anew: %v", shard, err)
		if !errors.Is(err, ErrInvalid) {
			w.tried[shard] = has
		}
		return
	}
	w.resets++
	w.say("shard %d is made anew as %d by %s, empty %v, of %+v", shard, now.Incarnation, founder, empty, most)
	if l := w.leads(shard); l != nil && l.own.Incarnation == before.Incarnation && by.reaches(l.box) {
		w.fail("shard %d is led by %s", shard, l.box.id)
	}
	if empty != (most == Kept{}) {
		w.fail("shard %d is made anew with empty %v, and %+v is left of it", shard, empty, most)
	}
	if empty {
		w.empties++
	} else if has[founder].kept.compare(most) < 0 {
		w.fail("shard %d is made anew from %s, which has %+v; %+v is left", shard, founder, has[founder].kept, most)
	}
	w.begun(shard, now, w.carried(has[founder]))
}

// carried are the acknowledged commands that a survivor has.
func (w *losses) carried(from left) (all []int) {
	for _, c := range w.acked[from.of] {
		if from.clients[c] {
			all = append(all, c)
		}
	}
	return all
}

// begun notes that a shard is made anew, with what it has to have.
func (w *losses) begun(shard int, s Shard, has []int) {
	r, _ := s.Wants(s.Founder)
	id := w.birth(shard, s.Incarnation, r)
	delete(w.tried, shard)
	w.made[id] = true
	w.groups[shard], w.acked[id] = id, append(has, w.acked[id]...)
}

// survivor is the best that a node has of a shard.
type left struct {
	of      [2]int
	kept    Kept
	clients map[int]bool
}

// survivors are what the nodes that one reaches have of a shard, and the best of it.
func (w *losses) survivors(by *box, shard int) (all map[string]left, most Kept) {
	all = map[string]left{}
	for id, b := range w.nodes {
		if !by.reaches(b) {
			continue
		}
		for own, l := range b.logs {
			have := Kept{own.Incarnation, 0, lastTerm(l.entries), uint64(len(l.entries))}
			if own.Shard != shard || have.Last == 0 || have.compare(all[id].kept) < 0 {
				continue
			}
			clients := map[int]bool{}
			for _, e := range l.entries {
				clients[e.client] = true
			}
			all[id] = left{l.group(), have, clients}
			if have.compare(most) > 0 {
				most = have
			}
		}
	}
	return all, most
}

// look is what must be so at every moment.
func (w *losses) look() {
	m := w.newest()
	if w.leads(0) != nil {
		w.headed = w.now
	}
	for i, s := range m.Shards {
		if r, _ := s.Wants(s.Founder); i > 0 && s.Phase == Creating && !w.made[w.birth(i, s.Incarnation, r)] {
			if has := w.tried[i]; has != nil {
				w.begun(i, s, w.carried(has[s.Founder]))
			} else {
				w.begun(i, s, w.acked[w.groups[i]]) // nobody has reset it: nothing may be lost
			}
		}
		w.lookForTwo(i)
	}
	for _, b := range w.nodes {
		if !b.up || !b.keeper.leads() {
			continue
		}
		m, _ := b.machine.Map()
		for name, revision := range w.decided[b.log(0).own.Incarnation] {
			if _, kept := m.Pools[name]; !kept && m.Revision >= revision {
				w.fail("%s leads meta with revision %d, and %s, which was decided in %d, is lost", b.id, m.Revision, name, revision)
			}
		}
	}
}

// lookForTwo looks for two that lead a shard and could hear of each other: for a while
// they may not have.
func (w *losses) lookForTwo(shard int) {
	var lead []*box
	for _, b := range w.nodes {
		if l := b.log(shard); b.up && l != nil && l.leads && (shard > 0 || b.keeper.leads()) {
			lead = append(lead, b)
		}
	}
	for i, a := range lead {
		for _, b := range lead[i+1:] {
			if !a.reaches(b) {
				continue
			}
			if since, known := w.two[shard]; !known {
				w.two[shard] = w.now
			} else if w.now-since > time.Minute && w.leads(0) != nil {
				w.fail("shard %d has been led by %s and by %s for a minute: %+v", shard, a.id, b.id, w.newest().Shards[shard])
			}
			return
		}
	}
	delete(w.two, shard)
}

// TestSituationNewcomerDiesBeforeItsVote: a newcomer that is silent gets no vote where
// there is but one, though it was heard a moment ago: with it the group would stand still.
func TestSituationNewcomerDiesBeforeItsVote(t *testing.T) {
	w := begin(t, 1, 1, 2)
	w.add("", true)
	w.until("two nodes", 5*time.Minute, w.well)
	third := w.add("", true)
	w.until("it is in", time.Minute, func() error {
		if config, _ := w.leads(0).config(); !slices.ContainsFunc(config, func(r Replica) bool { return r.Node == third.id }) {
			return errors.New("it is not")
		}
		return nil
	})
	third.mute = true
	w.run(20 * time.Second)
	for _, r := range func() []Replica { c, _ := w.leads(0).config(); return c }() {
		if r.Node == third.id && r.Voter {
			t.Errorf("it is silent, and has a vote: %+v", r)
		}
	}
	third.mute = false
	w.until("three nodes", 5*time.Minute, w.well)
}

// TestWhatIsLeftOfAnotherGeneration: a replica of a later incarnation, which the map's
// generation does not know, goes once the node is to have one of the shard as it is;
// not before, not while its group may say how it is, and never where no recovery was.
func TestWhatIsLeftOfAnotherGeneration(t *testing.T) {
	base := founded(t, 1, 3, "a", "b", "c")
	for what, c := range map[string]struct {
		generation uint32
		replicas   []Replica
		step       *Step
		want       int // errands of deletion
	}{
		"it is in the way":          {1<<nodeBits | 7, []Replica{{"a", 5, true}}, nil, 1},
		"it is wanted nowhere":      {1<<nodeBits | 7, []Replica{{"b", 5, true}}, nil, 0},
		"its group has not spoken":  {1<<nodeBits | 7, []Replica{{"a", 5, true}}, &Step{Kind: Regain}, 0},
		"there was no recovery yet": {1, []Replica{{"a", 5, true}}, nil, 0},
	} {
		m := base.clone()
		m.Revision = uint64(c.generation) * leap
		m.Shards[0].Incarnation = c.generation
		m.Shards[1] = Shard{Incarnation: 1, Phase: Ready, Replicas: c.replicas, Step: c.step}
		deleted := 0
		for _, e := range Local(m, "a", []Own{{Shard: 1, Incarnation: 2, Life: 9, Map: 9}}, func(Own) bool { return true }) {
			if e.Do == DeleteIt {
				deleted++
			}
		}
		if deleted != c.want {
			t.Errorf("%s: %d deletions, want %d", what, deleted, c.want)
		}
	}
}
