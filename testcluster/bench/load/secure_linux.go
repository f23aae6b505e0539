package load

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Secure is an Exchange of GETs over TLS 1.3, by as many goroutines as there
// are connections: what it costs itself is not measured.
type Secure struct {
	Target        netip.AddrPort
	TLS           *tls.Config // with a session cache, fresh connections resume
	Answer        int         // bytes of Pattern in each answer
	Conns         int         // at once
	Fresh         bool        // a new connection for each request
	Warm, Measure time.Duration
	Mark          func() // called at the begin and at the end of the measured time
}

const securePatience = 10 * time.Second // for a connection to come up, or an answer

type secureRun struct {
	Secure
	request  []byte
	want     []byte
	clock    Clock
	requests atomic.Int64
	reopened atomic.Int64
	full     atomic.Int64 // handshakes that resumed nothing
	mu       sync.Mutex
	faults   faults
}

// Run loads the target. An error voids the result.
func (x Secure) Run(ctx context.Context, clock Clock) (ExchangeResult, error) {
	if !x.Target.Addr().IsLoopback() {
		return ExchangeResult{}, errors.New("only loopback addresses may be loaded")
	}
	r := &secureRun{
		Secure: x, request: Exchange{Answer: x.Answer, Fresh: x.Fresh}.request(), want: Pattern(x.Answer), clock: clock, faults: faults{},
	}
	loading, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for range x.Conns {
		all.Go(func() { r.loop(loading) })
	}
	r.rest(loading, x.Warm)
	x.Mark()
	before, full, began := r.requests.Load(), r.full.Load(), clock.now()
	r.rest(loading, x.Measure)
	n, full := r.requests.Load()-before, r.full.Load()-full
	elapsed := time.Duration(clock.now() - began)
	x.Mark()
	stop()
	all.Wait()
	if n == 0 {
		r.faults.add(errStalled)
	}
	if x.TLS.ClientSessionCache != nil && full > n/10 {
		r.faults.add(errNotResumed)
	}
	return ExchangeResult{
		Requests: int(n), Bytes: n * int64(x.Answer), Elapsed: elapsed, Reopened: int(r.reopened.Load()),
	}, errors.Join(r.faults.err(), ctx.Err())
}

var errNotResumed = errors.New("more than a tenth of the sessions were not resumed")

func (r *secureRun) rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// loop opens one connection after the other.
func (r *secureRun) loop(ctx context.Context) {
	in := make([]byte, 32<<10)
	for ctx.Err() == nil {
		if err := r.connection(ctx, in); err != nil && ctx.Err() == nil {
			r.mu.Lock()
			r.faults.add(err)
			r.mu.Unlock()
			return
		}
	}
}

// connection lives until the other side wants it closed, or ctx ends.
func (r *secureRun) connection(ctx context.Context, in []byte) error {
	raw, err := net.DialTimeout("tcp", r.Target.String(), securePatience)
	if err != nil {
		return err
	}
	defer raw.Close() // without TLS's last word, as many clients do
	c := tls.Client(raw, r.TLS)
	if err := c.SetDeadline(time.Now().Add(securePatience)); err != nil {
		return err
	}
	if err := c.HandshakeContext(ctx); err != nil {
		return err
	}
	if !c.ConnectionState().DidResume {
		r.full.Add(1)
	}
	var a answer
	for b := (&exact{want: r.want}); ctx.Err() == nil; a.reset() {
		if err := r.exchange(c, &a, b, in); err != nil {
			return err
		}
		switch r.requests.Add(1); {
		case r.Fresh:
			return nil
		case a.head.close:
			r.reopened.Add(1)
			return nil
		}
	}
	return nil
}

func (r *secureRun) exchange(c *tls.Conn, a *answer, b body, in []byte) error {
	if err := c.SetDeadline(time.Now().Add(securePatience)); err != nil {
		return err
	}
	if _, err := c.Write(r.request); err != nil {
		return err
	}
	for {
		n, err := c.Read(in)
		if n > 0 {
			if done, bad := a.feed(in[:n], b, r.clock.now()); done || bad != nil {
				return bad
			}
		}
		if err != nil {
			return err
		}
	}
}
