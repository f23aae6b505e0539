package proxy

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

const (
	// minRetries may be under way in a pool whatever its budget: a share of
	// few streams is none.
	minRetries = 3

	backoffBase = 25 * time.Millisecond
	backoffCap  = 250 * time.Millisecond
)

// Validate reports every fault by the key it concerns.
func (c RetryConfig) Validate(fault func(key, format string, args ...any)) {
	if c.MaxAttempts < 1 || c.MaxAttempts > 20 {
		fault("max_attempts", "%d is out of range; write 1 (no retry) to 20", c.MaxAttempts)
	}
	if c.BudgetPercent < 0 || c.BudgetPercent > 100 {
		fault("budget_percent", "%d is no percentage; write 0 (none after a backend broke off) to 100", c.BudgetPercent)
	}
	idempotent := []string{"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"} // RFC 9110, 9.2.2
	for _, m := range c.Methods {
		if !slices.Contains(idempotent, m) {
			fault("methods", "%q is not idempotent, and what a backend may have begun is not done twice; write any of %s", m, strings.Join(idempotent, ", "))
		}
	}
	if c.MaxReplayBytes < 0 || c.MaxReplayBytes > 16<<20 {
		fault("max_replay_bytes", "%d bytes is out of range; write 0 (bodies are not kept) to 16MiB", c.MaxReplayBytes)
	}
}

// again readies a stream whose attempt failed for another one, where the request
// may be tried again. A request that no backend can have begun always may; one
// that may have been begun only by its method, while no byte of an answer came,
// with its whole body at hand, and within the pool's budget.
func (s *Stream) again(err error) bool {
	var f *failure
	if s.attempts >= s.pool.cfg.Retry.MaxAttempts || !errors.As(err, &f) || !f.elsewhere && !f.repeat {
		return false
	}
	if f.repeat && (!s.repeatable() || f.timeout != "" && !s.others()) || !s.rewind() || f.repeat && !s.spend() {
		return false
	}
	s.leave(f)
	s.pool.between.Add(1) // before its count is gone from the backend's
	s.lease.Release(time.Now())
	s.pool.shedding.retries.Inc()
	if f.repeat && s.backOff() != nil {
		s.pool.between.Add(-1)
		s.repay()
		return false
	}
	return true
}

// repeatable tells whether a backend may have begun the request and it may be
// sent once more all the same.
func (s *Stream) repeatable() bool {
	c := s.client
	return slices.Contains(s.pool.cfg.Retry.Methods, string(c.req.Method)) && int64(len(c.out)-c.body) <= s.pool.cfg.Retry.MaxReplayBytes
}

// others tells whether there is a backend that was not tried: one that did not
// answer in time would only keep the client waiting once more.
func (s *Stream) others() bool { return s.visit == nil && len(s.tried)+1 < len(s.pool.Backends()) }

// rewind makes the request what it was before it was sent; false where part of
// its body is gone.
func (s *Stream) rewind() (ok bool) {
	if !s.begun {
		return true
	}
	if s.client.out, ok = s.client.kept.Take(s.client.out); ok {
		s.begun = false
	}
	return ok
}

// keep has the upload that begins keep what it sends, where it may be needed
// again.
func (s *Stream) keep() {
	c := s.client
	c.up.Kept = nil
	s.client.kept.Drop() // what was not kept cannot be taken back
	if s.repeatable() {
		s.client.kept.Begin(s.pool.cfg.Retry.MaxReplayBytes-int64(len(c.out)-c.body), &c.server.replay)
		c.up.Kept = &c.kept
	}
}

// spend takes a retry out of the pool's budget: a share of its streams may be on
// one at a time. It is given back with the head of an answer, since from there
// on the stream is as any other; a retry that has to wait is held all the while.
func (s *Stream) spend() bool {
	p := s.pool
	streams := p.between.Load()
	for _, b := range p.Backends() {
		streams += b.InFlight()
	}
	most := max(minRetries, streams*int64(p.cfg.Retry.BudgetPercent)/100)
	for n := p.retrying.Load(); n < most && p.cfg.Retry.BudgetPercent > 0; n = p.retrying.Load() {
		if p.retrying.CompareAndSwap(n, n+1) {
			s.retrying = true
			return true
		}
	}
	p.shedding.exhausted.Inc()
	return false
}

// repay gives back what spend took.
func (s *Stream) repay() {
	if s.retrying {
		s.retrying = false
		s.pool.retrying.Add(-1)
	}
}

// backOff waits before a backend is asked again: a random part of a span that
// doubles, so that streams which broke together do not come back together.
func (s *Stream) backOff() error {
	span := min(backoffBase<<s.breaks, backoffCap)
	s.breaks++
	return s.park(Placing, func(ctx context.Context) {
		pause := time.NewTimer(rand.N(span))
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	})
}

// forget drops what was kept of the body.
func (s *Stream) forget() {
	if s.begun {
		s.client.kept.Drop()
	}
}
