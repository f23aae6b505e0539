package backend

import (
	"fmt"
	"time"
)

// FailureKind is how a backend failed a stream before its answer was of use.
type FailureKind string

// The kinds of failure before an answer; the list is closed.
const (
	FailedConnect FailureKind = "connect" // no connection could be made, or not in time
	FailedGateway FailureKind = "gateway" // it answered 502, 503 or 504
	FailedTimeout FailureKind = "timeout" // no head of an answer in time
	FailedBroke   FailureKind = "broke"   // it ended or garbled the exchange before an answer
)

// ejection is a backend's being out after failures on real streams.
type ejection struct {
	on     bool
	reason string
	until  time.Time // from then on one stream decides
	length time.Duration
	times  int       // in a row
	back   time.Time // when it came back the last time; zero: it did not
}

// jitterShare is how much longer an ejection is at most than the rule says, so
// that nodes do not send their trial streams at one moment.
const jitterShare = 0.1

// again is the number in a row that an ejection would have now. Time in service
// makes the row forget: one for each twice the length of the last ejection. So a
// backend that fails again as soon as it is back is out longer each time.
func (e *ejection) again(now time.Time) int {
	times := e.times
	if !e.back.IsZero() && e.length > 0 {
		times -= int(now.Sub(e.back) / (2 * e.length))
	}
	return max(0, times) + 1
}

// Succeeded tells the pool that the head of an answer came to a stream, firstByte
// after its request was sent. The backend's failures no longer count, and where
// the stream is the trial of an ejected one, the ejection ends. Other streams of
// such a backend, which it had before or got in a panic, decide nothing.
func (p *Pool) Succeeded(l *Lease, now time.Time, firstByte time.Duration) {
	b := l.backend
	b.heard.Store(now.UnixNano())
	b.headed(now, firstByte)
	if most := p.now.Load().rules.Outlier.Latency; most > 0 && firstByte > most {
		p.blame(l, now, b.failures.Add(1), fmt.Sprintf("%v to the head of an answer", firstByte.Round(time.Millisecond)))
		return
	}
	if b.haunted.Load() != nil {
		b.haunted.Store(nil)
	}
	p.headCame(l, now)
}

// Erred tells the pool that the head of an answer came to a stream and says that
// the work was not done, by whoever's fault: the backend is not judged by it. It
// came soon since nothing was done: so it tells nothing of how fast the backend
// is, and counts as a stream for a while. Faults of clients come to all backends
// alike; one that answers nothing else would draw everybody's streams.
func (p *Pool) Erred(l *Lease, now time.Time) {
	l.backend.heard.Store(now.UnixNano())
	p.headCame(l, now)
	p.haunt(l.backend, now, FailedGateway, 1)
}

// headCame ends a row of failures, and an ejection that the stream is the trial
// of.
func (p *Pool) headCame(l *Lease, now time.Time) {
	b := l.backend
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
	if !l.is(isTrial) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if out := &b.condition.out; out.on && now.After(out.until) {
		p.readmit(b, now, "the trial stream succeeded")
	}
	l.decided()
}

// Failed tells the pool that its backend failed a stream before the first byte of
// an answer, or with an answer that says the same. Enough failures in a row
// eject it, and so does a failed trial; for a while they count as streams.
func (p *Pool) Failed(l *Lease, now time.Time, kind FailureKind, what string) {
	b := l.backend
	if l.outdated() {
		return
	}
	row := b.failures.Add(1)
	p.haunt(b, now, kind, row)
	if kind == FailedTimeout {
		p.absolve(b, now)
	}
	p.blame(l, now, row, what)
}

// absolve forgets how long streams waited for the backend in vain: the failure
// counts as a phantom instead. A reading fades with what comes after it, and
// nothing would come: the backend would be neither tried nor ejected, long after
// it is well again. Streams that run there go on to speak for themselves.
func (p *Pool) absolve(b *Backend, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.micros(now)
	b.answers, b.flown, b.answered = reading{}, b.flights.spent(at), b.answering.spent(at)
	if b.flowing.count() == 0 {
		b.tokens = reading{}
	}
}

// Broke tells the pool that a backend broke an answer off that had begun. These
// have a row of their own, which only a whole answer ends: a backend that begins
// well each time and never ends would pass for good otherwise.
func (p *Pool) Broke(b *Backend, now time.Time, what string) {
	p.count(b, now, b.breaks.Add(1), what)
}

