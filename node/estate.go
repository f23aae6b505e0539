package node

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/handover"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// What a process has found out, and the next one of its node goes on with. It is said
// over the inherited socket alone, and never written down: the keys of tickets are
// secrets. Whatever of it the other does not know, or does not understand, is left out,
// counted, and found out anew.

// estateVersion rises where a field means something else from then on; fields that are
// added do not raise it.
const estateVersion = 1

// lastEvents are some 64 KiB.
const lastEvents = 256

type estate struct {
	Version int             `json:"version"`
	Pools   []memories      `json:"pools"`
	Tickets []proxy.Tickets `json:"tickets,omitempty"`
	Events  []api.Event     `json:"events,omitempty"` // the last ones, the oldest first
	Elders  []counted       `json:"elders,omitempty"` // processes before this one, that live
}

// counted is how many streams that ended with an older process are counted by now: it
// tells all of them to whoever it finds.
type counted struct {
	Boot  uint64         `json:"boot"`
	Ended []handover.End `json:"ended"`
}

// memories are those of one pool's backends.
type memories struct {
	Pool     string            `json:"pool"`
	Mean     time.Duration     `json:"mean,omitempty"` // of a stream
	Backends []json.RawMessage `json:"backends"`       // each a backend.Memory
}

// trial is one that was under way when this process let go.
type trial struct {
	Pool string `json:"pool"`
	backend.Trial
}

// bequeath is what this process leaves; nil where even that cannot be said.
func (n *Node) bequeath() []byte {
	e := estate{Version: estateVersion, Tickets: n.proxy.Tickets(), Events: n.journal.Last(lastEvents), Elders: n.heritage.leave()}
	var trials []trial
	room, left := handover.MaxEstate/2, 0 // what lists and names add is far less than the rest
	for _, p := range n.proxy.Pools() {
		all, mean := p.Memories(time.Now())
		for i := range all {
			if t, ok := all[i].Trial(); ok {
				trials = append(trials, trial{p.Name, t})
			}
		}
		m := memories{Pool: p.Name, Mean: mean}
		m.Backends, room = pack(all, room)
		left += len(all) - len(m.Backends)
		e.Pools = append(e.Pools, m)
	}
	u := &n.upgrade
	u.mu.Lock()
	u.trials = trials
	u.mu.Unlock()
	text, err := json.Marshal(e)
	if left > 0 || err != nil || len(text) > handover.MaxEstate {
		n.log.Warn("the next process has to find out anew what this one knows of some backends", "backends", left, "bytes", len(text), "err", err)
	}
	if err != nil || len(text) > handover.MaxEstate {
		return nil
	}
	return text
}

// pack takes as many memories as there is room for, in bytes, and tells how much is left
// of that. Those of whom most is known come first.
func pack(all []backend.Memory, room int) (list []json.RawMessage, left int) {
	list = []json.RawMessage{}
	slices.SortStableFunc(all, func(a, b backend.Memory) int { return cmp.Compare(urgent(a), urgent(b)) })
	for _, one := range all {
		text, err := json.Marshal(one)
		if err != nil || len(text) > room {
			continue
		}
		room -= len(text)
		list = append(list, text)
	}
	return list, room
}

// urgent puts those first of whom it matters most.
func urgent(m backend.Memory) int {
	if m.State == backend.Active {
		return 1
	}
	return 0
}

// goOnWith takes over what the process before has left.
func (n *Node) goOnWith(text []byte) {
	if text == nil {
		return // an older program, or it has ended
	}
	var e estate
	if err := json.Unmarshal(text, &e); err != nil || e.Version != estateVersion {
		n.handed.count("estate", leftOut, 1)
		n.log.Warn("what the process before knew is not understood, and found out anew", "version", e.Version, "knows", estateVersion)
		return
	}
	n.journal.Precede(e.Events)
	n.heritage.take(e.Elders)
	pools := map[string]*backend.Pool{}
	for _, p := range n.proxy.Pools() {
		pools[p.Name] = p
	}
	taken, all := 0, 0
	for _, m := range e.Pools {
		all += len(m.Backends)
		if p := pools[m.Pool]; p != nil {
			taken += p.Remember(m.read(), m.Mean, time.Now())
		}
	}
	keys, good := 0, n.proxy.TakeTickets(e.Tickets, time.Now())
	for _, t := range e.Tickets {
		keys += len(t.Keys)
	}
	n.handed.count("estate", takenOver, 1)
	n.handed.count("backend", takenOver, taken)
	n.handed.count("backend", leftOut, all-taken)
	n.handed.count("ticket_key", takenOver, good)
	n.handed.count("ticket_key", leftOut, keys-good)
	n.log.Info("goes on with what the process before knew", "backends", taken, "ticket_keys", good, "left_out", all-taken+keys-good)
}

// read leaves out what cannot be read.
func (m *memories) read() (all []backend.Memory) {
	for _, text := range m.Backends {
		var one backend.Memory
		if json.Unmarshal(text, &one) == nil {
			all = append(all, one)
		}
	}
	return all
}

// became is what is known by now of the trials that were under way; nil: there were
// none.
func (n *Node) became() []byte {
	u := &n.upgrade
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.trials) == 0 {
		return nil
	}
	for _, p := range n.proxy.Pools() {
		for i, t := range u.trials {
			if t.Pool == p.Name && !t.Ended {
				u.trials[i].Trial = p.Became(t.Trial)
			}
		}
	}
	text, err := json.Marshal(u.trials)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return text
}

// hearken hears what came of trials in an older process.
func (n *Node) hearken(text []byte) {
	var all []trial
	if len(text) == 0 || json.Unmarshal(text, &all) != nil {
		return
	}
	for _, p := range n.proxy.Pools() {
		for _, t := range all {
			if t.Pool == p.Name {
				p.Hearken(t.Trial, time.Now())
			}
		}
	}
}

// What became of things that were handed over.
const (
	takenOver = "taken"
	leftOut   = "left_out"
)

// handed counts them.
type handed struct{ *prometheus.GaugeVec }

func newHanded() handed {
	h := handed{prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "starling", Name: "handed_over", Help: "What this process got from the one before it, in an upgrade: taken, or left out, where it is not understood, or not configured any more.",
	}, []string{"of", "outcome"})}
	for _, of := range []string{"backend", "ticket_key", "estate"} {
		h.count(of, takenOver, 0)
		h.count(of, leftOut, 0)
	}
	return h
}

func (h handed) count(of, outcome string, n int) {
	h.WithLabelValues(of, outcome).Add(float64(n))
}
