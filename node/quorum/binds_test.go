package quorum

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkBinds prints how long a new session's binding takes and how many there
// are in a second: three nodes in one process, real sockets, files that are synced.
//
//	go test ./node/quorum -run '^$' -bench Binds -benchtime 1x
func BenchmarkBinds(b *testing.B) {
	w := &town{peers: make(map[string]Peer)}
	all := []*Quorum{w.settle(b, "a", b.TempDir(), 3), w.settle(b, "b", b.TempDir(), 3), w.settle(b, "c", b.TempDir(), 3)}
	for _, q := range all {
		eventually(b, func() string {
			if count, _, without, _ := q.Led(); count == 0 || without > 0 {
				return "not every shard has a leader"
			}
			return ""
		})
	}
	var made, failed atomic.Int64
	bind := func(name string, q *Quorum) time.Duration {
		began := time.Now()
		t, err := q.Router().Turn(context.Background(), "llm", []byte(name), 0, func() string { return "b1" })
		if err != nil || t.Home().Epoch == 0 {
			failed.Add(1)
			return 0
		}
		t.End()
		made.Add(1)
		return time.Since(began)
	}
	for i := range 64 { // leases
		bind(fmt.Sprint("first ", i), all[i%3])
	}
	for b.Loop() {
		var took []time.Duration
		for i := range 300 {
			took = append(took, bind(fmt.Sprint("lone ", i), all[i%3]))
			<-time.After(2 * time.Millisecond)
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		for _, callers := range []int{256, 2048} {
			made.Store(0)
			ctx, stop := context.WithTimeout(context.Background(), 3*time.Second)
			var crowd sync.WaitGroup
			for c := range callers {
				crowd.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						bind(fmt.Sprintf("%d of %d of %d", i, c, callers), all[c%3])
					}
				})
			}
			crowd.Wait()
			stop()
			b.ReportMetric(float64(made.Load())/3, fmt.Sprintf("binds/s-of-%d", callers))
		}
		b.ReportMetric(float64(failed.Load()), "failed")
	}
}
