package shards

import (
	"context"
	"errors"
	"time"
)

// What an owner changes about a session that is bound: because a node asks, an
// operator or a planner wants it.

// rebind gives a session another backend because one node cannot reach its own:
// at once where the pool wants availability, and only once in a while, or two
// nodes that each miss the other's backend would play ping-pong; else by a move.
func (o *Owner) rebind(ctx context.Context, q question) (answer, error) {
	a, err := o.look(ctx, q.session)
	if err != nil || a.verdict != bound || a.binding.Epoch != q.seen {
		return a, err
	}
	rule := o.rule(a.binding.Backend)
	switch {
	case q.heavy:
		return o.lighten(ctx, q, a)
	case rule.Strict:
		return o.wish(ctx, want{session: q.session, from: q.seen, to: q.backend, strict: true})
	case !o.rests(q.session, rebindRest):
		a.verdict = detour
		return a, nil
	}
	if _, err := o.log.Propose(ctx, Command{Op: OpRebind, Session: q.session, Seen: q.seen, Backend: q.backend}.encode()); err != nil {
		return answer{}, err
	}
	a, _ = o.peek(q.session)
	return a, nil
}

// lighten moves a session for a turn that has not begun and would cost more where
// it is: in one round, or not at all, since the turn waits.
func (o *Owner) lighten(ctx context.Context, q question, a answer) (answer, error) {
	rule := o.rule(a.binding.Backend)
	if !o.leads() || !o.rests(q.session, rule.Stay) {
		return a, nil
	}
	after, err := o.wish(ctx, want{session: q.session, from: q.seen, to: q.backend, strict: rule.Strict, once: true})
	if err != nil || after.verdict != bound {
		return a, err
	}
	return after, nil
}

// rests says whether a session was not moved for the asking within a time, and
// notes that it is now.
func (o *Owner) rests(session Key, within time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, now := o.reign, o.desk.now()
	if r == nil || r.heldBy[session] != nil {
		return false
	}
	if last, ok := r.rebound.last(session); ok && now-last < within {
		return false
	}
	return r.rebound.note(session, now)
}

// move is an operator's wish, or a planner's.
func (o *Owner) move(ctx context.Context, q question) (answer, error) {
	a, err := o.look(ctx, q.session)
	if err != nil || a.verdict != bound || q.seen != 0 && a.binding.Epoch != q.seen || a.binding.Backend == q.backend {
		return a, err
	}
	rule := o.rule(a.binding.Backend)
	until := o.desk.now() + max(rule.Drain, wishTime)
	return o.wish(ctx, want{session: q.session, from: a.binding.Epoch, to: q.backend, until: until, strict: rule.Strict})
}

// letGo lets a session go that its asker has not used for a TTL, unless it is in
// use elsewhere, or this leader does not know yet.
func (o *Owner) letGo(ctx context.Context, session Key, a answer) answer {
	rule := o.rule(a.binding.Backend)
	ttl := rule.TTL
	if ttl <= 0 || !o.seasoned(ttl) {
		return a
	}
	after, err := o.wish(ctx, want{session: session, from: a.binding.Epoch, idle: ttl, strict: rule.Strict})
	if err != nil || after.verdict == held {
		return a
	}
	return after
}

// seasoned says whether the reign has lasted so long: timers start afresh with it.
func (o *Owner) seasoned(ttl time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reign != nil && o.desk.now() >= o.reign.began+ttl
}

// wish has a change made once no turn of the session runs anywhere, and waits for
// it until ctx ends; then it is called off, but for one with a time of its own.
func (o *Owner) wish(ctx context.Context, w want) (answer, error) {
	if w.until == 0 {
		w.until = o.desk.now() + wishTime
		if end, ok := ctx.Deadline(); ok {
			w.until = o.desk.now() + time.Until(end)
		}
	}
	ended, err := o.post(w)
	if err != nil {
		return answer{verdict: held}, nil // it is asked again
	}
	if !o.await(ctx, ended) {
		return answer{verdict: held}, nil
	}
	a, _ := o.peek(w.session)
	return a, nil
}

// await says whether a wish ends in three quarters of the time that there is: the
// answer has a way to go.
func (o *Owner) await(ctx context.Context, ended <-chan struct{}) bool {
	patience := wishTime
	if end, ok := ctx.Deadline(); ok {
		patience = time.Until(end) / 4 * 3
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// post takes a wish for a change and returns what is closed when it has ended,
// made or not.
func (o *Owner) post(w want) (<-chan struct{}, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reign == nil {
		return nil, errNoReign
	}
	ended, err := o.reign.post(w)
	if err == nil {
		o.reign.launch()
	}
	return ended, err
}

var errNoReign = errors.New("this node has not led the shard")

// leads says whether this node leads the shard, as far as it knows, and leases of a
// leader before it are over: it may change bindings of its own.
func (o *Owner) leads() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.desk.now()
	return o.reign != nil && o.reign.fresh(now) && o.reign.graced(now)
}

// reigns says whether the reign goes on, proven a moment ago or not.
func (o *Owner) reigns() bool {
	leader := o.log.Leader()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reign != nil && leader == o.desk.node
}

// propose has sessions moved, each once no turn of it runs, or called off after
// their pool's drain timeout. It returns how many wishes were taken.
func (o *Owner) propose(targets []Target) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reign == nil {
		return 0
	}
	now := o.desk.now()
	for _, t := range targets {
		b, _ := o.machine.At([]Key{t.Session})
		rule := o.rule(b[0].Backend)
		w := want{session: t.Session, from: t.Seen, to: t.Backend, until: now + max(rule.Drain, wishTime), strict: rule.Strict}
		if _, err := o.reign.post(w); err == nil {
			n++
		}
	}
	o.reign.launch()
	return n
}

// sessions are those of a backend, with what the leader knows of their use: nodes
// report in the course of a quarter of the TTL.
func (o *Owner) sessions(backend string) (all []Candidate) {
	var here []Target
	o.machine.View(func(t *Table, _ Position) { here = t.On(backend) })
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reign == nil {
		return nil
	}
	now, u := o.desk.now(), o.reign.uses[o.pool(backend)]
	for _, t := range here {
		c := Candidate{Session: t.Session, Epoch: t.Seen, Busy: o.reign.wants[t.Session] != nil}
		if u != nil {
			if last, fresh, ok := u.Last(t.Session); ok {
				c.Idle, c.New = now-last, fresh
			}
		}
		all = append(all, c)
	}
	return all
}
