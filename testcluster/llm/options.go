package llm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
)

// ListenFunc opens a listener, as net.ListenConfig.Listen does.
type ListenFunc func(ctx context.Context, network, address string) (net.Listener, error)

// Options say what the demo backend is like. A field left zero has the default
// that stands beside it.
type Options struct {
	ID      string // "demo"; stands in the X-Demo-Backend header, in answers' ids and in turns
	Model   string // "demo-model"; what /v1/models lists and what answers name if the request names none
	Address string // "127.0.0.1:0"; the OpenAI API, health and metrics
	Control string // "127.0.0.1:0"; the control API, on a port of its own so that no fault reaches it

	Prefill   float64 // 8000; prompt tokens per second of one stream alone
	Decode    float64 // 50; answer tokens per second of one stream alone
	Speed     float64 // 1; multiplies both: 10 makes a test ten times shorter
	Knee      int     // 32; each of c active streams runs at 1/(1+(c-1)/Knee)
	MaxActive int     // 64; streams in the batch
	MaxQueue  int     // 64; streams waiting behind it; -1: none

	WarmSessions int // 1024; sessions whose context is kept, least recently used go first
	KeepTurns    int // 10000; turns kept for judges, the oldest go first

	Trace  []Row        // token counts for requests that give none by header, row after row, round and round
	Seed   uint64       // 0; what answers say depends on it and on the prompt, unless the request brings its own seed
	Listen ListenFunc   // TCP; opens both listeners, and the first one again after a refusal
	Logger *slog.Logger // discards
}

// ErrOptions is what New wraps when an option makes no sense.
var ErrOptions = errors.New("bad options of the demo backend")

func orDefault[T comparable](v *T, or T) {
	var zero T
	if *v == zero {
		*v = or
	}
}

func (o *Options) fill() {
	orDefault(&o.ID, "demo")
	orDefault(&o.Model, "demo-model")
	orDefault(&o.Address, "127.0.0.1:0")
	orDefault(&o.Control, "127.0.0.1:0")
	orDefault(&o.Prefill, 8000)
	orDefault(&o.Decode, 50)
	orDefault(&o.Speed, 1)
	orDefault(&o.Knee, 32)
	orDefault(&o.MaxActive, 64)
	orDefault(&o.MaxQueue, 64)
	orDefault(&o.WarmSessions, 1024)
	orDefault(&o.KeepTurns, 10_000)
	if o.MaxQueue == -1 {
		o.MaxQueue = 0
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// check names every option that is wrong, not only the first.
func (o *Options) check() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value float64
	}{{"Prefill", o.Prefill}, {"Decode", o.Decode}, {"Speed", o.Speed}} {
		if !(f.value > 0) || math.IsInf(f.value, 0) {
			errs = append(errs, fmt.Errorf("%w: %s is %v, want a number above 0", ErrOptions, f.name, f.value))
		}
	}
	for _, n := range []struct {
		name  string
		value int
		least int
	}{{"Knee", o.Knee, 1}, {"MaxActive", o.MaxActive, 1}, {"MaxQueue", o.MaxQueue, 0}, {"WarmSessions", o.WarmSessions, 1}, {"KeepTurns", o.KeepTurns, 1}} {
		if n.value < n.least {
			errs = append(errs, fmt.Errorf("%w: %s is %d, want at least %d", ErrOptions, n.name, n.value, n.least))
		}
	}
	for i, row := range o.Trace {
		if row.Context < 1 || row.Generated < 1 || row.Context+row.Generated > maxContext {
			errs = append(errs, fmt.Errorf("%w: Trace row %d has %d and %d tokens, want at least 1 each and at most %d together", ErrOptions, i, row.Context, row.Generated, maxContext))
			break
		}
	}
	return errors.Join(errs...)
}
