// Package load is the clients of a demo: an open loop of streamed chat
// completions, sent to starling as users would and checked token by token.
//
// Requests arrive by a Poisson process whether or not earlier ones are answered,
// and times count from when a request was due, so that a slow system cannot
// slow down those who measure it. Sizes are lognormal, as those of real chats
// roughly are. Every request brings a seed that settles each token of the
// answer: a wrong, missing or surplus token, and an end that only looks clean,
// are failures like any other.
//
// The package must not know starling, only HTTP and what the demo backend
// answers.
package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Options say what traffic there is. A field left zero has the default that
// stands beside it.
type Options struct {
	URL     string   // must be set: base URL, without a slash at its end
	More    []string // further ones: requests go to one after the other
	Rate    float64  // 8; requests per second
	MaxOpen int      // 200; streams at once; what comes above is counted as skipped
	Prompt  int      // 500; tokens, the median
	Output  int      // 150; tokens, the median
	Seed    uint64   // 0; the same seed makes the same requests

	// Sessions is how many there are; 0: none. Every second request, by chance, is a turn of
	// one of them, in the header X-Session-ID.
	Sessions int
}

// ErrOptions is what New wraps when an option makes no sense.
var ErrOptions = errors.New("bad options of the load")

const (
	spread      = 0.6             // of the lognormal sizes: two of three are within a factor of e^0.6
	maxTokens   = 8000            // of a prompt or an answer
	streamLimit = 5 * time.Minute // no stream takes longer
	maxSessions = 100_000
)

// Load is one open loop of clients.
type Load struct {
	opts  Options
	urls  []string
	made  int // requests; only Run uses it
	tally *tally
}

// New checks the options.
func New(o Options) (*Load, error) {
	orDefault(&o.Rate, 8)
	orDefault(&o.MaxOpen, 200)
	orDefault(&o.Prompt, 500)
	orDefault(&o.Output, 150)
	switch {
	case o.URL == "":
		return nil, fmt.Errorf("%w: URL is missing; write the base URL of a starling", ErrOptions)
	case !(o.Rate > 0 && o.Rate <= 10_000):
		return nil, fmt.Errorf("%w: Rate is %v, want a number above 0 and up to 10000", ErrOptions, o.Rate)
	case o.Sessions < 0 || o.Sessions > maxSessions:
		return nil, fmt.Errorf("%w: Sessions is %d, want 0 to %d", ErrOptions, o.Sessions, maxSessions)
	case o.MaxOpen < 1, o.Prompt < 1, o.Output < 1:
		return nil, fmt.Errorf("%w: MaxOpen, Prompt and Output are %d, %d and %d, want at least 1", ErrOptions, o.MaxOpen, o.Prompt, o.Output)
	}
	return &Load{opts: o, urls: append([]string{o.URL}, o.More...), tally: newTally(time.Now())}, nil
}

func orDefault[T comparable](v *T, or T) {
	var zero T
	if *v == zero {
		*v = or
	}
}

// Run sends requests until ctx ends, then cuts the streams that run, and
// returns when none of its connections and goroutines is left.
func (l *Load) Run(ctx context.Context) {
	transport := &http.Transport{MaxIdleConnsPerHost: l.opts.MaxOpen, DisableCompression: true}
	client := &http.Client{Transport: transport}
	var streams sync.WaitGroup
	defer transport.CloseIdleConnections()
	defer streams.Wait()
	dice := rand.New(rand.NewPCG(l.opts.Seed, 1))
	due := time.Now()
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		s := l.next(dice, due)
		if l.tally.begin(l.opts.MaxOpen) {
			streams.Go(func() { s.run(ctx, client) })
		}
		due = due.Add(time.Duration(dice.ExpFloat64() / l.opts.Rate * float64(time.Second)))
		wait.Reset(time.Until(due))
	}
}

// next is the request that is due then.
func (l *Load) next(dice *rand.Rand, due time.Time) *stream {
	l.made++
	session := ""
	if l.opts.Sessions > 0 && dice.IntN(2) == 0 {
		session = fmt.Sprint("demo-", 1+dice.IntN(l.opts.Sessions))
	}
	return &stream{
		url: l.urls[l.made%len(l.urls)], tally: l.tally, due: due, session: session,
		prompt: size(dice, l.opts.Prompt),
		said:   transcript{seed: dice.Uint64() >> 1, want: size(dice, l.opts.Output)}, // JSON's numbers have a sign here
	}
}

func size(dice *rand.Rand, median int) int {
	n := float64(median) * math.Exp(spread*dice.NormFloat64())
	return int(min(max(n, 1), maxTokens))
}

// Hurt has whoever runs the load break the streams of a backend, so that their end
// is counted as broken and not as a failure: of all that were due before how returned,
// also of those that came while it was at it.
func (l *Load) Hurt(backend string, how func() error) error {
	l.tally.hurt(backend, time.Now().Add(streamLimit)) // for as long as it takes
	defer func() { l.tally.hurt(backend, time.Now()) }()
	return how()
}

// Snapshot is how it goes at this moment.
func (l *Load) Snapshot() Snapshot { return l.tally.snapshot(time.Now()) }
