package backend

import (
	"math"
	"strings"
	"time"
)

// Memory is what a process has found out about one backend by its own streams and
// checks, for another process of the same node to go on with. Its form is sent from
// one version of the program to another: a field may be added, none changes its
// meaning. Moments are by the machine's clock.
type Memory struct {
	ID  string `json:"id"`
	URL string `json:"url"` // by another one it is another backend

	State  State     `json:"state"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`

	Out      *Out     `json:"out,omitempty"`      // nil: it was never ejected
	Trying   bool     `json:"trying,omitempty"`   // its trial stream is under way
	Drain    *Leaving `json:"drain,omitempty"`    // nil: no operator drains it
	Failures int64    `json:"failures,omitempty"` // in a row
	Breaks   int64    `json:"breaks,omitempty"`
	Phantoms []int64  `json:"phantoms,omitempty"` // when each ends, in ns since 1970
	Refused  bool     `json:"refused,omitempty"`

	Down     bool   `json:"down,omitempty"` // by health checks, as the two that follow
	NotReady bool   `json:"not_ready,omitempty"`
	Slow     bool   `json:"slow,omitempty"`
	Why      string `json:"why,omitempty"`
	Looks    []Saw  `json:"looks,omitempty"` // newest first
	Heard    int64  `json:"heard,omitempty"` // in ns since 1970

	Tokens  Read          `json:"tokens"`
	Answers Read          `json:"answers"`
	Header  time.Duration `json:"header,omitempty"` // mean time to the head of an answer
	Peak    time.Duration `json:"peak,omitempty"`
	Headed  time.Time     `json:"headed,omitzero"` // when one was observed last

	Running float64       `json:"running,omitempty"` // of late, of the whole cluster; what follows is of the slots
	Waiting float64       `json:"waiting,omitempty"`
	Most    float64       `json:"most,omitempty"` // the cap that was learned
	Calm    time.Duration `json:"calm,omitempty"`
	Engine  int           `json:"engine,omitempty"` // the cap that its engine told
	Told    time.Time     `json:"told,omitzero"`    // when
}

// Out is an ejection, or the last one where it is over.
type Out struct {
	On     bool          `json:"on,omitempty"`
	Reason string        `json:"reason,omitempty"`
	Until  time.Time     `json:"until"`
	Length time.Duration `json:"length"`
	Times  int           `json:"times"`
	Back   time.Time     `json:"back,omitzero"`
}

// Leaving is a drain, or how it ended.
type Leaving struct {
	Began time.Time `json:"began"`
	Until time.Time `json:"until,omitzero"` // zero: no deadline
	Over  string    `json:"over,omitempty"`
}

// Saw is a Look.
type Saw struct {
	At       time.Time     `json:"at"`
	Took     time.Duration `json:"took"`
	Finding  Finding       `json:"finding"`
	TimedOut bool          `json:"timed_out,omitempty"`
	Why      string        `json:"why,omitempty"`
}

// Read is a reading of a backend's speed.
type Read struct {
	Amount float64 `json:"amount,omitempty"`
	Came   float64 `json:"came,omitempty"`
	Things float64 `json:"things,omitempty"`
	Time   float64 `json:"time,omitempty"`
}

// maxWhy bounds a text for people that is handed over, in bytes.
const maxWhy = 500

func brief(text string) string {
	if len(text) > maxWhy {
		text = strings.ToValidUTF8(text[:maxWhy], "") + "…"
	}
	return text
}

// Memories are those of all backends, and the mean time of a stream, 0 where none has
// ended.
func (p *Pool) Memories(now time.Time) (all []Memory, mean time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.Backends() {
		all = append(all, b.memory(now))
	}
	return all, time.Duration(p.mean.Load())
}

// memory is a backend's; the pool's mu is held.
func (b *Backend) memory(now time.Time) Memory {
	s, c, w, v := b.Standing(), &b.condition, &b.slots, b.condition.verdict
	m := Memory{
		ID: b.ID, URL: b.URL, State: s.State, Reason: brief(s.Reason), Since: s.Since,
		Trying: b.trial.Load(), Failures: b.failures.Load(), Breaks: b.breaks.Load(),
		Down: v.Down, NotReady: v.NotReady, Slow: v.Slow, Why: brief(v.Reason), Heard: b.Heard(),
		Tokens: b.tokens.read(), Answers: b.answers.read(), Header: inTime(b.header.mean.Load()), Peak: inTime(b.header.peak.Load()),
		Running: w.running, Waiting: w.waiting, Most: w.most, Calm: w.calm,
	}
	if c.out.times > 0 {
		m.Out = c.out.told()
	}
	if d := c.drain; d != nil {
		m.Drain = &Leaving{Began: d.began, Until: d.until, Over: brief(d.over)}
	}
	if h := b.haunted.Load(); h != nil {
		m.Phantoms, m.Refused = h.ends, h.refused
	}
	for _, l := range c.looks {
		m.Looks = append(m.Looks, Saw{At: l.At, Took: l.Took, Finding: l.Finding, TimedOut: l.TimedOut, Why: brief(l.Why)})
	}
	if at := b.header.at.Load(); at != 0 {
		m.Headed = b.pool.made.Add(time.Duration(at) * time.Microsecond)
	}
	if t := b.Terms(); t.CapSource == CapEngine {
		m.Engine, m.Told = t.Cap, w.told
	}
	return m
}

func (r *reading) read() Read { return Read{r.amount, r.came, r.things, r.time} }

