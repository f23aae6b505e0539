package gossip

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/proxy/backend"
)

// desk is what a node carries, as a test sets it, and what it hears.
type desk struct {
	mu    sync.Mutex
	own   map[string]backend.Report
	heard map[string]backend.Elsewhere
	pace  func() float64 // of the pool "llm"; nil: nothing is said of it
	paces map[string]float64
}

func newDesk(backends int) *desk {
	d := &desk{own: map[string]backend.Report{}}
	for i := range backends {
		id := fmt.Sprintf("a-backend-with-quite-a-long-name-%04d.internal.example.org:8000", i)
		d.own[id] = backend.Report{ID: id}
	}
	return d
}

func (d *desk) use(o *Options) {
	o.Reports = func() []backend.Report {
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.Collect(maps.Values(d.own))
	}
	o.Hear = func(n News) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.heard, d.paces = n.Elsewhere, n.Paces
	}
	if d.pace != nil {
		o.Paces = func() map[string]float64 { return map[string]float64{"llm": d.pace()} }
	}
}

func (d *desk) id(i int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.own))[i]
}

func (d *desk) set(id string, change func(*backend.Report)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.own[id]
	change(&r)
	d.own[id] = r
}

func (d *desk) hears(id string) backend.Elsewhere {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.heard[id]
}

// startDesks starts nodes that each carry backends, in a world.
func (w *world) startDesks(nodes, backends int) (desks []*desk) {
	for i := range nodes {
		d := newDesk(backends)
		desks = append(desks, d)
		c := w.make(i, func(_ *Config, o *Options) { d.use(o) })
		w.nodes = append(w.nodes, c)
		if err := c.Start(context.Background()); err != nil {
			w.t.Fatal(err)
		}
	}
	w.within(5*time.Second, "membership", complete(w.nodes, nodes))
	return desks
}

// all says who does not hear n streams elsewhere, other than the sayer.
func hear(desks []*desk, sayer int, id string, want int) func() string {
	return func() string {
		for i, d := range desks {
			if got := d.hears(id); i != sayer && got.InFlight != want {
				return fmt.Sprintf("node %d hears %d, want %d", i, got.InFlight, want)
			}
		}
		return ""
	}
}

func TestLoadSpreads(t *testing.T) {
	inWorlds(t, 5, func(w *world) {
		desks := w.startDesks(8, 64)
		id := desks[0].id(3)
		for i := range 20 {
			desks[2].set(id, func(r *backend.Report) { r.InFlight = i + 1 })
			w.within(300*time.Millisecond, "a change reaches all", hear(desks, 2, id, i+1))
		}
		desks[5].set(id, func(r *backend.Report) { r.InFlight, r.Running, r.Phantoms, r.Speed = 4, 1, 2, 25 })
		w.within(300*time.Millisecond, "two are summed", func() string {
			got, want := desks[0].hears(id), backend.Elsewhere{Nodes: 7, InFlight: 24, Running: 1, Phantoms: 2, Speed: speedOf(codeSpeed(25))}
			if got != want {
				return fmt.Sprintf("%+v, want %+v", got, want)
			}
			return ""
		})
		if got := desks[5].hears(id).InFlight; got != 20 {
			w.t.Errorf("the second speaker hears %d, want 20: its own are not among them", got)
		}
		crash(w.nodes[2])
		w.within(5*time.Second, "a dead node's streams are gone", func() string {
			if got := desks[0].hears(id); got.InFlight != 4 || got.Nodes != 6 {
				return fmt.Sprintf("%+v", got)
			}
			return ""
		})
	})
}

// TestManyBackends: 500 with long ids, 5 nodes, one change: all agree, nothing
// is stuck, also where some packets are lost.
func TestManyBackends(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		desks := w.startDesks(5, 500)
		for i := range 500 {
			for n, d := range desks {
				d.set(d.id(i), func(r *backend.Report) { r.InFlight = n + 1 })
			}
		}
		w.within(2*time.Second, "the first word", func() string {
			for n, d := range desks {
				if got := d.hears(d.id(499)).InFlight; got != 15-(n+1) {
					return fmt.Sprintf("node %d hears %d", n, got)
				}
			}
			return ""
		})
		id := desks[0].id(250)
		desks[1].set(id, func(r *backend.Report) {
			r.Looks = []backend.Look{{At: time.Now(), Took: time.Second, Finding: backend.LookFail}}
		})
		w.within(2*time.Second, "one health change", func() string {
			for i, c := range w.nodes {
				if said := c.Said(id); i != 1 && (len(said) != 1 || said[0].Node != "n1" || said[0].Looks[0].Finding != backend.LookFail) {
					return fmt.Sprintf("node %d: %+v", i, said)
				}
			}
			return ""
		})
		w.net.set(func(_, _ netip.Addr, protocol string) bool { return protocol == "udp" && rand.IntN(3) == 0 })
		desks[1].set(id, func(r *backend.Report) { r.InFlight = 100 })
		w.within(2*time.Minute, "a lost change comes with the full report", func() string {
			for i, d := range desks {
				if got := d.hears(id).InFlight; i != 1 && got != 15-2-(i+1)+100 {
					return fmt.Sprintf("node %d hears %d", i, got)
				}
			}
			return ""
		})
		for _, c := range w.nodes {
			if q := c.records.queue.NumQueued(); q != 0 {
				w.t.Errorf("%d messages are stuck", q)
			}
		}
	})
}

