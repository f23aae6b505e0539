package load

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Streams holds event streams open. Events come by the backend's schedule,
// whether or not earlier ones have arrived, so a stall shows in the delay of
// every event that fell into it.
type Streams struct {
	Target        netip.AddrPort
	Count         int
	Period        time.Duration // between two events of a stream
	Size          int           // bytes of an event
	AtOnce        bool          // the first event comes at once; else after a share of the period
	Ramp          int           // streams opened per second
	Warm, Measure time.Duration
	Mark          func() // called at the begin and at the end of the measured time
}

// StreamsResult is about the measured time only.
type StreamsResult struct {
	Events  int64
	Delay   Histogram // of each event, from when it was due
	Elapsed time.Duration
}

// Run opens the streams, all of which must be answered before the measured
// time begins. An error voids the result.
func (x Streams) Run(ctx context.Context, clock Clock) (StreamsResult, error) {
	s, err := newSwarm(clock, x.Target, func(*client) error { return errEnded })
	if err != nil {
		return StreamsResult{}, err
	}
	defer s.close()
	r := &streamsRun{Streams: x, swarm: s, log: &eventLog{form: newEvent(x.Size)}}
	if err := r.open(ctx); err != nil {
		return StreamsResult{}, errors.Join(err, s.faults.err())
	}
	r.stepFor(ctx, x.Warm)
	x.Mark()
	r.log.recording = true
	began := clock.now()
	r.stepFor(ctx, x.Measure)
	elapsed := time.Duration(clock.now() - began)
	x.Mark()
	r.addOverdue(clock.now())
	return StreamsResult{Events: r.log.count, Delay: r.log.delay, Elapsed: elapsed}, errors.Join(s.faults.err(), ctx.Err())
}

type streamsRun struct {
	Streams
	swarm   *swarm
	log     *eventLog
	streams []*events
}

// open spreads the connects over time and then waits for the answers.
func (r *streamsRun) open(ctx context.Context) error {
	s := r.swarm
	began := s.clock.now()
	for len(r.streams) < r.Count && r.sound(ctx) {
		late := time.Duration(s.clock.now() - began)
		for due := 1 + int(late.Seconds()*float64(r.Ramp)); len(r.streams) < min(due, r.Count); {
			if err := r.dial(); err != nil {
				return err
			}
		}
		s.step(s.clock.now() + int64(time.Millisecond))
	}
	for end := s.clock.now() + int64(10*time.Second); r.answered() < r.Count && r.sound(ctx); {
		if s.clock.now() > end {
			return fmt.Errorf("only %d of %d streams were answered within 10s", r.answered(), r.Count)
		}
		s.step(s.clock.now() + int64(20*time.Millisecond))
	}
	return ctx.Err()
}

func (r *streamsRun) dial() error {
	e := &events{stream: uint32(len(r.streams)), log: r.log}
	r.streams = append(r.streams, e)
	target := streamQuery(e.stream, r.Period, r.Size, r.AtOnce, false)
	return r.swarm.dial(requestHead("GET", target, ""), e)
}

// answered counts the streams that have got an event, or a head if none is due yet.
func (r *streamsRun) answered() (n int) {
	for _, c := range r.swarm.clients {
		if c != nil && c.answer.inBody && (!r.AtOnce || c.body.(*events).next > 0) {
			n++
		}
	}
	return n
}

func (r *streamsRun) sound(ctx context.Context) bool {
	return len(r.swarm.faults) == 0 && ctx.Err() == nil
}

func (r *streamsRun) stepFor(ctx context.Context, d time.Duration) {
	s := r.swarm
	for end := s.clock.now() + int64(d); s.clock.now() < end && r.sound(ctx); {
		s.step(min(end, s.clock.now()+int64(50*time.Millisecond)))
	}
}

// addOverdue counts for each stream the event that was due and has not come,
// with the delay it has so far: without it a stream that stalled for good
// would only lack events, and the quantiles would look fine.
func (r *streamsRun) addOverdue(now int64) {
	for _, e := range r.streams {
		if due := e.lastDue + int64(r.Period); e.next > 0 && due < now {
			r.log.delay.Add(time.Duration(now - due))
		}
	}
}
