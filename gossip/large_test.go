//go:build !race

package gossip

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// The tests of this file and of budget_test.go are too much work for the race detector.

func TestJoinStorm(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		w.start(64)
		took := w.within(5*time.Second, "64 nodes at once", complete(w.nodes, 64))
		w.t.Logf("64 nodes know one another after %v", took)
	})
}

// TestGoals holds what is promised of every size, in virtual time: only the
// protocol counts, and no other program that wants the CPU.
func TestGoals(t *testing.T) {
	for _, n := range []int{3, 8, 32} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inWorlds(t, 3, func(w *world) {
				var desks []*desk
				for i := range n {
					d := newDesk(16)
					desks = append(desks, d)
					w.nodes = append(w.nodes, w.make(i, func(_ *Config, o *Options) { d.use(o) }))
					if err := w.nodes[i].Start(context.Background()); err != nil {
						w.t.Fatal(err)
					}
				}
				join := w.within(time.Second, "all know all", complete(w.nodes, n))
				<-time.After(2 * time.Second)
				id, slowest := desks[0].id(7), time.Duration(0)
				for i := range 10 {
					<-time.After(time.Duration(i) * 37 * time.Millisecond) // at any moment of a turn
					desks[i%n].set(id, func(r *backend.Report) { r.InFlight = i + 1 })
					took := w.within(300*time.Millisecond, "a change is known", func() string {
						want := 0
						for _, d := range desks {
							d.mu.Lock()
							want += d.own[id].InFlight
							d.mu.Unlock()
						}
						for j, d := range desks {
							d.mu.Lock()
							got := d.heard[id].InFlight + d.own[id].InFlight
							d.mu.Unlock()
							if got != want {
								return fmt.Sprintf("node %d counts %d, want %d", j, got, want)
							}
						}
						return ""
					})
					slowest = max(slowest, took)
				}
				crash(w.nodes[n-1])
				gone := w.within(3500*time.Millisecond, "a crash is seen", complete(w.nodes[:n-1], n-1))
				w.t.Logf("%d nodes: joined in %v, slowest change %v, crash seen after %v", n, join, slowest, gone)
			})
		})
	}
}