// Froze tells the pool that an answer was given up midway, since nothing of it
// came for too long. Where streams bring tokens the backend broke it off; where
// they may be silent, as feeds of events are, nothing came since nothing
// happened.
func (p *Pool) Froze(b *Backend, now time.Time, what string) {
	p.mu.Lock()
	tokens := p.usual.streaming
	p.mu.Unlock()
	if tokens {
		p.Broke(b, now, what)
	}
}

// blame holds the n-th failure in a row against a stream's backend. A trial's is
// enough.
func (p *Pool) blame(l *Lease, now time.Time, n int64, what string) {
	b := l.backend
	if !l.is(isTrial) {
		p.count(b, now, n, what)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if out := &b.condition.out; out.on && now.After(out.until) && p.now.Load().rules.Outlier.ConsecutiveFailures > 0 {
		p.eject(b, now, out.times+1, "the trial stream failed: "+what)
	}
	l.decided()
}

// count ejects a backend after its n-th failure in a row, if that is due.
func (p *Pool) count(b *Backend, now time.Time, n int64, what string) {
	most := int64(p.now.Load().rules.Outlier.ConsecutiveFailures)
	if most == 0 || n < most || b.standing.Load().State != Active {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if out := &b.condition.out; !out.on && b.standing.Load().State == Active && p.mayEject(b) {
		p.eject(b, now, out.again(now), fmt.Sprintf("%d failures in a row, the last: %s", n, what))
	}
}

// mayEject tells whether the ejection of b, too, stays within the limit, which
// is judged by the share after it; the last backend that takes streams always
// stays.
func (p *Pool) mayEject(b *Backend) bool {
	out, others := 1, 0
	list := p.Backends()
	for _, x := range list {
		switch {
		case x.condition.out.on:
			out++
		case x != b && x.standing.Load().State == Active:
			others++
		}
	}
	return others > 0 && out*100 <= p.now.Load().rules.Outlier.MaxEjectedPercent*len(list)
}

// eject puts a backend out for the times-th time in a row. mu is held.
func (p *Pool) eject(b *Backend, now time.Time, times int, reason string) {
	rules := p.now.Load().rules.Outlier
	length := rules.BaseEjection
	for i := 1; i < times && length < rules.MaxEjection; i++ {
		length *= 2
	}
	length = min(length, rules.MaxEjection)
	length += time.Duration(jitterShare * p.float() * float64(length))
	b.condition.out = ejection{on: true, reason: reason, until: now.Add(length), length: length, times: times}
	p.settle(b, now, "")
}

// readmit ends an ejection. mu is held.
func (p *Pool) readmit(b *Backend, now time.Time, reason string) {
	out := &b.condition.out
	out.on, out.back = false, now
	b.back.Store(p.micros(now))
	b.failures.Store(0)
	b.breaks.Store(0)
	b.haunted.Store(nil)
	b.tokens, b.answers = reading{}, reading{} // what it did while it was ill says nothing of it now
	b.speed.Store(1)
	p.settle(b, now, reason)
}

// byOperator is the reason of an ejection that an operator wanted.
const byOperator = "by an operator"

// Eject puts a backend out for a time by an operator's word, whatever the limits
// say. At its end one stream decides. One that is out for longer stays so, and for the
// reason that it has.
func (p *Pool) Eject(b *Backend, now time.Time, length time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, until := &b.condition.out, now.Add(length)
	if out.on && out.until.After(until) {
		return
	}
	*out = ejection{on: true, reason: byOperator, until: until, length: length, times: max(1, out.times)}
	p.settle(b, now, "")
}

// Recall ends an ejection that an operator wanted. What streams have found since
// stays.
func (p *Pool) Recall(b *Backend, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if out := &b.condition.out; out.on && out.reason == byOperator {
		p.readmit(b, now, "the operator's word was taken back")
	}
}

// Admit ends an ejection by an operator's word, and forgets those before it.
func (p *Pool) Admit(b *Backend, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.condition.out.on {
		p.readmit(b, now, "admitted by an operator")
	}
	b.condition.out = ejection{}
}

// nextTrial is when the first of the ejections that are not over ends; zero
// where there is none.
func (p *Pool) nextTrial(now time.Time) (at time.Time) {
	for _, b := range p.Backends() {
		s := b.standing.Load()
		if s.State == Ejected && !now.After(s.Until) && (at.IsZero() || s.Until.Before(at)) {
			at = s.Until
		}
	}
	return at
}
