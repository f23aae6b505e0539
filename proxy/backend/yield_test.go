package backend

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Two nodes have a backend's places together, and more streams come at either
// than there are places. Who had them all first does not keep them: both get
// about the same, and hardly a place stays empty.
func TestNodesShareACap(t *testing.T) {
	const long = 2 * time.Minute
	for _, c := range []struct {
		cap    int
		source CapSource
		took   time.Duration
	}{{1, CapConfig, time.Second}, {1, CapConfig, 5 * time.Second}, {5, CapConfig, time.Second}, {16, CapConfig, 2 * time.Second}, {16, CapEngine, 2 * time.Second}} {
		t.Run(fmt.Sprintf("%d by %s for %v", c.cap, c.source, c.took), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), long)
				defer cancel()
				var nodes [2]*Pool
				var served [2]atomic.Int64
				var all sync.WaitGroup
				for i := range nodes {
					p := capped(t, 1, c.cap, 64)
					p.waitAtMost(0)
					b := p.Backends()[0]
					b.terms.Store(&Terms{Weight: 1, Cap: c.cap, CapSource: c.source})
					b.slots.told = time.Now().Add(long)
					nodes[i] = p
				}
				all.Go(func() { speak(ctx, nodes[0], nodes[1]) })
				for i, p := range nodes {
					for range c.cap + 4 {
						all.Go(func() { served[i].Add(keepBusy(ctx, p, c.took)) })
					}
					<-time.After(time.Second)
				}
				all.Wait()
				a, b := served[0].Load(), served[1].Load()
				if most := int64(long/c.took) * int64(c.cap); a+b < most*6/10 || min(a, b) < (a+b)*4/10 {
					t.Errorf("served %d and %d streams, where there is room for %d", a, b, most)
				}
			})
		})
	}
}

// keepBusy runs one stream after the other, and tells how many.
func keepBusy(ctx context.Context, p *Pool, took time.Duration) (n int64) {
	for ctx.Err() == nil {
		l, err := p.Pick(time.Now(), Ask{})
		if err == ErrFull {
			l, err = p.Wait(ctx, Ask{})
		}
		if err == nil {
			<-time.After(took)
			l.Release(time.Now())
			n++
		}
	}
	return n
}

// speak has two nodes hear of each other every 200 ms, as they were then.
func speak(ctx context.Context, a, b *Pool) {
	said := func(p *Pool) map[string]Elsewhere {
		heard := map[string]Elsewhere{}
		for _, r := range p.Reports(time.Now()) {
			e := Elsewhere{Nodes: 1, InFlight: r.InFlight}
			if r.Wanting {
				e.Wanting = 1
			}
			heard[r.ID] = e
		}
		return heard
	}
	for ctx.Err() == nil {
		ofA, ofB := said(a), said(b)
		for range 2 {
			<-time.After(100 * time.Millisecond)
			a.Sample(time.Now())
			b.Sample(time.Now())
		}
		a.Hear(ofB)
		b.Hear(ofA)
	}
}

// Where nobody else wants a place, a node may have them all, and hands its own
// on.
func TestNoPlaceIsLeftToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := capped(t, 1, 4, 8)
		p.waitAtMost(0)
		p.Hear(map[string]Elsewhere{p.Backends()[0].ID: {Nodes: 3}})
		leases := fill(t, p)
		expect(t, "places", len(leases), 4)
		w := wait(p, "w", Ask{})
		leases[0].Release(time.Now())
		expect(t, "served", len(served(w)), 1)
		for _, l := range append(leases[1:], &w.lease) {
			l.Release(time.Now())
		}
	})
}
