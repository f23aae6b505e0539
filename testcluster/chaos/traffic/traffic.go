// Package traffic is the clients of a chaos run. Half of what they ask are turns
// of regulars, sessions that last as long as the run; the rest are guests, who
// come as chance has it, whether or not the cluster keeps up, take a few turns
// with time to think in between, and go. Some of them leave in the middle of an answer.
//
// They stream events, hold WebSockets, ask plainly and upload. Every byte that
// comes back is compared with what it must be, and each try is a Turn on record.
// Who cannot get in tries the next entry, as clients do.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
	"github.com/starling-lb/starling/testcluster/llm"
)

// Options say what traffic there is. A field left zero has the default that
// stands beside it.
type Options struct {
	Entries  func() []history.Entry // must be set: where clients can come in now, also those that are down
	Admins   func() []history.Entry // admin APIs, to be asked where sessions live; nil: nobody is
	Pool     string                 // "llm"; that the admin APIs know the sessions by
	Seed     uint64                 // 0
	Rate     float64                // 20; turns a second
	Regulars int                    // 40; sessions that last
	Tokens   int                    // 40; of an answer, the mean
	Retries  int                    // 3; tries after the first, of who cannot get in; -1: none
	MaxOpen  int                    // 1000; turns at once, those above are skipped
	Patience time.Duration          // 30s; for one try
	Trace    []llm.Row              // how guests come, stretched or pressed to the rate, and sizes of all, round and round; nil: by chance
}

// ErrOptions is what New wraps for options that make no sense.
var ErrOptions = errors.New("bad options of the traffic")

func orDefault[T comparable](v *T, or T) {
	var zero T
	if *v == zero {
		*v = or
	}
}

const (
	leaving   = 0.04 // share of the turns whose client leaves midway
	sideways  = 0.2  // share of a regular's turns that have another begin beside them, within a second
	guestEnds = 0.3  // chance that a guest's turn was its last
)

// Traffic is all clients.
type Traffic struct {
	opts   Options
	client *http.Client
	tasks  sync.WaitGroup
	ending chan struct{} // closed: no turn begins any more
	end    sync.Once
	ctx    context.Context // ends when turns are cut
	cut    context.CancelFunc

	factor  atomic.Uint64 // of the rate, in thousandths
	retries atomic.Int64
	next    atomic.Uint64 // numbers turns
	rows    atomic.Uint64 // of the trace that were used
	books
}

// books are what is kept.
type books struct {
	mu    sync.Mutex
	turns []history.Turn
	reads []history.Read
	now   Progress
}

// Progress is how it goes.
type Progress struct {
	Open, Whole, Broken, Refused, Unreachable, Left, Wrong, Skipped int
}

// New checks the options.
func New(o Options) (*Traffic, error) {
	orDefault(&o.Pool, "llm")
	orDefault(&o.Rate, 20)
	orDefault(&o.Regulars, 40)
	orDefault(&o.Tokens, 40)
	orDefault(&o.Retries, 3)
	orDefault(&o.MaxOpen, 1000)
	orDefault(&o.Patience, 30*time.Second)
	switch {
	case o.Entries == nil:
		return nil, fmt.Errorf("%w: Entries is missing; say where clients can come in", ErrOptions)
	case !(o.Rate > 0 && o.Rate <= 10_000), o.Regulars < 1, o.Regulars > 10_000, o.Tokens < 1, o.MaxOpen < 1:
		return nil, fmt.Errorf("%w: Rate %v, Regulars %d, Tokens %d, MaxOpen %d; want more than 0, and at most 10000 of the first two", ErrOptions, o.Rate, o.Regulars, o.Tokens, o.MaxOpen)
	}
	t := &Traffic{opts: o, ending: make(chan struct{}), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}}
	t.ctx, t.cut = context.WithCancel(context.Background())
	t.factor.Store(1000)
	t.retries.Store(int64(max(0, o.Retries)))
	return t, nil
}

