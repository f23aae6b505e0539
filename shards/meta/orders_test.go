package meta

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// order has an operator order a recovery on a node, which does not start yet.
func (b *box) order() uint32 {
	b.w.t.Helper()
	b.stop()
	r, err := recovery(b, b.id, 0)
	if err != nil {
		b.w.t.Fatal(err)
	}
	if err := r.Do(); err != nil {
		b.w.t.Fatal(err)
	}
	return r.Generation()
}

// decides has an operator decide something where meta is led.
func (w *world) decides(pool string) error {
	if l := w.leads(0); l != nil {
		return l.box.decides(pool)
	}
	return errors.New("meta has no leader")
}

// ordered tells whether a node still has an order, or what one has noted.
func (b *box) ordered() error {
	if b.keeper.Recovering() {
		return errors.New("the order stands")
	}
	for _, o := range b.keeper.Own() {
		if o.Shard == 0 && o.Incarnation > b.keeper.Map().Generation() {
			return fmt.Errorf("it notes %+v, and is of generation %d", o, b.keeper.Map().Generation())
		}
	}
	return nil
}

// TestSituationOrderFromAnOlderMap: the node on which meta is recovered lags, and
// another one has later decisions of the same generation. It begins with those.
func TestSituationOrderFromAnOlderMap(t *testing.T) {
	w := begin(t, 1, 5, 4)
	w.run(10 * time.Second)
	all := w.newest().Shards[0].Replicas
	lags := slices.IndexFunc(all, func(r Replica) bool { return r.Node != w.leads(0).box.id })
	b := w.nodes[all[lags].Node]
	w.split = map[string]bool{b.id: true}
	w.run(5 * time.Second)
	w.until("the others decide", time.Minute, func() error { return w.decides("late") })
	w.run(10 * time.Second) // they hear of it
	for _, r := range all {
		w.nodes[r.Node].stop()
	}
	next := b.order()
	w.split = nil
	b.start()
	if m := b.keeper.Map(); m.Generation() != next || m.Pools["late"].Backends == nil {
		t.Errorf("it begins generation %d of %d, with pools %v", m.Generation(), next, m.Pools)
	}
	w.until("it decides", time.Minute, func() error { return b.decides("again") })
	if m := b.keeper.Map(); m.Pools["late"].Backends == nil || b.ordered() != nil {
		t.Errorf("pools %v, %v", m.Pools, b.ordered())
	}
}

