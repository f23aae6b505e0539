package node

import (
	"errors"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards/meta"
)

// Operators' words on ejections are the cluster's, as their other decisions are. Each
// node heeds a word once: it puts the backend out, or lets it in, and from then on
// judges it by its own streams again. So the end of an ejection is each node's own: the
// next stream there decides.

// wordGrace is how long after its end a word is heeded by a node that has heard of it
// only now: clocks differ, and to be out twice costs less than not at all.
const wordGrace = time.Minute

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
	if q == nil || !n.cfg().Cluster.On() || q.Map() == nil || q.Map().Level >= level {
		return nil
	}
	return refuse(admin.Conflict, "some nodes of the cluster run a program that does not know this; GET /v1/members has their versions and levels, of which this takes %d: upgrade them", level)
}

// heed does what a word says of a backend, once; the supply's lock is held.
func (n *Node) heed(p *backend.Pool, b *backend.Backend, word meta.Word, now time.Time) {
	last, known := n.heeded[b.ID]
	n.heeded[b.ID] = word
	switch order, length := due(last, known, word, now); order {
	case outOrder:
		p.Eject(b, now, length)
	case inOrder:
		p.Admit(b, now)
	case backOrder:
		p.Recall(b, now)
	}
}

// order is what a word asks for.
type order int

const (
	noOrder   order = iota
	outOrder        // for a time
	inOrder         // whoever put it out
	backOrder       // if an operator put it out
)

// due is what a node has to do that heeded last before, if known. News is heeded in
// full, since a word's time is by another node's clock; what was found at a start is
// heeded for as long as it has left by this node's own.
func due(last meta.Word, known bool, word meta.Word, now time.Time) (order, time.Duration) {
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
	case !known && (length == 0 || left <= 0), left < -wordGrace:
		return noOrder, 0
	case length == 0:
		return inOrder, 0
	case !known:
		return outOrder, min(left, length)
	}
	return outOrder, length
}
