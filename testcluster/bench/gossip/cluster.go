package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/gossip"
	"github.com/starling-lb/starling/proxy/backend"
)

// The load that the budget speaks of.
const (
	backends   = 64
	startRate  = 180.0 // streams per second, in all
	meanStream = 20 * time.Second
	firstByte  = 500 * time.Millisecond
	patience   = time.Minute
	settle     = 5 * time.Second // until the first streams are known, and the pace is that of the load
	probes     = 100             // changes whose spread is timed
)

func exp(x float64) float64 { return math.Exp(x) }

// result is what one cluster showed.
type result struct {
	join, crash            time.Duration
	spread                 []time.Duration
	payload, wire, packets float64 // per second into a node
}

// member is one node and what it carries.
type member struct {
	*gossip.Cluster
	registry *prometheus.Registry

	mu    sync.Mutex
	own   []backend.Report
	heard map[string]backend.Elsewhere
}

func measure(ctx context.Context, n int, load time.Duration) (r result, err error) {
	start := time.Now()
	all, err := cluster(ctx, n)
	defer func() { err = errors.Join(err, stop(all)) }()
	if err != nil {
		return r, err
	}
	r.join = time.Since(start)
	// As much at each node as there is at 64 nodes; then all of the budget's load.
	if err := r.carry(ctx, all, startRate*float64(n)/64, r.spreads); err != nil {
		return r, err
	}
	if err := r.carry(ctx, all, startRate, func(ctx context.Context, all []*member) error { return r.bytes(ctx, all, load) }); err != nil {
		return r, err
	}
	last := all[n-1]
	all = all[:n-1]
	dead := time.Now()
	if err := crash(last); err != nil {
		return r, err
	}
	err = await(ctx, "crash", func() bool { return sizes(all, n-1) })
	r.crash = time.Since(dead)
	return r, err
}

// cluster starts nodes and waits until all know all. Those that it returns run,
// whatever went wrong.
func cluster(ctx context.Context, n int) (all []*member, err error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	for i := range n {
		m, err := launch(ctx, i, all, base64.StdEncoding.EncodeToString(key))
		if err != nil {
			return all, err
		}
		all = append(all, m)
	}
	return all, await(ctx, "all know all", func() bool { return sizes(all, n) })
}

func launch(ctx context.Context, i int, before []*member, key string) (*member, error) {
	m := &member{registry: prometheus.NewRegistry()}
	for b := range backends {
		m.own = append(m.own, backend.Report{ID: fmt.Sprintf("backend-%d", b)})
	}
	cfg := gossip.Config{Bind: "127.0.0.1:0", Keys: []string{key}}
	if len(before) > 0 {
		cfg.Seeds = []string{before[0].Addr().String()}
	}
	id := fmt.Sprintf("node-%02d-with-an-id-as-long-as-a-uuid", i)
	c, err := gossip.New(cfg, gossip.Options{
		ID: id, Self: gossip.Meta{Name: id}, Metrics: m.registry,
		Reports: func() []backend.Report {
			m.mu.Lock()
			defer m.mu.Unlock()
			return slices.Clone(m.own)
		},
		Hear: func(n gossip.News) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.heard = maps.Clone(n.Elsewhere)
		},
	})
	if err != nil {
		return nil, err
	}
	m.Cluster = c
	return m, c.Start(ctx)
}

func (m *member) change(b int, do func(*backend.Report)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do(&m.own[b])
}

// carry drives a load while something is measured.
func (r *result) carry(ctx context.Context, all []*member, rate float64, measure func(context.Context, []*member) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var streams sync.WaitGroup
	defer streams.Wait()
	defer cancel()
	begin := func() {
		m, b := all[mathrand.IntN(len(all))], mathrand.IntN(backends-1) // the last is for timing
		streams.Go(func() { m.stream(ctx, b) })
	}
	for range int(rate * meanStream.Seconds()) {
		begin()
	}
	streams.Go(func() {
		for {
			select {
			case <-time.After(time.Duration(mathrand.ExpFloat64() / rate * float64(time.Second))):
				begin()
			case <-ctx.Done():
				return
			}
		}
	})
	if err := pause(ctx, settle); err != nil {
		return err
	}
	return measure(ctx, all)
}

// spreads times how changes spread.
func (r *result) spreads(ctx context.Context, all []*member) error {
	for i := range probes {
		if err := r.time(ctx, all, i+1); err != nil {
			return err
		}
	}
	return nil
}

// bytes counts what comes in.
func (r *result) bytes(ctx context.Context, all []*member, load time.Duration) error {
	start, before, packets := time.Now(), total(all, "bytes"), total(all, "packets")
	if err := pause(ctx, load); err != nil {
		return err
	}
	per := time.Since(start).Seconds() * float64(len(all))
	r.payload = (total(all, "bytes") - before) / per
	r.packets = (total(all, "packets") - packets) / per
	r.wire = r.payload + 28*r.packets
	return nil
}

// stream is one stream, as far as counts go.
func (m *member) stream(ctx context.Context, b int) {
	m.change(b, func(r *backend.Report) { r.InFlight++ })
	_ = pause(ctx, firstByte) // the end counts it as running first
	m.change(b, func(r *backend.Report) { r.Running++ })
	_ = pause(ctx, time.Duration(mathrand.ExpFloat64()*float64(meanStream)))
	m.change(b, func(r *backend.Report) { r.InFlight--; r.Running-- })
}

// time sets a count at one node and waits until all others have it.
func (r *result) time(ctx context.Context, all []*member, n int) error {
	sayer := mathrand.IntN(len(all))
	if err := pause(ctx, mathrand.N(150*time.Millisecond)); err != nil { // at any moment of its turns
		return err
	}
	sum := 0
	for _, m := range all {
		m.mu.Lock()
		sum += m.own[backends-1].InFlight
		m.mu.Unlock()
	}
	all[sayer].change(backends-1, func(r *backend.Report) { sum += n - r.InFlight; r.InFlight = n })
	start := time.Now()
	left := map[int]bool{}
	for i := range all {
		left[i] = i != sayer
	}
	return await(ctx, "a change", func() bool {
		done := true
		for i, m := range all {
			if !left[i] {
				continue
			}
			m.mu.Lock()
			known := m.heard[m.own[backends-1].ID].InFlight+m.own[backends-1].InFlight == sum
			m.mu.Unlock()
			if known {
				left[i] = false
				r.spread = append(r.spread, time.Since(start))
			}
			done = done && known
		}
		return done
	})
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func await(ctx context.Context, what string, ok func() bool) error {
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %v", what, patience)
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func sizes(all []*member, n int) bool {
	for _, m := range all {
		alive := 0
		for _, o := range m.Members() {
			if o.State != backend.MemberDead && o.State != backend.MemberLeft {
				alive++
			}
		}
		if alive != n {
			return false
		}
	}
	return true
}

// total is what came in at all nodes, of bytes or packets.
func total(all []*member, what string) (sum float64) {
	for _, m := range all {
		families, err := m.registry.Gather()
		if err != nil {
			panic("BUG: " + err.Error())
		}
		for _, f := range families {
			if f.GetName() != "starling_gossip_"+what+"_total" {
				continue
			}
			for _, s := range f.GetMetric() {
				if s.GetLabel()[0].GetValue() == "in" {
					sum += s.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// crash ends a node without a word.
func crash(m *member) error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return m.Stop(now)
}

func stop(all []*member) error {
	var errs []error
	for _, m := range all {
		errs = append(errs, crash(m))
	}
	return errors.Join(errs...)
}
