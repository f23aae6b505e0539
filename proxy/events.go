package proxy

import (
	"strconv"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// told passes an event on; a pool's lock is held.
func (s *Server) told(e backend.Event) {
	if s.opt.Told != nil {
		s.opt.Told(e)
	}
	switch {
	case e.Backend != "":
		s.log.Info("backend changed state", "pool", e.Pool, "backend", e.Backend, "state", e.To, "was", e.From, "reason", e.Reason)
	case e.Panic:
		s.log.Warn("pool is in panic: its backends get streams whatever their health", "pool", e.Pool, "reason", e.Reason)
	default:
		s.log.Info("pool's panic is over", "pool", e.Pool, "reason", e.Reason)
	}
}

// mostHolders bounds the streams that are named of those that hold up a drain.
const mostHolders = 10

// giveUpDrains ends those drains of backends that are overdue.
func (s *Server) giveUpDrains(p *pool, now time.Time) {
	for _, b := range p.Backends() {
		if b.Overdue(now) {
			p.GiveUpDrain(b, now, s.holders(b))
		}
	}
}

// holders are the ids of a backend's streams, the oldest first.
func (s *Server) holders(b *backend.Backend) (ids []string) {
	for _, i := range s.Streams(maxWaiting) {
		if i.Backend == b.ID && len(ids) < mostHolders {
			ids = append(ids, strconv.FormatUint(i.ID, 10))
		}
	}
	return ids
}
