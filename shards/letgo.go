package shards

import "time"

const (
	maxExpired = 1024       // sessions that are let go in a sweep, per shard
	maxDown    = maxTargets // sessions in one entry about a backend that is gone
)

// expire wishes sessions gone that had no turn for their TTL, as far as the nodes
// have reported. The hold asks the nodes themselves, who know better.
func (r *reign) expire(now time.Duration) {
	for pool, u := range r.uses {
		if rule := r.o.desk.rules.Pool(pool); rule.TTL > 0 && now > rule.TTL {
			r.dismiss(u, u.Before(now-rule.TTL, maxExpired), rule.TTL, rule.Strict)
		}
	}
}

// evict wishes the least recently used sessions of a full shard gone; one with a
// running turn stays.
func (r *reign) evict() {
	for pool, u := range r.uses {
		rule, over := r.o.desk.rules.Pool(pool), 0
		r.o.machine.View(func(t *Table, _ Position) { over = t.crowd(pool) - rule.Max })
		if rule.Max > 0 && over > 0 {
			more := min(over+rule.Max/32, maxExpired) // some room, too
			r.o.desk.evicted.Add(int64(r.dismiss(u, u.Oldest(more), evictIdle, rule.Strict)))
		}
	}
}

// dismiss wishes sessions gone, and returns how many.
func (r *reign) dismiss(u *Uses, keys []Key, idle time.Duration, strict bool) (n int) {
	stand, _ := r.o.machine.At(keys)
	for i, k := range keys {
		if stand[i].Epoch == 0 {
			u.Drop(k)
			continue
		}
		w := want{session: k, from: stand[i].Epoch, idle: idle, until: r.o.desk.now() + wishTime, strict: strict}
		if _, err := r.post(w); err == nil {
			n++
		}
	}
	return n
}

// evictIdle is how long a session must have been idle to be evicted: longer than
// nothing, so that one which begins its next turn just now is left alone.
const evictIdle = time.Millisecond

// vacate moves the sessions of backends that are to be left: one that drains loses
// each when it is idle, one that is gone loses all at once, by entries that name
// the backend set's revision and each session's target, so that all replicas move
// the same sessions once.
func (r *reign) vacate(now time.Duration) {
	for _, l := range append(r.o.desk.leaving(), r.orphans()...) {
		if !r.inhabited(l.Backend) {
			continue
		}
		if l.Gone {
			r.down(l)
			continue
		}
		set, _ := r.o.machine.Set(l.Pool)
		rule := r.o.rule(l.Backend)
		for _, t := range r.targets(l, set) {
			w := want{session: t.Session, from: t.Seen, to: t.Backend, leaves: l.Backend, until: now + max(rule.Drain, wishTime), strict: rule.Strict}
			if _, err := r.post(w); err == errManyWants {
				return
			}
		}
	}
	r.launch()
}

// orphans are backends that have sessions and are of no pool any more.
func (r *reign) orphans() (all []Leaver) {
	r.o.machine.View(func(t *Table, _ Position) {
		for _, id := range t.backends.text {
			if id == "" {
				continue
			}
			pool := r.o.poolIn(t, id)
			if s, ok := t.Set(pool); ok && !s.Has(id) {
				all = append(all, Leaver{Pool: pool, Backend: id})
			}
		}
	})
	return all
}

// inhabited says whether a backend has sessions.
func (r *reign) inhabited(backend string) (ok bool) {
	r.o.machine.View(func(t *Table, _ Position) { ok = t.Count(backend) > 0 })
	return ok
}

// targets says where each session of a backend goes.
func (r *reign) targets(l Leaver, set Set) []Target {
	var here, all []Target
	r.o.machine.View(func(t *Table, _ Position) { here = t.On(l.Backend) })
	for _, t := range here {
		if t.Backend = r.elsewhere(set, t.Session, l.Backend); t.Backend != "" {
			all = append(all, t)
		}
	}
	return all
}

// elsewhere is where a session goes that leaves a backend; "": nowhere now.
func (r *reign) elsewhere(set Set, session Key, backend string) string {
	return set.Choose(session, func(id string) bool { return id != backend && r.o.desk.usable(id) })
}

// down proposes that a backend is gone.
func (r *reign) down(l Leaver) {
	if r.downs[l.Backend] {
		return
	}
	r.downs[l.Backend] = true
	set, _ := r.o.machine.Set(l.Pool)
	all := r.targets(l, set)
	r.o.desk.work(func() {
		for len(all) > 0 {
			n := min(len(all), maxDown)
			c := Command{Op: OpDown, Pool: l.Pool, Revision: set.Revision, Backend: l.Backend, Targets: all[:n]}
			if _, err := r.o.log.Propose(r.o.desk.ctx, c.encode()); err != nil {
				break // the next sweep sees what is left
			}
			all = all[n:]
			r.o.desk.rebound(l.Pool, n)
		}
		r.o.mu.Lock()
		defer r.o.mu.Unlock()
		delete(r.downs, l.Backend)
	})
}
