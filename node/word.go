package node

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards/meta"
)

// Operators' words on ejections are the cluster's, as their other decisions are. Each
// node heeds a word once: it puts the backend out, or lets it in, and from then on
// judges it by its own streams again. So the end of an ejection is each node's own: the
// next stream there decides.

// wordGrace is how long after its end a word is heeded by a node that was cut off when it
// was said: clocks differ, and to be out twice costs less than not at all.
const wordGrace = time.Minute

// abreastAfter is how long a node hears what is agreed on until a word that is new to it
// was surely said just now.
const abreastAfter = 5 * time.Second

// say has all nodes put a backend out, or let it in.
func (n *Node) say(id string, out bool) error {
	p, b := n.backend(id)
	if b == nil {
		return noBackend(id, "any pool")
	}
	length := time.Duration(0)
	if out {
		length = n.ejection(p)
	}
	err := n.mayAgree(meta.WordLevel)
	if err == nil {
		err = n.supply.say(id, length)
	}
	var refused *admin.Error
	if errors.As(err, &refused) && refused.Code == admin.Conflict && n.cfg().Cluster.On() {
		return refuse(admin.Conflict, "%v; this node alone does it with ?scope=node (starling backend eject|admit --here)", err)
	}
	return err
}

// ChangeHere answers POST /v1/backends/{id}/eject?scope=node, and admit: nobody else
// hears of it, and nothing is kept.
func (n *Node) ChangeHere(id string, verb admin.Verb) error {
	p, b := n.backend(id)
	if b == nil {
		return noBackend(id, "any pool")
	}
	if verb == admin.Eject {
		p.Eject(b, time.Now(), n.ejection(p))
	} else {
		p.Admit(b, time.Now())
	}
	return nil
}

func (n *Node) ejection(p *backend.Pool) time.Duration {
	return n.cfg().Pools[p.Name].Outlier.BaseEjection
}

// mayAgree refuses what some nodes of the cluster are too old for.
func (n *Node) mayAgree(level uint32) error {
	q := n.quorum.Load()
	if q == nil || !n.cfg().Cluster.On() || q.Map() == nil {
		return nil
	}
	return tooOld(level, q.Map(), n.Members().Members)
}

// tooOld names a node whose program does not know what comes with a level. The map's own
// level is not enough: it never falls, and a node may run an older program again.
func tooOld(level uint32, m *meta.Map, members []api.Member) error {
	const mend = "GET /v1/members has their versions and levels, of which this takes %d: upgrade them"
	for _, one := range members {
		if one.Level < level && one.State != backend.MemberDead && one.State != backend.MemberLeft {
			return refuse(admin.Conflict, "node %s runs a program that does not know this, and would stop at it, as others may; "+mend, one.Name, level)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.Nodes)) {
		if one := m.Nodes[id]; one.Level < level && one.State != meta.Dead && one.State != meta.Removed {
			return refuse(admin.Conflict, "node %s ran a program that does not know this, as was last heard of it, and would stop at it, as others may; "+mend, one.Name, level)
		}
	}
	if m.Level < level {
		return refuse(admin.Conflict, "the cluster does not work yet at a level at which all nodes know this; ask again in a moment, or: "+mend, level)
	}
	return nil
}

// heed does what a word says of a backend, once; the supply's lock is held.
func (n *Node) heed(p *backend.Pool, b *backend.Backend, word meta.Word, now time.Time) {
	last, known := n.heeded[b.ID]
	n.heeded[b.ID] = word
	switch order, length := due(last, known, n.abreast(), word, now); order {
	case outOrder:
		p.Eject(b, now, length)
	case inOrder:
		p.Admit(b, now)
	case backOrder:
		p.Recall(b, now)
	case lateOrder:
		n.log.Warn("an operator's word on a backend's ejection was over when this node heard of it, and is passed over; if it was said just now, a clock is wrong",
			"backend", b.ID, "said", time.UnixMilli(int64(word.Number)), "for", time.Duration(word.Length))
	}
}

// abreast tells whether this node has heard for a while, without a break, what is
// agreed on: what is new to it then is news.
func (n *Node) abreast() bool {
	q := n.quorum.Load()
	return q == nil || !n.cfg().Cluster.On() || q.Abreast() >= abreastAfter
}

// forget forgets what was heeded of backends that no pool has; the supply's lock is
// held. Who comes back is judged as at a start.
func (n *Node) forget() {
	has := map[string]bool{}
	for _, p := range n.proxy.Pools() {
		for _, b := range p.Backends() {
			has[b.ID] = true
		}
	}
	maps.DeleteFunc(n.heeded, func(id string, _ meta.Word) bool { return !has[id] })
}

// order is what a word asks for.
type order int

const (
	noOrder   order = iota
	outOrder        // for a time
	inOrder         // whoever put it out
	backOrder       // if an operator put it out
	lateOrder       // nothing any more
)

// due is what a node has to do that heeded last before, if known. News is heeded in
// full, since a word's time is by another node's clock: whose is wrong is not to be told,
// and a node that is abreast hears of words as they are said. One that was cut off passes
// over what is long over. What was found at a start is heeded for as long as it has left
// by this node's own clock.
func due(last meta.Word, known, abreast bool, word meta.Word, now time.Time) (order, time.Duration) {
	length := time.Duration(word.Length)
	left := time.UnixMilli(int64(word.Number)).Add(length).Sub(now)
	switch {
	case known && word == last:
		return noOrder, 0
	case word == meta.Word{}:
		if known && last.Length > 0 {
			return backOrder, 0
		}
		return noOrder, 0
	case !known && (length == 0 || left <= 0):
		return noOrder, 0
	case known && !abreast && left < -wordGrace:
		return lateOrder, 0
	case length == 0:
		return inOrder, 0
	case !known:
		return outOrder, min(left, length)
	}
	return outOrder, length
}
