package shards

import "time"

// jump is by how much a clock goes on between two looks at it when nothing went on
// in between: the process was stopped, the machine suspended, or somebody set it.
// No lease lasts so long, and idleness is no longer what it seems.
const jump = lease

// resume is for a leader that was away: like a new one it begins its timers afresh,
// and waits for leases that it may have granted by another clock.
func (r *reign) resume(now, gap time.Duration) {
	r.o.desk.o.Log.Warn("the clock of a leader has jumped; its sessions' timers begin afresh", "shard", r.o.shard, "term", r.term, "gap", gap)
	r.began = now
	r.afresh()
}

// notice has the node judge no session idle for longer than since its own clock's
// last jump. It is called every renewLook, and before a lease that was lost in the
// jump can come back.
func (r *Router) notice(now time.Duration) {
	r.setWatch(now)
	if now-time.Duration(r.noticed.Swap(int64(now))) > jump {
		r.jumped.Store(int64(now))
	}
}

// setWatch has glance go by the leases' clock, as it was read just now. What glance
// says is late by that moment, never early.
func (r *Router) setWatch(now time.Duration) {
	r.ahead.Store(int64(now - time.Since(r.born)))
}

// glance is the time by the runtime's own clock, which costs a tenth of the leases'.
// It lacks what the machine has slept since it was set, renewLook ago: no lease may be
// judged by it that is not judged again.
func (r *Router) glance() time.Duration {
	return time.Since(r.born) + time.Duration(r.ahead.Load())
}

// idle is for how long a session was surely not used here.
func (r *Router) idle(c Cached, now time.Duration) time.Duration {
	return min(c.Idle, now-time.Duration(r.jumped.Load()))
}
