package shards

import (
	"context"
	"sync"
	"time"
)

const (
	reportLeast = time.Second // between two reports, however short a TTL is
	reportMost  = time.Minute
)

// reportLoop tells leaders every quarter of the shortest TTL which sessions had
// turns, so that they are not let go, and offers provisional choices every second.
func (r *Router) reportLoop() {
	tick := time.NewTicker(reportLeast)
	defer tick.Stop()
	last := r.Now()
	for {
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			return
		}
		now := r.Now()
		if r.counts.provisional.Load() > 0 {
			for _, s := range r.sections {
				if s.leased(now) {
					r.reconcile(s)
				}
			}
		}
		if now-last >= r.reportEvery() {
			r.report(now, now-last)
			last = now
		}
	}
}

// reportEvery is a quarter of the shortest TTL of the pools with sessions here.
func (r *Router) reportEvery() time.Duration {
	every := reportMost
	r.pools.Range(func(pool, _ any) bool {
		every = min(every, reportsFor(r.Rules.Pool(pool.(string)).TTL))
		return true
	})
	return every
}

// reportsFor is how often a pool's sessions want to be told of, for their TTL.
func reportsFor(ttl time.Duration) time.Duration {
	if ttl <= 0 {
		return reportMost
	}
	return max(reportLeast, min(ttl/4, reportMost))
}

// report tells which sessions had turns since the last one, or have one that runs.
// A session that had none for two TTLs is forgotten.
func (r *Router) report(now, since time.Duration) {
	used := make([][]Key, len(r.sections))
	r.cache.Each(now, func(k Key, c Cached) {
		s := r.section(k)
		rule := r.desk.rule(c.Backend)
		switch {
		case c.Backend == nowhere:
			if c.Idle > reportMost {
				r.cache.Drop(k, c.Epoch)
			}
		case c.Idle <= since+cacheSlack || s.runs(k):
			used[s.shard-1] = append(used[s.shard-1], k)
			if keys := used[s.shard-1]; len(keys) == maxKeys {
				r.note(s, question{ask: askUses, keys: keys})
				used[s.shard-1] = nil
			}
		case rule.TTL > 0 && c.Idle > 2*rule.TTL:
			r.cache.Drop(k, c.Epoch)
		}
	})
	for i, keys := range used {
		if len(keys) > 0 {
			r.sections[i].wanted.Store(int64(now)) // or turns that need ask nobody would be without a lease one day
			r.note(r.sections[i], question{ask: askUses, keys: keys})
		}
	}
}

// cacheSlack is by how much the cache may be wrong about a use.
const cacheSlack = 2 << cacheTick

// section is a key's.
func (r *Router) section(k Key) *section { return r.sections[k.Shard(len(r.sections))-1] }

// runs says whether a turn of the session does.
func (s *section) runs(k Key) bool {
	p := s.stripe(k)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.live[k]
	return l != nil && l.turns > 0
}

// farewell tells the leaders that no turn runs here any more, if that is so, and
// none will begin: this node need not be asked then. Leaders that do not answer are not
// waited for one after the other.
func (r *Router) farewell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTime/2)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	for _, s := range r.sections {
		h := s.head.Load()
		number, empty := s.close()
		if h.node == "" || !empty {
			continue
		}
		all.Go(func() { // unsaid, it is found out by the lease's end
			_, _ = r.put(ctx, h.node, question{ask: askLeave, shard: s.shard, number: number, incarnation: h.incarnation, term: h.term})
		})
	}
}

// close gives the lease up, so that no turn begins by it, and says whether none runs.
// Grants that are on their way mean nothing any more: number is above theirs.
func (s *section) close() (number uint64, empty bool) {
	s.mu.Lock()
	s.number++
	number = s.number
	clear(s.asked)
	s.until.Store(0)
	s.mu.Unlock()
	return number, s.turns() == 0
}

func (s *section) turns() (n int) {
	for i := range s.stripes {
		p := &s.stripes[i]
		p.mu.Lock()
		for _, l := range p.live {
			n += l.turns
		}
		p.mu.Unlock()
	}
	return n
}
