package meta

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// found has the first node found a cluster with all that are there.
func (w *world) found(count int) {
	w.t.Helper()
	var seen []Newcomer
	for id, b := range w.nodes {
		seen = append(seen, Newcomer{ID: id, Name: id, Zone: b.zone, Hosts: b.host, Level: 1, Expect: len(w.nodes), Sees: len(w.nodes)})
	}
	founder := w.nodes["n01"]
	if f := Found("n01", seen); !f.Found {
		w.fail("n01 does not found: %s", f.Reason)
	}
	if err := founder.keeper.Found(context.Background(), NewMap("n01", count, 3, 1, seen)); err != nil {
		w.fail("%v", err)
	}
}

// begin is a cluster of so many nodes that is well.
func begin(t testing.TB, seed uint64, nodes, count int) *world {
	t.Helper()
	w := newWorld(t, seed)
	for range nodes {
		w.add("", true)
	}
	w.found(count)
	w.until("the beginning", time.Minute, w.well)
	return w
}

// leave has a node leave in order.
func (w *world) leave(id string) {
	w.until("leave of "+id, 5*time.Second, func() error { return w.askToLeave(id) })
}

func (w *world) askToLeave(id string) error {
	m := w.newest()
	n := m.Nodes[id]
	n.State, n.Leaving = Draining, true
	_, err := w.nodes[id].keeper.Propose(context.Background(), Command{Op: OpNode, Key: id, Seen: m.Nodes[id].Revision, Node: &n})
	w.say("%s leaves: %v", id, err)
	return err
}

// setAside has a node be drained, or takes that back.
func (w *world) setAside(id string, aside bool) error {
	m := w.newest()
	n := m.Nodes[id]
	n.State = Active
	if aside {
		n.State = Draining
	}
	_, err := w.nodes[id].keeper.Propose(context.Background(), Command{Op: OpNode, Key: id, Seen: m.Nodes[id].Revision, Node: &n})
	w.say("%s is set aside %v: %v", id, aside, err)
	return err
}

// nobodyRests takes back that nodes are set aside, of those that live.
func (w *world) nobodyRests() error {
	for id, n := range w.newest().Nodes {
		if n.rests() && w.nodes[id].up {
			return errors.Join(errLost, w.setAside(id, false))
		}
	}
	return nil
}

// known says which node is gone and still counts: until then a move in which it has
// a part may have to wait.
func (w *world) known() error {
	m := w.newest()
	for id, b := range w.nodes {
		if s := m.Nodes[id].State; !b.up && s != Dead && s != Removed && s != "" {
			return fmt.Errorf("%s is %s", id, s)
		}
	}
	return nil
}

// settling says which groups have not been as the map says at any time since it
// was called: new steps may begin meanwhile.
func (w *world) settling() func() error {
	settled := map[int]bool{}
	return func() error {
		for i := range w.newest().Shards {
			if err := w.settled(i); err == nil {
				settled[i] = true
			} else if !settled[i] {
				return err
			}
		}
		return nil
	}
}

func TestSituationGrowFromOneToFiveAndShrinkToThree(t *testing.T) {
	w := begin(t, 1, 1, 16)
	w.add("", true)
	t.Log("1 to 2 nodes:", w.until("two nodes", 5*time.Minute, w.well))
	w.add("", true)
	t.Log("2 to 3 nodes:", w.until("three nodes", 5*time.Minute, w.well))
	w.add("", true)
	w.add("", true)
	t.Log("3 to 5 nodes:", w.until("five nodes", 10*time.Minute, w.well))
	w.leave("n04")
	w.leave("n01")
	t.Log("5 to 3 nodes:", w.until("three nodes again", 10*time.Minute, func() error {
		if !w.nodes["n04"].left || !w.nodes["n01"].left {
			return errors.New("they are still there")
		}
		return w.well()
	}))
	w.leave("n02")
	w.until("two nodes again", 10*time.Minute, func() error {
		if !w.nodes["n02"].left {
			return errors.New("it is still there")
		}
		return w.well()
	})
}