func inTime(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// Remember goes on with what a process before this one had found out of the pool's
// backends, and tells how many of them it knows. What the configuration says by now
// counts: of who has another URL, or is not named any more, nothing is kept. It comes
// before the first pick; nobody is told, since no backend has changed.
func (p *Pool) Remember(all []Memory, mean time.Duration, now time.Time) (known int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range all {
		if b := p.known(all[i].ID, all[i].URL); b != nil && all[i].sound() {
			all[i].bound(now)
			b.remember(&all[i], now)
			known++
		}
	}
	if mean > 0 {
		p.mean.Store(int64(mean))
	}
	list := p.now.Load().list
	p.sampled = now // or what is remembered fades by the time that the start took
	p.compare(list)
	p.publish(list)
	p.learnCaps(list, now, 0)
	p.weigh(now)
	p.queue.review()
	return known
}

// sound tells whether a memory can be that of a backend.
func (m *Memory) sound() bool {
	for _, v := range []float64{
		m.Tokens.Amount, m.Tokens.Came, m.Tokens.Things, m.Tokens.Time, m.Answers.Amount, m.Answers.Came, m.Answers.Things, m.Answers.Time,
		float64(m.Header), float64(m.Peak), m.Running, m.Waiting, m.Most, float64(m.Calm), float64(m.Engine), float64(m.Failures), float64(m.Breaks),
	} {
		if !(v >= 0 && v < math.MaxInt64/4) {
			return false
		}
	}
	return m.Out == nil || m.Out.Times > 0 && m.Out.Length >= 0
}

// bound has nothing be in the future that was, nor last for longer than it was to: the
// machine's clock may have been set back meanwhile.
func (m *Memory) bound(now time.Time) {
	for _, at := range []*time.Time{&m.Since, &m.Headed, &m.Told} {
		*at = past(*at, now)
	}
	for i := range m.Looks {
		m.Looks[i].At = past(m.Looks[i].At, now)
	}
	m.Heard = min(m.Heard, now.UnixNano())
	for i, end := range m.Phantoms {
		m.Phantoms[i] = min(end, now.Add(longestPhantom).UnixNano())
	}
	if d := m.Drain; d != nil {
		late := d.Began.Sub(past(d.Began, now))
		d.Began = d.Began.Add(-late)
		if !d.Until.IsZero() {
			d.Until = d.Until.Add(-late)
		}
	}
}

// past is a moment, or now where that is earlier.
func past(at, now time.Time) time.Time {
	if at.After(now) {
		return now
	}
	return at
}

// remember takes a memory over; the pool's mu is held.
func (b *Backend) remember(m *Memory, now time.Time) {
	c := &b.condition
	c.out = ejection{} // what operators have agreed on was heeded already, and may have been taken back since
	if m.Out != nil {
		c.out = m.Out.ejection(now)
	}
	if m.Trying && c.out.on {
		b.trial.Store(true)
		b.lent = now.Add(lentTime)
	}
	if d := m.Drain; d != nil && c.drain != nil { // operators may have taken it back
		*c.drain = drain{began: d.Began, until: d.Until, over: d.Over}
	}
	b.failures.Store(m.Failures)
	b.breaks.Store(m.Breaks)
	if n := len(m.Phantoms); n > 0 {
		b.haunted.Store(&phantoms{ends: m.Phantoms[max(0, n-maxPhantoms):], refused: m.Refused})
	}
	b.heard.Store(m.Heard)
	b.recall(m)
	b.rememberPace(m)
	s := c.standing("configured")
	if s.Since = now; s.State == m.State {
		s.Since, s.Reason = m.Since, m.Reason // a slow start goes on where it was
	}
	b.standing.Store(&s)
}

// ejection is what is left of it: no more than its length, whatever the clock says.
func (o *Out) ejection(now time.Time) ejection {
	return ejection{on: o.On, reason: o.Reason, until: past(o.Until, now.Add(o.Length)), length: o.Length, times: o.Times, back: past(o.Back, now)}
}

// recall takes over what health checks have found, where they are still wanted.
func (b *Backend) recall(m *Memory) {
	if !b.pool.now.Load().rules.Health.Enabled {
		return
	}
	c := &b.condition
	c.verdict = Verdict{Down: m.Down, NotReady: m.NotReady, Slow: m.Slow, Reason: m.Why}
	b.slow.Store(m.Slow)
	for _, l := range m.Looks[:min(len(m.Looks), MaxLooks)] {
		c.looks = append(c.looks, Look(l))
	}
}

// rememberPace takes over how fast a backend is, and what it has room for.
func (b *Backend) rememberPace(m *Memory) {
	b.tokens, b.answers = m.Tokens.reading(), m.Answers.reading()
	if !m.Headed.IsZero() {
		b.header.mean.Store(m.Header.Seconds())
		b.header.peak.Store(m.Peak.Seconds())
		b.header.at.Store(int64(m.Headed.Sub(b.pool.made)/time.Microsecond) - 1) // below 0: before this process
	}
	w := &b.slots
	w.running, w.waiting, w.most, w.calm = m.Running, m.Waiting, m.Most, m.Calm
	if t := b.Terms(); t.CapSource == CapNone && m.Engine > 0 {
		t.Cap, t.CapSource, w.told = m.Engine, CapEngine, m.Told
		b.terms.Store(&t)
	}
}

func (r Read) reading() reading { return reading{r.Amount, r.Came, r.Things, r.Time} }
