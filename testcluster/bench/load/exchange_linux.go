package load

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

var errStalled = errors.New("no answer was completed within the measured time")

// Exchange is a closed loop: each connection sends its next request when the
// answer to the last one is complete. That shows what a request costs, not
// how long one takes: a slow answer holds back the requests behind it.
type Exchange struct {
	Target        netip.AddrPort
	Upload        int  // bytes of Pattern sent with each request; 0: a GET
	Answer        int  // bytes of Pattern in each answer
	Conns         int  // at once
	Fresh         bool // a new connection for each request
	Warm, Measure time.Duration
	Mark          func() // called at the begin and at the end of the measured time
}

// ExchangeResult is about the measured time only.
type ExchangeResult struct {
	Requests int
	Bytes    int64 // of the answers' bodies
	Elapsed  time.Duration
	Reopened int // connections that the other side closed after an answer, as it may
}

// Run loads the target. An error voids the result.
func (x Exchange) Run(ctx context.Context, clock Clock) (ExchangeResult, error) {
	r := exchangeRun{Exchange: x, request: x.request(), want: Pattern(x.Answer)}
	s, err := newSwarm(clock, x.Target, func(c *client) error { return r.ended(c) })
	if err != nil {
		return r.result, err
	}
	r.swarm = s
	defer s.close()
	for range x.Conns {
		if err := r.dial(); err != nil {
			return r.result, err
		}
	}
	r.stepFor(ctx, x.Warm)
	x.Mark()
	r.result = ExchangeResult{}
	began := clock.now()
	r.stepFor(ctx, x.Measure)
	r.result.Elapsed = time.Duration(clock.now() - began)
	x.Mark()
	if r.result.Requests == 0 {
		s.faults.add(errStalled)
	}
	return r.result, errors.Join(s.faults.err(), ctx.Err())
}

type exchangeRun struct {
	Exchange
	request []byte
	want    []byte
	swarm   *swarm
	result  ExchangeResult
}

func (r *exchangeRun) dial() error { return r.swarm.dial(r.request, &exact{want: r.want}) }

// stepFor ends early if the run is void already.
func (r *exchangeRun) stepFor(ctx context.Context, d time.Duration) {
	s := r.swarm
	for end := s.clock.now() + int64(d); s.clock.now() < end && len(s.faults) == 0 && ctx.Err() == nil; {
		s.step(min(end, s.clock.now()+int64(50*time.Millisecond)))
	}
}

func (r *exchangeRun) ended(c *client) error {
	r.result.Requests++
	r.result.Bytes += int64(r.Answer)
	if !r.Fresh && !c.answer.head.close {
		return r.swarm.again(c)
	}
	if !r.Fresh {
		r.result.Reopened++
	}
	r.swarm.drop(c)
	return r.dial()
}

func (x Exchange) request() []byte {
	method, more := "GET", ""
	if x.Upload > 0 {
		method = "POST"
		more = fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", x.Upload)
	}
	if x.Fresh {
		more += "Connection: close\r\n"
	}
	return append(requestHead(method, fmt.Sprintf("/bytes/%d", x.Answer), more), Pattern(x.Upload)...)
}

// requestHead looks like a small client's; more is further fields with CRLF.
func requestHead(method, target, more string) []byte {
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: starling-bench/1\r\nAccept: */*\r\n%s\r\n", method, target, more)
}