// TestRandomLives is the membership property: joins, leaves, kills, cuts, wiped
// disks, older ones put back and the deaths of controllers, in any order. SEED=N repeats a run: the
// subtest that failed names it.
func TestRandomLives(t *testing.T) {
	seeds := 6
	if testing.Short() {
		seeds = 4
	}
	first := rand.Uint64N(1 << 32)
	if s := os.Getenv("SEED"); s != "" {
		first, _ = strconv.ParseUint(s, 10, 64)
	}
	for i := range seeds {
		seed := first + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := begin(t, seed, 3+int(seed%3), 6)
			for range 25 {
				w.harm()
				w.run(time.Duration(1+w.r.IntN(40)) * time.Second)
			}
			for _, b := range w.nodes {
				b.cut = false
				if !b.up && !b.wiped && !b.left {
					b.start()
				}
			}
			w.say("quiet")
			w.until("nobody is set aside after quiet", time.Minute, w.nobodyRests)
			w.until("the dead are known to be dead", deadAfter+30*time.Second, w.known)
			w.until("the groups reach the map after quiet", time.Minute, w.settling())
			w.until("all is well after quiet", 15*time.Minute, w.well)
			acked := 0
			for _, a := range w.acked {
				acked += len(a)
			}
			if acked < 100 || w.steps < 20 {
				t.Errorf("%d commands and %d steps: too few to show anything", acked, w.steps)
			}
		})
	}
}

// harm does one thing to the cluster, one that a majority of each group survives.
func (w *world) harm() {
	ids := w.ids()
	b := w.nodes[ids[w.r.IntN(len(ids))]]
	if l := w.leads(0); l != nil && w.r.IntN(3) == 0 {
		b = l.box // the controller
	}
	up := 0
	for _, o := range w.nodes {
		if o.up && !o.cut {
			up++
		}
	}
	switch w.r.IntN(10) {
	case 7:
		if n := w.newest().Nodes[b.id]; b.up && (n.State == Active || n.rests()) {
			_ = w.setAside(b.id, !n.rests())
		}
	case 0:
		if up < 7 {
			w.say("%s joins", w.add("", w.r.IntN(5) > 0).id)
		}
	case 1:
		if up > 4 && b.up && w.newest().Nodes[b.id].State == Active && w.survives(b) {
			_ = w.askToLeave(b.id)
		}
	case 2, 3:
		if b.up && w.survives(b) {
			w.say("%s is killed", b.id)
			b.stop()
		}
	case 4:
		if b.up && !b.cut && w.survives(b) {
			w.say("%s is cut off", b.id)
			b.cut, b.died = true, w.now
		}
	case 5:
		if b.up && w.survives(b) {
			w.say("%s loses its disk", b.id)
			b.stop()
			b.wiped, b.logs = true, map[Own]*log{}
			w.add(b.zone, b.host)
		}
	case 6:
		if b.up && w.survives(b) && b.older != nil {
			w.say("%s gets an older copy of its directory", b.id)
			b.stop()
			b.putBack(*b.older)
			b.older = nil
			b.start()
		} else if b.up && w.survives(b) {
			w.say("%s is started again, and copied before", b.id)
			b.stop()
			older := b.copy()
			b.older = &older
			b.start()
		}
	default:
		if b.cut {
			w.say("%s is back", b.id)
			b.cut = false
		}
		if !b.up && !b.wiped && !b.left {
			w.say("%s is started", b.id)
			b.start()
		}
	}
}

// survives tells whether each group lives on without a node, now and whatever
// change of its members is under way.
func (w *world) survives(lost *box) bool {
	for i := range w.newest().Shards {
		l := w.leads(i)
		if l == nil {
			return false
		}
		for at := len(l.entries); at > 0; at-- {
			config := l.entries[at-1].config
			if config == nil {
				continue
			}
			voters, live := 0, 0
			for _, r := range config {
				if !r.Voter {
					continue
				}
				voters++
				if o := w.nodes[r.Node]; o != lost && l.peer(r) != nil {
					live++
				}
			}
			if 2*live <= voters {
				return false
			}
			if at <= l.commit {
				break
			}
		}
	}
	return true
}