// TestStretch: where much changes reports go out once a second, and say so;
// where it is over, they go back to their pace.
func TestStretch(t *testing.T) {
	inWorlds(t, 2, func(w *world) {
		var book logBook
		d, other := newDesk(64), newDesk(64)
		for i, d := range []*desk{d, other} {
			c := w.make(i, func(_ *Config, o *Options) {
				d.use(o)
				if i == 0 {
					o.Logger = book.logger()
				}
			})
			w.nodes = append(w.nodes, c)
			if err := c.Start(context.Background()); err != nil {
				w.t.Fatal(err)
			}
		}
		w.within(5*time.Second, "membership", complete(w.nodes, 2))
		for i := range 200 {
			for b := range 64 {
				d.set(d.id(b), func(r *backend.Report) { r.InFlight = i })
			}
			<-time.After(50 * time.Millisecond)
		}
		if got := time.Duration(w.nodes[0].speaker.interval.Load()); got < speakRarest*4/5 {
			w.t.Errorf("at 1280 changes a second it speaks each %v", got)
		}
		<-time.After(20 * time.Second)
		if got := time.Duration(w.nodes[0].speaker.interval.Load()); got != speakEvery {
			w.t.Errorf("at rest it speaks each %v", got)
		}
		if got := book.String(); !strings.Contains(got, "up to a second apart") || !strings.Contains(got, "usual pace again") {
			w.t.Errorf("it does not say so: %s", got)
		}
	})
}

func TestRecords(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		w.start(8)
		w.within(5*time.Second, "membership", complete(w.nodes, 8))
		agree := func(key, want string) func() string {
			return func() string {
				for _, c := range w.nodes {
					if r, ok := c.Record(LeaderHint, key); !ok || string(r.Value) != want {
						return fmt.Sprintf("%s: %q", c.opt.ID, r.Value)
					}
				}
				return ""
			}
		}
		publish := func(i int, r Record) {
			if err := w.nodes[i].Publish(r); err != nil {
				w.t.Fatal(err)
			}
		}
		publish(0, Record{LeaderHint, "3", 5, []byte("n1")})
		w.within(2*time.Second, "a record reaches all", agree("3", "n1"))
		publish(7, Record{LeaderHint, "3", 4, []byte("n7")})
		publish(2, Record{LeaderHint, "3", 6, []byte("n2")})
		w.within(2*time.Second, "the highest revision wins", agree("3", "n2"))
		publish(3, Record{LeaderHint, "3", 7, []byte("n3")})
		publish(4, Record{LeaderHint, "3", 7, []byte("n4")})
		w.within(2*time.Second, "of equal ones the same one wins everywhere", agree("3", "n4"))
		late := w.make(8, nil)
		if err := late.Start(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		w.nodes = append(w.nodes, late)
		w.within(5*time.Second, "a latecomer learns it", agree("3", "n4"))
		if err := late.Publish(Record{ShardMap, "1", 1, make([]byte, maxValue+1)}); err == nil {
			w.t.Error("a record that fits no packet was taken")
		}
		<-time.After(time.Minute)
		for _, c := range w.nodes {
			if q := c.records.queue.NumQueued(); q != 0 {
				w.t.Errorf("%d records are stuck", q)
			}
		}
	})
}

// TestSteady: a pause of the process is noticed, and over soon.
func TestSteady(t *testing.T) {
	at := time.Now()
	s := newSteadiness(at)
	for range 5 {
		at = at.Add(speakEvery)
		s.beat(at, speakEvery)
	}
	if s.pausedWithin(time.Hour, at) {
		t.Error("turns in time count as a pause")
	}
	at = at.Add(speakEvery + 2*lateBy)
	s.beat(at, speakEvery)
	if !s.pausedWithin(0, at) || s.pausedWithin(settleFor, at.Add(settleFor+1)) {
		t.Error("a turn that came late is no pause, or one for ever")
	}
	inWorlds(t, 1, func(w *world) {
		w.start(1)
		c := w.nodes[0]
		if !c.Steady() {
			w.t.Error("a new node is not steady")
		}
		c.steady.paused.Store(int64(time.Since(c.steady.began)))
		if c.Steady() {
			w.t.Error("it is steady right after a pause")
		}
		w.within(settleFor+time.Second, "steady again", func() string {
			if !c.Steady() {
				return "not yet"
			}
			return ""
		})
	})
}

