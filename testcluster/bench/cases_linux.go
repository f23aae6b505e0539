package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"time"

	"github.com/starling-lb/starling/testcluster/bench/load"
)

// idleFor is how long the streams of the idle case have been silent when the
// memory is read: whoever returns memory late has had time for it.
const idleFor = 6 * time.Second

// sseStreams × 20 events a second is the load of the sse case.
const sseStreams = 1000

// benchCase is one kind of load.
type benchCase struct {
	name   string
	run    func(*trial, context.Context) (values, error)
	rows   []row
	direct bool // is measured without a proxy as well
	secure bool // clients come by TLS
}

func caseNames() (names []string) {
	for _, c := range allCases() {
		names = append(names, c.name)
	}
	return names
}

func allCases() []benchCase {
	return []benchCase{
		exchanges("small", load.Exchange{Answer: 200, Conns: 64}, bar{"nginx", 1.00}, bar{"haproxy", 0.90}),
		exchanges("post", load.Exchange{Upload: 8 << 10, Answer: 200, Conns: 64}, bar{"nginx", 0.90}, bar{"haproxy", 0.90}),
		exchanges("64k", load.Exchange{Answer: 64 << 10, Conns: 32}, bar{"nginx", 0.90}, bar{"haproxy", 0.70}),
		volume("1m", load.Exchange{Answer: 1 << 20, Conns: 8}, bar{"better", 0.75}),
		{name: "sse", run: (*trial).sse, direct: true, rows: []row{
			{Case: "sse", Measure: "cpu_us", Title: "CPU per event", Unit: "us", Must: []bar{{"nginx", 1.00}, {"haproxy", 1.00}}},
			{Case: "sse", Measure: "delay_p50_us", Title: "added delay p50", Unit: "us", Added: true, Must: []bar{{"haproxy", 1.00}}},
			{Case: "sse", Measure: "delay_p99_us", Title: "added delay p99", Unit: "us", Added: true},
		}},
		{name: "idle", run: (*trial).idle, rows: []row{
			{Case: "idle", Measure: "bytes", Title: "resident memory per stream", Unit: "B", Must: []bar{{"", 4608}}},
		}},
		exchanges("churn", load.Exchange{Answer: 200, Conns: 64, Fresh: true}, bar{"nginx", 1.00}),
		secure("tls", load.Secure{Answer: 200, Conns: 64}),
		secure("tlsnew", load.Secure{Answer: 200, Conns: 32, Fresh: true}),
		secure("tlsagain", load.Secure{Answer: 200, Conns: 32, Fresh: true}),
		{name: "gone", run: (*trial).gone, rows: []row{
			{Case: "gone", Measure: "head_max_ms", Title: "backend freed, before the head, max", Unit: "ms", Must: []bar{{"", 50}}},
			{Case: "gone", Measure: "stream_max_ms", Title: "backend freed, mid-stream, max", Unit: "ms", Must: []bar{{"", 50}}},
		}},
	}
}

func exchanges(name string, x load.Exchange, must ...bar) benchCase {
	return benchCase{
		name: name, run: func(t *trial, ctx context.Context) (values, error) { return t.exchange(ctx, x) },
		rows: []row{{Case: name, Measure: "cpu_us", Title: "CPU per request", Unit: "us", Must: must}},
	}
}

// secure is a case over TLS 1.3: requests on connections that are kept, or a
// handshake for each, which "again" resumes an earlier session.
func secure(name string, x load.Secure) benchCase {
	c := exchanges(name, load.Exchange{}, bar{"haproxy", 1.05})
	c.secure = true
	c.run = func(t *trial, ctx context.Context) (values, error) {
		x := x
		x.TLS = t.bench.trust.Clone()
		if name == "tlsagain" {
			x.TLS.ClientSessionCache = tls.NewLRUClientSessionCache(4 * x.Conns)
		}
		x.Target, x.Mark = t.at, t.mark
		x.Warm, x.Measure = t.bench.times(500*time.Millisecond, 2*time.Second)
		r, err := x.Run(ctx, t.clock)
		return t.perRequest(r, err)
	}
	return c
}

// volume is an exchange whose cost is counted by the byte.
func volume(name string, x load.Exchange, must ...bar) benchCase {
	c := exchanges(name, x, must...)
	c.rows[0] = row{Case: name, Measure: "cpu_s_per_gib", Title: "CPU per GiB", Unit: "s", Must: must}
	return c
}

