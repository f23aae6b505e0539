package gossip

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-lb/starling/proxy/backend"
)

// TestTally: in whatever order numbers are heard, there is a gap as long as one
// is missing that nothing later made up for.
func TestTally(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var got tally
		heard := map[uint64]bool{}
		covered := uint64(0)
		step := func(n uint64, all bool) {
			if all {
				got.covered(n)
				covered = max(covered, n)
			} else {
				got.heard(n)
				heard[n] = true
			}
		}
		most := rapid.SampledFrom([]uint64{8, 60, 300}).Draw(t, "most")
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			step(rapid.Uint64Range(1, most).Draw(t, "n"), rapid.IntRange(0, 9).Draw(t, "kind") == 0)
			highest, missing := covered, false
			for n := range heard {
				highest = max(highest, n)
			}
			for n := covered + 1; n <= highest; n++ {
				missing = missing || !heard[n]
			}
			if missing && !got.gap() {
				t.Fatalf("heard %v, covered %d: no gap", heard, covered)
			}
			if !missing && got.gap() && highest-covered <= 64 && got.far <= got.base {
				t.Fatalf("heard %v, covered %d: a gap, %+v", heard, covered, got)
			}
		}
		step(most, true)
		if got.gap() {
			t.Fatalf("a gap after all was told: %+v", got)
		}
	})
}

// losing drops the reports from one node to another while it is on.
type losing struct {
	on       atomic.Bool
	from, to netip.Addr
}

func (l *losing) rule(from, to netip.Addr, protocol string) bool {
	return l.on.Load() && protocol == "udp" && from == l.from && to == l.to
}

// TestLostChange: a change whose packet is lost is known soon all the same, also
// where nothing else changes after it.
func TestLostChange(t *testing.T) {
	inWorlds(t, 5, func(w *world) {
		desks := w.startDesks(5, 64)
		id := desks[0].id(3)
		<-time.After(5 * time.Second) // all were told everything
		l := &losing{from: w.addr(1).Addr(), to: w.addr(0).Addr()}
		w.net.set(l.rule)
		lose := func(n int) {
			l.on.Store(true)
			desks[1].set(id, func(r *backend.Report) { r.InFlight = n })
			w.within(300*time.Millisecond, "the others know", func() string { return hear(desks[2:], -1, id, n)() })
			l.on.Store(false)
		}
		knows := func(n int) func() string {
			return func() string {
				if got := desks[0].hears(id).InFlight; got != n {
					return fmt.Sprintf("it hears %d", got)
				}
				return ""
			}
		}
		for i := range 10 {
			<-time.After(time.Duration(i) * 900 * time.Millisecond)
			lose(10 + i)
			took := w.within(1500*time.Millisecond, "the one that missed it, in silence", knows(10+i))
			w.t.Logf("known %v later", took)
		}
		<-time.After(5 * time.Second)
		other := desks[0].id(4)
		lose(100)
		desks[1].set(other, func(r *backend.Report) { r.InFlight = 1 })
		w.within(600*time.Millisecond, "the one that missed it, when more follows", knows(100))
	})
}

// TestNothingIsAskedFor: where nothing is lost nobody asks, whatever changes and
// in whatever order packets come.
func TestNothingIsAskedFor(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		desks := w.startDesks(5, 64)
		<-time.After(5 * time.Second)
		asked := func() (n uint64) {
			for _, c := range w.nodes {
				n += c.count.asked.Load()
			}
			return n
		}
		before := asked()
		for range 300 {
			d := desks[rand.IntN(5)]
			d.set(d.id(rand.IntN(64)), func(r *backend.Report) { r.InFlight++ })
			<-time.After(rand.N(200 * time.Millisecond))
		}
		if got := asked() - before; got > 0 {
			w.t.Errorf("%d questions for what was not lost", got)
		}
	})
}

// TestManyLosses: with a tenth of all packets lost, what changes last is known
// to all within some seconds, and questions stay few.
func TestManyLosses(t *testing.T) {
	inWorlds(t, 3, func(w *world) {
		desks := w.startDesks(5, 64)
		id := desks[0].id(3)
		w.net.set(func(_, _ netip.Addr, protocol string) bool { return protocol == "udp" && rand.IntN(10) == 0 })
		start := time.Now()
		for i := range 20 {
			desks[1].set(id, func(r *backend.Report) { r.InFlight = i + 1 })
			w.within(6*time.Second, "a change", hear(desks, 1, id, i+1))
		}
		for _, c := range w.nodes {
			if got, most := c.count.asked.Load(), uint64(5*(1+time.Since(start)/time.Second)); got > most {
				w.t.Errorf("%s asked %d times in %v", c.opt.ID, got, time.Since(start))
			}
		}
	})
}

// TestOldQuestions: a recorded question brings nothing, nor one of a stranger.
func TestOldQuestions(t *testing.T) {
	nodes := startNodes(t, 2, nil)
	eventually(t, "membership", complete(nodes, 2))
	a, b := nodes[0], nodes[1]
	good := question{from: markOf("n1"), boot: b.boot, forBoot: a.boot, nth: 1 << 40}
	for _, tt := range []struct {
		name   string
		change func(*question)
		want   cause // 0: taken
	}{
		{"of no member", func(q *question) { q.from = markOf("n9") }, causeStranger},
		{"of another start", func(q *question) { q.boot++ }, causeOld},
		{"for another start", func(q *question) { q.forBoot++ }, causeOld},
		{"the first", func(*question) {}, 0},
		{"the same again", func(*question) {}, causeOld},
		{"an earlier one", func(q *question) { q.nth-- }, causeOld},
		{"the next", func(q *question) { q.nth++ }, 0},
	} {
		q := good
		tt.change(&q)
		err := a.onAsk(q.encode())
		if err == nil && tt.want != 0 || err != nil && causeOf(err) != tt.want {
			t.Errorf("%s: %v, want cause %q", tt.name, err, tt.want.name())
		}
	}
	if err := a.onAsk(good.encode()[:9]); causeOf(err) != causeBroken {
		t.Errorf("a cut question: %v", err)
	}
}

func FuzzQuestion(f *testing.F) {
	f.Add(question{from: 1, boot: 2, forBoot: 3, nth: 4}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := decodeQuestion(b)
		if err != nil {
			return
		}
		if again, err := decodeQuestion(q.encode()); err != nil || again != q {
			t.Fatalf("%+v becomes %+v: %v", q, again, err)
		}
	})
}
