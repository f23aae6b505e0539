package proxy

import (
	"cmp"
	"slices"

	"github.com/starling-lb/starling/proxy/backend"
)

// Pools are the pools by name.
func (s *Server) Pools() []*backend.Pool {
	var pools []*backend.Pool
	for _, p := range s.now.Load().pools {
		pools = append(pools, p.Pool)
	}
	slices.SortFunc(pools, func(a, b *backend.Pool) int { return cmp.Compare(a.Name, b.Name) })
	return pools
}

// InFlight is the number of streams that this node carries, those that wait for
// a place at a backend left out.
func (s *Server) InFlight() int64 { return max(0, s.running.Load()-s.Waiting()) }

// Waiting is the number of streams that wait for a place at a backend.
func (s *Server) Waiting() (n int64) {
	for _, p := range s.now.Load().all() {
		n += p.Waiting()
	}
	return n
}

// Streams are the running streams, the oldest first, at most limit of them.
func (s *Server) Streams(limit int) []StreamInfo {
	var list []StreamInfo
	s.each(func(c *client) {
		if i, ok := c.stream.info(); ok {
			list = append(list, i)
		}
	})
	slices.SortFunc(list, func(a, b StreamInfo) int { return cmp.Compare(a.ID, b.ID) })
	return list[:min(limit, len(list))]
}
