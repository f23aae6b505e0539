package load

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// Snapshot is how a load goes.
type Snapshot struct {
	Open    int            // streams
	At      map[string]int // of them by backend, once its answer has begun
	Done    int64          // streams whose answer was right and whole
	Broken  int64          // streams of backends that were hurt on purpose
	Stopped int64          // streams cut by the end of the load
	Skipped int64          // requests that were not sent, since MaxOpen streams were open
	Failed  []Failure      // all other ends, the most frequent first
	Tokens  int64
	Turns   int64 // of sessions, that were answered
	Moved   int64 // of them, by another backend than the session's turn before

	Rate      float64   // tokens per second over the last few seconds
	FirstByte Quantiles // from when a request was due to the first byte of its answer's body; of the last ten seconds
	AllFirst  Quantiles // the same from the start
}

// Failure is one kind of end that should not be.
type Failure struct {
	Kind  string
	Count int64
	Last  error // the latest one
}

// Failures is their number over all kinds.
func (s Snapshot) Failures() (n int64) {
	for _, f := range s.Failed {
		n += f.Count
	}
	return n
}

// Quantiles of a duration; zero where nothing was measured.
type Quantiles struct{ P50, P99 time.Duration }

const (
	slots    = 10 // seconds that are remembered one by one
	rateOver = 3  // seconds that the rate looks back
	maxKinds = 32 // of failures; the rest are one
)

// slot is one second.
type slot struct {
	second int64 // of the epoch
	tokens int64
	first  histogram
}

// tally counts what streams do.
type tally struct {
	start time.Time

	mu      sync.Mutex // guards what follows
	open    int
	at      map[string]int
	hurts   map[string]time.Time // by backend, the last time
	done    int64
	broken  int64
	stopped int64
	skipped int64
	tokens  int64
	turns   int64
	moved   int64
	homes   map[string]string // by session: who answered last
	failed  map[kind]*Failure
	all     histogram
	recent  [slots]slot // second s stands at s % slots
}

func newTally(now time.Time) *tally {
	return &tally{start: now, at: map[string]int{}, hurts: map[string]time.Time{}, homes: map[string]string{}, failed: map[kind]*Failure{}}
}

// begin takes a stream in, unless there are limit already.
func (t *tally) begin(limit int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open >= limit {
		t.skipped++
		return false
	}
	t.open++
	return true
}

func (t *tally) answered(backend, session string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if backend == "" {
		return
	}
	t.at[backend]++
	if session == "" {
		return
	}
	t.turns++
	if was := t.homes[session]; was != "" && was != backend {
		t.moved++
	}
	t.homes[session] = backend
}

func (t *tally) first(now time.Time, after time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.add(after)
	t.slot(now).first.add(after)
}

func (t *tally) token(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens++
	t.slot(now).tokens++
}

// slot is now's second; called with the lock held.
func (t *tally) slot(now time.Time) *slot {
	second := now.Unix()
	s := &t.recent[second%slots]
	if s.second != second {
		*s = slot{second: second}
	}
	return s
}

func (t *tally) hurt(backend string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hurts[backend] = now
}

func (t *tally) end(s *stream, k kind, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open--
	if s.backend != "" {
		t.at[s.backend]--
	}
	if k.breakable() && t.explained(s) {
		k = kindBroken
	}
	switch k {
	case kindDone:
		t.done++
	case kindStopped:
		t.stopped++
	case kindBroken:
		t.broken++
	default:
		t.fail(k, err)
	}
}

// explained tells whether the stream's backend, or any where that is not known,
// was hurt since the stream was due.
func (t *tally) explained(s *stream) bool {
	for backend, when := range t.hurts {
		if (s.backend == "" || s.backend == backend) && when.After(s.due) {
			return true
		}
	}
	return false
}

func (t *tally) fail(k kind, err error) {
	f := t.failed[k]
	if f == nil && len(t.failed) >= maxKinds {
		k = "other"
		f = t.failed[k]
	}
	if f == nil {
		f = &Failure{Kind: string(k)}
		t.failed[k] = f
	}
	f.Count++
	f.Last = err
}

func (t *tally) snapshot(now time.Time) Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Snapshot{
		Open: t.open, At: maps.Clone(t.at), Done: t.done, Broken: t.broken, Stopped: t.stopped, Skipped: t.skipped, Tokens: t.tokens,
		Turns: t.turns, Moved: t.moved,
		Rate: t.rate(now), AllFirst: t.all.quantiles(),
	}
	for _, f := range t.failed {
		s.Failed = append(s.Failed, *f)
	}
	slices.SortFunc(s.Failed, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind))
	})
	var lately histogram
	for i := range t.recent {
		if now.Unix()-t.recent[i].second < slots {
			lately.merge(&t.recent[i].first)
		}
	}
	s.FirstByte = lately.quantiles()
	return s
}

// rate is taken over whole seconds, once there is one.
func (t *tally) rate(now time.Time) float64 {
	over := min(rateOver, now.Unix()-t.start.Unix()-1)
	if over < 1 {
		return float64(t.tokens) / max(now.Sub(t.start).Seconds(), 0.1)
	}
	sum := int64(0)
	for i := range t.recent {
		if age := now.Unix() - t.recent[i].second; age >= 1 && age <= over {
			sum += t.recent[i].tokens
		}
	}
	return float64(sum) / float64(over)
}
