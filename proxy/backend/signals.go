package backend

import (
	"math"
	"sync/atomic"
	"time"
)

// signals is what a backend's streams tell of it, each by an atomic addition or
// two; Pool.Sample makes readings of them.
type signals struct {
	answering meter         // streams from the head of the answer to the last byte
	flowing   meter         // of them, from the first piece of a body that comes as it is made
	heads     atomic.Uint64 // of answers, so far
	made      atomic.Uint64 // what flowing streams got: bytes, and in the low countBits bits events
	coarse    bits          // speed in steps, of which each is alike times the one before; 0: no sample yet
	speed     bits          // beside the pool's median, which is 1; 0: no sample yet
	reading   bits          // tokens' speed by this node's own streams; 0: too few to tell
	header    latency
}

// bits is a float64 that is read and replaced as one.
type bits struct{ word atomic.Uint64 }

func (f *bits) Load() float64   { return math.Float64frombits(f.word.Load()) }
func (f *bits) Store(v float64) { f.word.Store(math.Float64bits(v)) }

// latency is how long the heads of answers took, in seconds. Two who observe at
// once may lose one of their observations.
type latency struct {
	mean bits         // recent
	peak bits         // goes up at once
	at   atomic.Int64 // of the last observation, in microseconds since the pool was made, and 1 more; 0: none
}

const (
	meanWindow = 2 * time.Second       // of latency.mean
	peakWindow = 10 * time.Second      // of latency.peak, and of both where nothing comes
	fresh      = 20 * time.Millisecond // one observation counts as much as if the last was so long ago: it must tell something
)

func (l *latency) observe(at int64, took time.Duration) {
	t := took.Seconds()
	before := l.at.Swap(at)
	if before == 0 {
		l.mean.Store(t)
		l.peak.Store(t)
		return
	}
	age := max(0, time.Duration(at-before)*time.Microsecond) + fresh
	l.mean.Store(t + (l.mean.Load()-t)*faded(age, meanWindow))
	l.peak.Store(max(t, t+(l.peak.Load()-t)*faded(age, peakWindow)))
}

// longWait is the least that a stream must have waited to say so: a client that
// leaves at once, or a connect that is refused, tells nothing of the head.
const longWait = 100 * time.Millisecond

// outwaited hears of a stream that ended before the head came: that would have
// taken longer. So one that hangs is not what it was to every client that gives
// up.
func (l *latency) outwaited(at int64, took time.Duration) {
	if took >= longWait && took.Seconds() > l.mean.Load() {
		l.observe(at, took)
	}
}

// faded is what is left of something after an age.
func faded(age, window time.Duration) float64 { return math.Exp(-float64(age) / float64(window)) }

// now is what a mean or peak counts at a moment: it fades where nothing comes,
// so that a backend that was slow is tried again. 0 where nothing ever came.
func (l *latency) now(v *bits, at int64) float64 {
	was := l.at.Load()
	if was == 0 {
		return 0
	}
	if age := time.Duration(at-was) * time.Microsecond; age > meanWindow {
		return v.Load() * faded(age-meanWindow, peakWindow)
	}
	return v.Load()
}

// headed hears how long the head of an answer took.
func (b *Backend) headed(now time.Time, took time.Duration) {
	b.header.observe(int64(b.pool.micros(now))+1, took)
}