// TestMetrics: what is scraped is what is there.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	nodes := startNodes(t, 3, func(i int, _ *Config, o *Options) {
		o.Self.ConfigHash = fmt.Sprint(i / 2)
		if i == 0 {
			o.Metrics = registry
		}
	})
	eventually(t, "membership", complete(nodes, 3))
	want := map[string]float64{"starling_members": 3, "starling_config_hashes": 2, "starling_gossip_queue": 0}
	eventually(t, "metrics", func() string {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, f := range families {
			seen[f.GetName()] = len(f.GetMetric())
			if v, ok := want[f.GetName()]; ok && f.GetMetric()[0].GetGauge().GetValue() != v {
				return fmt.Sprintf("%s is %v, want %v", f.GetName(), f.GetMetric()[0].GetGauge().GetValue(), v)
			}
		}
		if seen["starling_report_age_seconds"] != 2 || seen["starling_gossip_refused_total"] != int(causeFull) {
			return fmt.Sprint(seen)
		}
		return ""
	})
}

// TestNudge: what should be known soon is known in some milliseconds, and only so
// often; what is not nudged waits for its turn.
func TestNudge(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		desks := w.startDesks(3, 10)
		id := desks[0].id(5)
		say := func(n int, nudge bool) time.Duration {
			desks[0].set(id, func(r *backend.Report) { r.InFlight = n })
			if nudge {
				w.nodes[0].Nudge()
			}
			return w.within(time.Second, "a word", hear(desks, 0, id, n))
		}
		say(1000, false)
		for i := range nudgeBurst / 2 {
			if took := say(i+1, true); took > 20*time.Millisecond {
				w.t.Errorf("a nudged word took %v", took)
			}
		}
		if took := say(2000, false); took < speakEvery/2 {
			w.t.Errorf("a word right after another, and not nudged, took %v", took)
		}
		<-time.After(10 * time.Second)
		packets := w.nodes[0].net.count.packetsOut.Load()
		for i := range 4000 {
			desks[0].set(id, func(r *backend.Report) { r.InFlight = i })
			w.nodes[0].Nudge()
			<-time.After(time.Millisecond)
		}
		const spoken = nudgeBurst + 4*5 + 4*7 // at once, then five a second, and as often without
		if sent := w.nodes[0].net.count.packetsOut.Load() - packets; sent > 2*spoken+100 {
			w.t.Errorf("%d packets in four seconds: nudges are not bounded", sent)
		}
	})
}

// TestAssigned: three nodes check a backend for all; where they fall silent the
// others look for themselves, and stop when there is word again.
func TestAssigned(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		desks := w.startDesks(8, 1)
		id := desks[0].id(0)
		var chosen []int
		say := func() {
			for _, i := range chosen {
				desks[i].set(id, func(r *backend.Report) {
					r.Looks = []backend.Look{{At: time.Now(), Took: time.Millisecond, Finding: backend.LookOK}}
				})
			}
		}
		assigned := func() (list []int) {
			for i, c := range w.nodes {
				if c.Assigned(id, 3, 2*time.Second) {
					list = append(list, i)
				}
			}
			return list
		}
		if got := len(assigned()); got != 8 {
			w.t.Errorf("%d of 8 look before anybody has told anything, want all", got)
		}
		for i, c := range w.nodes {
			if self, of := c.Represents(id, 3); self {
				chosen = append(chosen, i)
			} else if of != 3 {
				w.t.Errorf("node %d counts %d representatives", i, of)
			}
		}
		if len(chosen) != 3 {
			w.t.Fatalf("representatives are %v, want three", chosen)
		}
		only := func() string {
			if got := assigned(); !slices.Equal(got, chosen) {
				return fmt.Sprintf("%v look, want %v", got, chosen)
			}
			return ""
		}
		say()
		w.within(2*time.Second, "the three alone", only)
		for range 20 { // unchanged words go with full reports only
			<-time.After(2 * time.Second)
			say()
			if why := only(); why != "" {
				w.t.Fatal(why)
			}
		}
		w.within(time.Minute, "the three have fallen silent", func() string {
			if got := len(assigned()); got != 8 {
				return fmt.Sprintf("%d look", got)
			}
			return ""
		})
		say()
		w.within(15*time.Second, "word again", only)
		crash(w.nodes[chosen[0]])
		w.within(10*time.Second, "another in a dead one's stead", func() string {
			n := 0
			for i, c := range w.nodes {
				if self, _ := c.Represents(id, 3); self && i != chosen[0] {
					n++
				}
			}
			if n != 3 {
				return fmt.Sprint(n)
			}
			return ""
		})
	})
}
