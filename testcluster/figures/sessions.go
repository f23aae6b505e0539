package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/shards"
)

const (
	pool    = "llm"
	pause   = 3 * time.Millisecond // between two bindings that are made one at a time
	known   = 16                   // sessions that hits are measured with, for each of those
	binders = 64                   // make them

	answerTime = time.Second // for a new binding, where the pool says nothing else
)

// lost counts bindings that were not made: a node goes on without an agreed home, as
// in a cluster that has too much to do or no leader.
type lost struct {
	late    atomic.Int64 // nobody answered in answerTime
	unasked atomic.Int64 // nobody was asked: a question to the shard has just had no answer
}

// sessions measures binds and hits on three nodes.
func sessions(o options) ([]row, error) {
	t, err := newTown(o.dir)
	if err != nil {
		return nil, err
	}
	rows, err := t.measure(o)
	return rows, errors.Join(err, t.stop())
}

func (t *town) measure(o options) (rows []row, err error) {
	if err := t.whole(); err != nil {
		return nil, err
	}
	t.lost = lost{} // what had no leases yet
	lone := t.alone(o.lone)
	slices.Sort(lone)
	rows = append(rows,
		row{what: "new binding, nothing else, p50", unit: "ms", value: ms(at(lone, 50)), most: 5},
		row{what: "new binding, nothing else, p99", unit: "ms", value: ms(at(lone, 99)), most: 25})
	rows = append(rows, t.crowds(o.span)...)
	rows = append(rows,
		row{what: fmt.Sprintf("new bindings without an answer in %v", answerTime), value: float64(t.lost.late.Load())},
		row{what: "and those that were not asked for, after one", value: float64(t.lost.unasked.Load())})
	hits, err := t.hits(known*o.lone, o.span)
	return append(rows, hits...), err
}

// crowds are loads of two sizes; what the better one reaches counts.
func (t *town) crowds(span time.Duration) (rows []row) {
	best := 0
	for _, callers := range []int{256, 2048} {
		cpu := ownCPU()
		rate := t.crowd(callers, span)
		each := float64((ownCPU() - cpu).Microseconds()) / max(1, rate*span.Seconds())
		rows = append(rows,
			row{what: fmt.Sprintf("new bindings of %d callers", callers), unit: "1/s", value: rate},
			row{what: "all three nodes' work for one of them", unit: "us of CPU", value: each})
		if rate > rows[best].value {
			best = len(rows) - 2
		}
	}
	rows[best].least = 10_000
	return rows
}

// bind has a new session bound, over a node. A hit was bound by this turn as well: the
// leader's first answer came late, or could not be kept, and the next found it bound.
func (t *town) bind(i int, name string) (took time.Duration, ok bool) {
	began := time.Now()
	turn, err := t.nodes[i%len(t.nodes)].Router().Turn(context.Background(), pool, []byte(name), 0, func() string { return home(i) })
	if err != nil {
		t.lost.late.Add(1)
		return 0, false
	}
	defer turn.End()
	took = time.Since(began)
	switch lookup := turn.Home().Lookup; {
	case lookup == shards.LookupNew || lookup == shards.LookupHit:
		return took, true
	case took < answerTime:
		t.lost.unasked.Add(1)
	default:
		t.lost.late.Add(1)
	}
	return took, false
}

// alone makes n bindings, one after the other, over each node in turn.
func (t *town) alone(n int) (all []time.Duration) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for i := range n {
		<-tick.C
		if took, ok := t.bind(i, fmt.Sprint("lone ", i)); ok {
			all = append(all, took)
		}
	}
	return all
}

// crowd has callers bind, each one session after the other.
func (t *town) crowd(callers int, span time.Duration) (rate float64) {
	var made atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for c := range callers {
		all.Go(func() {
			for i := 0; time.Since(began) < span; i++ {
				if _, ok := t.bind(c, fmt.Sprintf("%d of %d of %d", i, c, callers)); ok {
					made.Add(1)
				}
			}
		})
	}
	all.Wait()
	return float64(made.Load()) / time.Since(began).Seconds()
}

var errNoHit = errors.New("sessions that this node has bound are not in its cache")

// mayMiss is of how many sessions one may be asked for again.
const mayMiss = 10

// hits measures turns of sessions that are known, from the begin over the second look
// to the end, by one goroutine and by one per processor. They are told in CPU time of
// their own threads: who else has the processors does not count.
func (t *town) hits(sessions int, span time.Duration) ([]row, error) {
	names := t.settle(sessions)
	r := t.nodes[0].Router()
	alone, _, err := hitters(r, names, 1, span)
	if err != nil {
		return nil, err
	}
	many := runtime.GOMAXPROCS(0)
	beside, waited, err := hitters(r, names, many, span)
	return []row{
		{what: "hit of the cache, a turn from begin to end", unit: "us of CPU", value: alone, most: 1},
		{what: fmt.Sprintf("hit of the cache, %d at once", many), unit: "us of CPU", value: beside, most: 1},
		{what: fmt.Sprintf("waits for locks, %d at once", many), unit: "% of the time", value: waited, most: 1},
	}, err
}

// settle has sessions bound over the first node, and returns those that are.
func (t *town) settle(sessions int) (names [][]byte) {
	var mu sync.Mutex // guards names
	var all sync.WaitGroup
	for b := range binders {
		all.Go(func() {
			for i := b; i < sessions; i += binders {
				name := fmt.Sprint("known ", i)
				if _, ok := t.bind(0, name); ok {
					mu.Lock()
					names = append(names, []byte(name))
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return names
}

// hitters has so many take turns side by side, each of sessions of its own at a time.
// It returns what a turn took, and in which part of the time somebody waited for a lock.
func hitters(r *shards.Router, names [][]byte, many int, span time.Duration) (us, waited float64, err error) {
	var done, missed, spent atomic.Int64
	var all sync.WaitGroup
	locks, began := lockWaits(), time.Now()
	for h := range many {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			n, cpu := 0, threadCPU()
			for i := h * len(names) / many; len(names) > 0 && (i%1024 != 0 || time.Since(began) < span); i++ {
				name := names[i%len(names)]
				turn, err := r.Turn(context.Background(), pool, name, 0, func() string { return home(i) })
				hit := err == nil && turn.Look() == nil && turn.Home().Lookup == shards.LookupHit
				if err == nil {
					turn.End()
				}
				if hit {
					n++
				} else if missed.Add(1) > int64(max(1, len(names)/mayMiss)) { // a machine that stands still has no leases when it goes on
					break
				}
			}
			done.Add(int64(n))
			spent.Add(int64(threadCPU() - cpu))
		})
	}
	all.Wait()
	took := time.Since(began).Seconds() * float64(many)
	waited = 100 * (lockWaits() - locks) / took
	if missed.Load() > int64(max(1, len(names)/mayMiss)) || done.Load() == 0 {
		return 0, 0, errNoHit
	}
	if cpu := time.Duration(spent.Load()); cpu > 0 {
		took = cpu.Seconds()
	}
	return took / float64(done.Load()) * 1e6, waited, nil
}

// lockWaits is for how many seconds goroutines of this process have waited for locks.
func lockWaits() float64 {
	s := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64()
}

// middle is the median.
func middle(all []time.Duration) time.Duration {
	slices.Sort(all)
	return at(all, 50)
}
