package gossip

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// paced starts nodes of which all but the first say how many requests come to a pool.
// The first is as one of a version that knows of no such thing, with a backend of its
// own. set changes what a node says.
func (w *world) paced(nodes int) (desks []*desk, set func(node int, v float64)) {
	said := make([]atomic.Uint64, nodes)
	for i := range nodes {
		d := newDesk(1)
		if i > 0 {
			d.pace = func() float64 { return math.Float64frombits(said[i].Load()) }
		}
		desks = append(desks, d)
		c := w.make(i, func(_ *Config, o *Options) { d.use(o) })
		w.nodes = append(w.nodes, c)
		if err := c.Start(context.Background()); err != nil {
			w.t.Fatal(err)
		}
	}
	w.within(5*time.Second, "membership", complete(w.nodes, nodes))
	return desks, func(node int, v float64) { said[node].Store(math.Float64bits(v)) }
}

// pace is what a node hears of the others' requests.
func (d *desk) hearsPace() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.paces["llm"]
}

// near says what is wrong where a node does not hear about so many requests a second,
// to a fifth.
func near(d *desk, want float64) func() string {
	return func() string {
		if got := d.hearsPace(); math.Abs(got-want) > want/5 {
			return fmt.Sprintf("it hears %.2f requests/s, want %v", got, want)
		}
		return ""
	}
}

// TestPacesSpread: every node that speaks of a pool hears the sum of the others within
// a second and a half, and what a node that is gone said is gone. One that knows of no
// paces hears of its backends as before.
func TestPacesSpread(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		desks, set := w.paced(5)
		for i := 1; i < 5; i++ {
			set(i, 100)
		}
		for i := 1; i < 5; i++ {
			w.within(1500*time.Millisecond, "the others' requests", near(desks[i], 300))
		}
		set(3, 1000)
		w.within(1500*time.Millisecond, "a spike at one of them", near(desks[1], 1200))
		set(3, 0)
		w.within(1500*time.Millisecond, "the end of it", near(desks[1], 200))
		id := desks[0].id(0)
		desks[4].set(id, func(r *backend.Report) { r.InFlight = 7 })
		w.within(300*time.Millisecond, "a stream, by who knows of no paces", hear(desks[:1], -1, id, 7))
		if got := desks[0].heard; len(got) != 1 || desks[0].hearsPace() != 0 {
			w.t.Errorf("who knows of no paces hears %v and %v", got, desks[0].hearsPace())
		}
		crash(w.nodes[4])
		w.within(5*time.Second, "a dead node's requests are gone", near(desks[1], 100))
	})
}

// TestPaceIsNoBackend: a pool and a backend of one name are two, and a full report says
// both.
func TestPaceIsNoBackend(t *testing.T) {
	c := &Cluster{opt: Options{Paces: func() map[string]float64 { return map[string]float64{"b1": 8, "idle": 0} }}}
	s := &speaker{said: map[uint64]spoken{}}
	s.ids.Store(&map[uint64]string{})
	entries, _, _, _ := s.look(append([]backend.Report{{ID: "b1", InFlight: 3}}, c.paces()...), nil, time.Now())
	said := speaking(entries)
	if len(entries) != 3 || len(said) != 2 || len(*s.ids.Load()) != 3 {
		t.Fatalf("it would say %+v", said)
	}
	r, node := newReports(), markOf("n1")
	for _, ch := range fulls(said, func(full bool) chunk { return chunk{origin: node, boot: 1, seq: 1 << lookBits, full: full} }) {
		back, err := decodeChunk(ch.encode())
		if err != nil {
			t.Fatal(err)
		}
		back.received = time.Now()
		r.merge(back)
	}
	p := &peers{byMark: map[uint64]int{node: 0}, list: []peer{{id: "n1", mark: node, boot: 1}}}
	got := r.sum(&sums{}, p, s.ids.Load(), time.Now())
	if e := got.elsewhere["b1"]; len(got.elsewhere) != 1 || e.InFlight != 3 || e.Speed != 0 {
		t.Errorf("backends: %+v", got.elsewhere)
	}
	if v := got.paces["b1"]; math.Abs(v-8) > 0.4 || got.paces["idle"] != 0 {
		t.Errorf("pools: %v", got.paces)
	}
}

// TestPacesStretchNothing: where the requests of many pools come and go, reports of
// backends go out as often as ever, and a pace is news where it is two thirds off.
func TestPacesStretchNothing(t *testing.T) {
	for _, c := range []struct {
		times float64
		want  urgency
	}{{1.4, calm}, {0.7, calm}, {1.8, soft}, {0.5, soft}} {
		before, r := toEntry(backend.Report{Speed: 40}, time.Now()), backend.Report{ID: poolPrefix + "p", Speed: 40 * c.times}
		if got := (spoken{entry: before}).change(r, toEntry(r, time.Now()), false, time.Now()); got != c.want {
			t.Errorf("%v times as many requests: urgency %v, want %v", c.times, got, c.want)
		}
	}
	inWorlds(t, 2, func(w *world) {
		var n atomic.Int64
		for i := range 2 {
			d := newDesk(2)
			c := w.make(i, func(_ *Config, o *Options) {
				d.use(o)
				o.Paces = func() map[string]float64 {
					all := map[string]float64{}
					for p := range 64 {
						all[fmt.Sprint("p", p)] = 1 + 99*float64(n.Load()%2)
					}
					return all
				}
			})
			w.nodes = append(w.nodes, c)
			if err := c.Start(context.Background()); err != nil {
				w.t.Fatal(err)
			}
		}
		w.within(5*time.Second, "membership", complete(w.nodes, 2))
		for range 20 {
			n.Add(1)
			<-time.After(time.Second)
			if got := time.Duration(w.nodes[0].speaker.interval.Load()); got != speakEvery {
				w.t.Errorf("at 64 changed paces a second it speaks each %v", got)
			}
		}
	})
}
