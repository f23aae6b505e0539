package meta

import "time"

// stillFor is how long a step may take before the log says that it stands still. Most
// take seconds; one that waits for a node that is gone is planned anew once that
// is dead.
const stillFor = 2 * deadAfter

// Standing is how what is done to a shard stands, as this node knows it.
type Standing struct {
	For   time.Duration // since this run of the node has seen it first
	Still bool          // for longer than a step should take
	Waits string        // why nothing happens, on the node that leads the shard; "": something does, or another node leads
}

// stand is one step of a shard for as long as the map has it.
type stand struct {
	of    stepID
	since time.Duration
	waits string
	told  bool // the log says that it stands still
}

// stepID tells one step from the next; its reason may change on the way.
type stepID struct {
	incarnation uint32
	kind        Kind
	node        string
}

// Standing is how a shard's step stands; all zero where there is none.
func (k *Keeper) Standing(shard int) Standing {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, stands := k.stands[shard]
	if !stands {
		return Standing{}
	}
	age := k.o.Now() - s.since
	return Standing{For: age, Still: age >= stillFor, Waits: s.waits}
}

// stepsOf takes the steps of a map that has just become the newest; mu is held.
func (k *Keeper) stepsOf(m *Map) {
	for i, s := range m.Shards {
		if s.Step == nil {
			delete(k.stands, i)
			continue
		}
		id := stepID{s.Incarnation, s.Step.Kind, s.Step.Node}
		if k.stands[i].of != id {
			k.stands[i] = stand{of: id, since: k.o.Now()}
		}
	}
}

// stand notes why nothing is done now about the step of a shard that this node
// leads; "": something is. What stands still is told once.
func (k *Keeper) stand(shard int, why string) {
	k.mu.Lock()
	s, stands := k.stands[shard]
	if !stands {
		k.mu.Unlock()
		return
	}
	s.waits = why
	age := k.o.Now() - s.since
	tell := why != "" && !s.told && age >= stillFor
	s.told = s.told || tell
	k.stands[shard] = s
	k.mu.Unlock()
	if tell {
		k.o.Log.Warn("a step of a shard stands still", "shard", shard, "step", string(s.of.kind), "peer", s.of.node, "for", age.Round(time.Second), "waits", why)
	}
}
