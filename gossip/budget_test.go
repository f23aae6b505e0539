//go:build !race

package gossip

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// TestBudget: 64 nodes, 64 backends, 180 streams started per second in all, each
// some 20 s long: at most 25 kB/s come into a node, with the headers of IP and UDP,
// twice-told things and keys; each node says how many requests come to the pool, too.
func TestBudget(t *testing.T) {
	inWorlds(t, 1, func(w *world) {
		const nodes, backends, starts = 64, 64, 180.0
		const first, mean, lasts = 500 * time.Millisecond, 20 * time.Second, 3 * time.Second
		var desks []*desk
		var begun []*meter
		for i := range nodes {
			d := newDesk(0)
			begun = append(begun, newMeter())
			d.pace = begun[i].pace
			desks = append(desks, d)
			c := w.make(i, func(cfg *Config, o *Options) { cfg.Keys = []string{testKey(1)}; d.use(o) })
			w.nodes = append(w.nodes, c)
			if err := c.Start(context.Background()); err != nil {
				w.t.Fatal(err)
			}
		}
		w.within(5*time.Second, "membership", complete(w.nodes, nodes))
		<-time.After(time.Minute) // in which newcomers exchange more
		ids := make([]string, backends)
		for i := range ids {
			ids[i] = fmt.Sprint("backend-", i)
			for _, d := range desks {
				d.set(ids[i], func(r *backend.Report) { r.ID = ids[i] })
			}
		}
		stream := func(i int, id string) {
			d := desks[i]
			begun[i].count()
			d.set(id, func(r *backend.Report) { r.InFlight++; r.Speed = 50 })
			time.AfterFunc(first, func() { d.set(id, func(r *backend.Report) { r.Running++ }) })
			time.AfterFunc(first+time.Duration(rand.ExpFloat64()*float64(mean)), func() {
				d.set(id, func(r *backend.Report) { r.InFlight--; r.Running-- })
			})
		}
		begin := func() { stream(rand.IntN(nodes), ids[rand.IntN(backends)]) }
		for range int(starts * mean.Seconds()) {
			begin()
		}
		drive := func(lasts time.Duration) {
			for end := time.Now().Add(lasts); time.Now().Before(end); begin() {
				<-time.After(time.Duration(rand.ExpFloat64() / starts * float64(time.Second)))
			}
		}
		came := func() (bytes, packets uint64) {
			for _, c := range w.nodes {
				bytes += c.count.bytesIn.Load()
				packets += c.count.packetsIn.Load()
			}
			return bytes, packets
		}
		drive(2 * time.Second)
		bytes, packets := came()
		drive(lasts)
		moreBytes, morePackets := came()
		per := lasts.Seconds() * nodes
		rate := (float64(moreBytes-bytes) + 28*float64(morePackets-packets)) / per
		w.t.Logf("%.1f kB/s and %.1f packets/s into each node", rate/1000, float64(morePackets-packets)/per)
		if rate > 25_000 {
			w.t.Errorf("%.1f kB/s into each node, want 25 at most", rate/1000)
		}
	})
}

// meter is a pool's mean of five seconds.
type meter struct {
	mu   sync.Mutex // guards what follows
	mean float64
	at   time.Time
}

func newMeter() *meter { return &meter{at: time.Now()} }

func (m *meter) count() { m.add(1.0 / 5) }

func (m *meter) pace() float64 { return m.add(0) }

func (m *meter) add(v float64) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.mean = m.mean*math.Exp(-now.Sub(m.at).Seconds()/5) + v
	m.at = now
	return m.mean
}