// times are how long to warm up and to measure.
func (o options) times(warm, measure time.Duration) (time.Duration, time.Duration) {
	if o.quick {
		return warm / 3, measure / 3
	}
	return warm, measure
}

func (t *trial) mark() {
	m := meter{at: time.Now()}
	if t.proxy != nil {
		var err error
		m.cpu, err = t.proxy.cpu()
		t.err = cmp.Or(t.err, err)
		m.waited = t.proxy.waited()
	}
	t.meters = append(t.meters, m)
}

// spent is the proxy's CPU time between the marks; shares are of that time.
func (t *trial) spent() (cpu time.Duration, shares values) {
	begin, end := t.meters[0], t.meters[1]
	cpu = end.cpu - begin.cpu
	share := func(d time.Duration) float64 { return d.Seconds() / end.at.Sub(begin.at).Seconds() }
	return cpu, values{"cpu_share": share(cpu), waitedShare: share(end.waited - begin.waited)}
}

func (t *trial) exchange(ctx context.Context, x load.Exchange) (values, error) {
	x.Target, x.Mark = t.at, t.mark
	x.Warm, x.Measure = t.bench.times(500*time.Millisecond, 2*time.Second)
	r, err := x.Run(ctx, t.clock)
	return t.perRequest(r, err)
}

func (t *trial) perRequest(r load.ExchangeResult, err error) (values, error) {
	if err != nil || t.err != nil {
		return nil, cmp.Or(err, t.err)
	}
	cpu, v := t.spent()
	v["cpu_us"] = cpu.Seconds() * 1e6 / float64(r.Requests)
	v["cpu_s_per_gib"] = cpu.Seconds() * (1 << 30) / float64(r.Bytes)
	v["requests_per_s"] = float64(r.Requests) / r.Elapsed.Seconds()
	v["reopened"] = float64(r.Reopened)
	return v, nil
}

func (t *trial) sse(ctx context.Context) (values, error) {
	x := load.Streams{Target: t.at, Count: sseStreams, Period: 50 * time.Millisecond, Size: 150, Ramp: 2000, Mark: t.mark}
	x.Warm, x.Measure = t.bench.times(time.Second, 3*time.Second)
	undo, _ := realTime() // an event is to be read when it arrives
	defer undo()
	r, err := x.Run(ctx, t.clock)
	if err != nil || t.err != nil {
		return nil, cmp.Or(err, t.err)
	}
	cpu, v := t.spent()
	v["cpu_us"] = cpu.Seconds() * 1e6 / float64(r.Events)
	v["events_per_s"] = float64(r.Events) / r.Elapsed.Seconds()
	for name, q := range map[string]float64{"delay_p50_us": .5, "delay_p99_us": .99, "delay_p999_us": .999, "delay_max_us": 1} {
		v[name] = float64(r.Delay.Quantile(q).Nanoseconds()) / 1e3
	}
	return v, nil
}

// idle opens streams that have sent one event and are silent since.
func (t *trial) idle(ctx context.Context) (values, error) {
	t.settle(ctx)
	before, err := t.proxy.resident()
	if err != nil {
		return nil, err
	}
	after := int64(0)
	x := load.Streams{
		Target: t.at, Count: t.bench.streams, Period: time.Hour, Size: 150, AtOnce: true, Ramp: 4000,
		Mark: func() { after, err = t.proxy.resident() },
	}
	_, x.Measure = t.bench.times(0, idleFor)
	if _, runErr := x.Run(ctx, t.clock); runErr != nil || err != nil {
		return nil, cmp.Or(runErr, err)
	}
	return values{"bytes": float64(after-before) / float64(x.Count), "before": float64(before), "after": float64(after)}, nil
}

// settle lets a proxy that accepts already finish its start.
func (t *trial) settle(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(500 * time.Millisecond):
	}
}

func (t *trial) gone(ctx context.Context) (values, error) {
	v := values{}
	for _, phase := range []string{"head", "stream"} {
		d, err := load.Leave{Target: t.at, MidStream: phase == "stream", Count: 50}.Run(ctx, t.backend)
		if err != nil {
			return nil, err
		}
		v[phase+"_max_ms"] = d.Max().Seconds() * 1e3
		v[phase+"_p50_ms"] = d.Quantile(.5).Seconds() * 1e3
	}
	return v, nil
}