// TestSituationOrderIsStale: by the time that a node with an order starts, shard 0 is
// led, or gossip tells of a later generation, if only from a node that hosts nothing
// and gives no answer. The order is dropped, with what one that broke off has noted.
func TestSituationOrderIsStale(t *testing.T) {
	t.Run("shard 0 is led", func(t *testing.T) {
		w := begin(t, 1, 3, 2)
		w.run(10 * time.Second)
		b := w.nodes["n02"]
		next := b.order()
		noted, err := loadOwn(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := saveOwn(b, owned{append(noted.Replicas, Own{Incarnation: next, Life: 1, Founded: true, Again: true, Map: uint64(next) * leap})}); err != nil {
			t.Fatal(err)
		}
		w.until("the others decide", time.Minute, func() error { return w.decides("meanwhile") })
		b.start()
		if m := b.keeper.Map(); m.Generation() != 1 || b.ordered() != nil {
			t.Errorf("it begins generation %d; %v", m.Generation(), b.ordered())
		}
		w.until("all is well", 10*time.Minute, w.well)
	})
	t.Run("a proxy knows better", func(t *testing.T) {
		w := begin(t, 1, 3, 2)
		proxy := w.add("", false)
		w.run(20 * time.Second)
		b := w.nodes["n02"]
		b.order()
		w.nodes["n01"].stop()
		w.nodes["n03"].stop()
		m := proxy.keeper.Map().clone()
		m.Shards[0].Incarnation = 3<<nodeBits | 1
		m.Revision = uint64(m.Shards[0].Incarnation) * leap
		if err := proxy.keeper.Take(m); err != nil {
			t.Fatal(err)
		}
		proxy.mute = true
		b.start()
		if m := b.keeper.Map(); m.Generation() != 1 || !b.keeper.fenced() || b.ordered() != nil {
			t.Errorf("it is of generation %d, fenced %v; %v", m.Generation(), b.keeper.fenced(), b.ordered())
		}
	})
	t.Run("the map is gone", func(t *testing.T) {
		w := begin(t, 1, 3, 2)
		b := w.nodes["n02"]
		b.order()
		delete(b.disk, FileName)
		delete(b.disk, ownFile)
		b.start()
		if b.keeper.Recovering() {
			t.Error("the order stands")
		}
	})
}

// TestSituationRecoveredFromBeforeAReset: meta is recovered from a map that does not
// know that a shard was made anew, or only that it was to be, and all nodes that have it
// have started since. They bring it back: none of what was bound in it is lost.
func TestSituationRecoveredFromBeforeAReset(t *testing.T) {
	for what, knows := range map[string]bool{"it knows nothing": false, "it knows that it is made": true} {
		t.Run(what, func(t *testing.T) { recoveredFromBeforeAReset(t, knows) })
	}
}

func recoveredFromBeforeAReset(t *testing.T, knows bool) {
	w := begin(t, 1, 8, 12)
	w.run(30 * time.Second)
	shard, rest := w.besideMeta()
	before := w.newest().Shards[shard]
	late := w.nodes[w.newest().Shards[0].Replicas[0].Node]
	if !knows {
		w.split = map[string]bool{late.id: true}
	}
	w.run(10 * time.Second)
	w.nodes[rest[0]].stop()
	w.nodes[rest[1]].stop()
	w.acked[[2]int{shard, int(before.Incarnation)}] = nil // only part of it is left
	w.run(3 * time.Second)
	w.reset(shard, false)
	if knows {
		w.until("it hears of that", time.Minute, func() error {
			if s := late.keeper.Map().Shards[shard]; s.Phase != Creating {
				return fmt.Errorf("it has %+v", s)
			}
			return nil
		})
		w.split = map[string]bool{late.id: true}
	}
	w.until("it is made anew", 2*time.Minute, func() error {
		if s := w.newest().Shards[shard]; s.Phase != Ready || s.Incarnation != before.Incarnation+1 {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	w.nodes[rest[0]].start()
	w.nodes[rest[1]].start()
	w.until("it has its replicas", 5*time.Minute, func() error { return w.settled(shard) })
	w.run(10 * time.Second)
	id := [2]int{shard, int(before.Incarnation) + 1}
	bound := len(w.acked[id])
	next := late.recover()
	w.until("the late one decides", time.Minute, func() error { return late.decides("late") })
	for _, b := range w.nodes {
		if b != late {
			b.stop()
		}
	}
	w.split = nil
	for _, b := range w.nodes {
		if b != late {
			b.start()
		}
	}
	w.until("the shard that was made anew is led again", 2*time.Minute, func() error {
		w.voters(shard)
		if l := w.leads(shard); l == nil || l.own.Incarnation != before.Incarnation+1 {
			return errors.New("it is not")
		}
		return w.settled(shard)
	})
	if m := w.newest(); m.Generation() != next || bound == 0 || len(w.acked[id]) < bound {
		t.Errorf("generation %d; %d were bound, now %d", m.Generation(), bound, len(w.acked[id]))
	}
	w.until("all is well", 20*time.Minute, w.well)
}

// besideMeta is a shard that has its replicas on nodes that keep none of meta, and these.
func (w *world) besideMeta() (shard int, nodes []string) {
	m := w.newest()
	for i, s := range m.Shards[1:] {
		nodes = nil
		for _, r := range s.Replicas {
			if !m.Shards[0].keeps(r.Node) {
				nodes = append(nodes, r.Node)
			}
		}
		if len(nodes) == 3 {
			return i + 1, nodes
		}
	}
	w.t.Fatal("no shard is beside meta's nodes")
	return 0, nil
}
