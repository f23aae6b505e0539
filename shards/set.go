package shards

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// Backend is one of a set.
type Backend struct {
	ID     string
	Weight uint32
}

// Set is what a pool's backends are by a revision of the cluster's map, by id. A
// shard's log has a copy, for its machine cannot see the map: there those that have
// left are named as well while sessions live at them, without a weight.
type Set struct {
	Pool     string
	Revision uint64
	Backends []Backend // never changed
}

// Has says whether a backend is of the set, and has not left.
func (s Set) Has(id string) bool {
	i := s.index(id)
	return i >= 0 && s.Backends[i].Weight > 0
}

func (s Set) index(id string) int {
	return slices.IndexFunc(s.Backends, func(b Backend) bool { return b.ID == id })
}

// Same says whether another set has the same backends, whatever its revision.
func (s Set) Same(as Set) bool { return slices.Equal(s.Backends, as.Backends) }

// Sort puts the backends in their order; who makes a Set owes it.
func (s Set) Sort() { slices.SortFunc(s.Backends, byID) }

// Choose is the weighted rendezvous of a session with the usable ones of the set,
// "" where there is none: whoever has the same set and finds the same ones usable
// chooses the same, without asking. Where one is lost only its own sessions go
// elsewhere, spread by weight. It must not look at load, which each node sees
// differently.
func (s Set) Choose(session Key, usable func(id string) bool) string {
	chosen, best := "", math.Inf(1)
	for _, b := range s.Backends {
		if b.Weight == 0 || usable != nil && !usable(b.ID) {
			continue
		}
		// -ln of an even draw, over the weight: the least of these is each backend's
		// with the odds of its weight.
		if d := -math.Log(draw(session, b.ID)) / float64(b.Weight); d < best {
			chosen, best = b.ID, d
		}
	}
	return chosen
}

// draw is in (0,1), and even over sessions: these are hashes already, and need but
// be mixed with the backend.
func draw(session Key, id string) float64 {
	x := uint64(0xcbf29ce484222325) // FNV-1a
	for i := range len(id) {
		x = (x ^ uint64(id[i])) * 0x100000001b3
	}
	for _, part := range []uint64{binary.BigEndian.Uint64(session[:8]), binary.BigEndian.Uint64(session[8:])} {
		x ^= part
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		x = bits.RotateLeft64(x^x>>31, 17)
	}
	return (float64(x>>12) + 0.5) / (1 << 52)
}