// Start begins; ctx bounds nothing but the start.
func (t *Traffic) Start(context.Context) error {
	for i := range t.opts.Regulars {
		t.tasks.Go(func() { t.regular(i) })
	}
	t.tasks.Go(t.guests)
	if t.opts.Admins != nil {
		t.tasks.Go(t.reader)
	}
	return nil
}

// Stop begins no turn any more and returns when those that run have ended, or
// were cut because ctx did.
func (t *Traffic) Stop(ctx context.Context) error {
	t.end.Do(func() { close(t.ending) })
	defer context.AfterFunc(ctx, t.cut)()
	t.tasks.Wait()
	t.cut()
	t.client.CloseIdleConnections()
	return nil
}

// Scale makes it so many times as much as the options say.
func (t *Traffic) Scale(factor float64) { t.factor.Store(uint64(max(factor, 0.001) * 1000)) }

// Retries sets how often clients that cannot get in try again.
func (t *Traffic) Retries(n int) { t.retries.Store(int64(n)) }

// Turns are all tries that have ended, in the order of their ends.
func (t *Traffic) Turns() []history.Turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]history.Turn(nil), t.turns...)
}

// Reads are the answers of the admin APIs.
func (t *Traffic) Reads() []history.Read {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]history.Read(nil), t.reads...)
}

// Progress is how it goes now.
func (t *Traffic) Progress() Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

// rate is of the guests, and as much again of the regulars, in turns a second.
func (t *Traffic) rate() float64 { return t.opts.Rate / 2 * float64(t.factor.Load()) / 1000 }

// wait ends early, and says so, when no turn is to begin any more.
func (t *Traffic) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.ending:
		return false
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// regular takes turns as long as the run lasts. Its next turn is due by its own
// clock, and not by when the last one ended, if that ended in time.
func (t *Traffic) regular(i int) {
	dice := rand.New(rand.NewPCG(t.opts.Seed, uint64(i)+1))
	think := func() time.Duration { return seconds(dice.ExpFloat64() * float64(t.opts.Regulars) / t.rate()) }
	session, due := fmt.Sprintf("regular-%d-%d", t.opts.Seed, i), time.Now().Add(think())
	var beside sync.WaitGroup
	defer beside.Wait()
	for n := 0; t.wait(time.Until(due)); {
		later := seconds(dice.Float64())
		a, b := t.plan(dice, session, n, due), t.plan(dice, session, n+1, due.Add(later))
		if n++; dice.Float64() < sideways {
			n++
			beside.Go(func() {
				if t.wait(time.Until(b.due)) {
					t.take(b)
				}
			})
		}
		t.take(a)
		due = due.Add(think())
		if now := time.Now(); due.Before(now) {
			due = now
		}
	}
}

// guests come by an open loop.
func (t *Traffic) guests() {
	dice := rand.New(rand.NewPCG(t.opts.Seed, 0))
	due := time.Now()
	for n := 0; t.wait(time.Until(due)); n++ {
		own, when := rand.New(rand.NewPCG(dice.Uint64(), uint64(n))), due
		t.tasks.Go(func() { t.guest(own, n, when) })
		due = due.Add(t.gap(dice, n)) // a guest takes 1/guestEnds turns
	}
}

// gap is between a guest and the next.
func (t *Traffic) gap(dice *rand.Rand, n int) time.Duration {
	mean, rows := 1/(t.rate()*guestEnds), t.opts.Trace
	last := len(rows) - 1
	if last < 1 || rows[last].At == 0 {
		return seconds(dice.ExpFloat64() * mean)
	}
	row := n % last
	return seconds(mean * float64(rows[row+1].At-rows[row].At) / (float64(rows[last].At) / float64(last)))
}

func (t *Traffic) guest(dice *rand.Rand, i int, due time.Time) {
	session := fmt.Sprintf("guest-%d-%d", t.opts.Seed, i)
	if i%4 == 0 {
		session = "" // somebody without one
	}
	for n := 0; ; n++ {
		t.take(t.plan(dice, session, n, due))
		if dice.Float64() < guestEnds {
			return
		}
		pause := seconds(0.2 + dice.ExpFloat64())
		due = time.Now().Add(pause)
		if !t.wait(pause) {
			return
		}
	}
}
