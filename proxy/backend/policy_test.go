package backend

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// placed makes a pool of backends with the weights, by a policy; chance is by
// seed.
func placed(t testing.TB, place Placement, weights ...int) *Pool {
	t.Helper()
	p, err := NewPool("llm", weighted(weights...), Rules{Outlier: DefaultOutlier(), Placement: place}, Hooks{}, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	p.Random = rand.New(rand.NewPCG(1, 2)).Uint64
	return p
}

func weighted(weights ...int) (configs []Config) {
	for i, w := range weights {
		configs = append(configs, Config{ID: fmt.Sprintf("b%d", i), URL: fmt.Sprintf("http://127.0.0.1:%d", 9000+i), Weight: w})
	}
	return configs
}

// sequence are the backends of n streams that end at once, a letter each.
func sequence(t testing.TB, p *Pool, n int) string {
	t.Helper()
	var s strings.Builder
	for range n {
		s.WriteByte(byte('A' + p.slot(momentary(t, p))))
	}
	return s.String()
}

// counts are how often each backend stands in a sequence.
func counts(s string, n int) []int {
	got := make([]int, n)
	for _, c := range s {
		got[c-'A']++
	}
	return got
}

// A fast backend that has 2 streams left and a slow one with 8 of the same ten:
// the next six go to the fast one, then they alternate.
func TestLeastConnectionsCatchesUp(t *testing.T) {
	p := placed(t, Placement{Policy: LeastConnections}, 1, 1)
	for i, n := range []uint64{2, 8} {
		p.Backends()[i].flights.word.Store(n)
	}
	var got strings.Builder
	for range 12 {
		l := pick(t, p)
		got.WriteByte(byte('A' + p.slot(l.Backend())))
	}
	if s := got.String(); s[:6] != "AAAAAA" || strings.Count(s[6:], "A") != 3 || longest(s[6:]) > 2 {
		t.Errorf("with 2 and 8 streams: %s", s)
	}
}

// At equal counts a weight of 2 gets twice the streams of 1, ties go to the
// shorter header time, and where that is equal to any.
func TestLeastConnectionsTies(t *testing.T) {
	p := placed(t, Placement{Policy: LeastConnections}, 2, 1)
	for range 300 {
		pick(t, p)
	}
	if a, b := p.Backends()[0].InFlight(), p.Backends()[1].InFlight(); a != 200 || b != 100 {
		t.Errorf("weights 2 and 1 have %d and %d of 300", a, b)
	}
	p = placed(t, Placement{Policy: LeastConnections}, 1, 1, 1)
	fair(t, counts(sequence(t, p, draws), 3), nil)
	for i, took := range []time.Duration{30, 20, 40} {
		p.Backends()[i].headed(time.Unix(1, 0), took*time.Millisecond)
	}
	if got := counts(sequence(t, p, 100), 3); got[1] != 100 {
		t.Errorf("ties with header times of 30, 20 and 40 ms: %v", got)
	}
}

// Over overview backends are drawn, and the streams still spread.
func TestLeastConnectionsOfMany(t *testing.T) {
	p := placed(t, Placement{Policy: LeastConnections}, slices.Repeat([]int{1}, 200)...)
	for range 2000 {
		pick(t, p)
	}
	for _, b := range p.Backends() {
		if n := b.InFlight(); n < 8 || n > 12 {
			t.Errorf("%s has %d of 2000 streams over 200", b.ID, n)
		}
	}
}

// A backend whose header time goes from 20 to 800 ms is left at once, and tried
// again after a while.
func TestResponseTimeLeavesAtOnce(t *testing.T) {
	for _, policy := range []string{LeastResponseTime, PeakEWMA} {
		p := placed(t, Placement{Policy: policy}, 1, 1)
		now := time.Unix(1000, 0)
		p.made = now
		a, b := p.Backends()[0], p.Backends()[1]
		serve := func(n int) (toA int) {
			for range n {
				l, err := p.Pick(now, Ask{})
				if err != nil {
					t.Fatal(err)
				}
				if l.Backend() == a {
					toA++
				}
				l.Backend().headed(now, 20*time.Millisecond)
				l.Release(now)
				now = now.Add(10 * time.Millisecond)
			}
			return toA
		}
		if n := serve(400); n < 100 || n > 300 {
			t.Errorf("%s: like backends, and one has %d of 400", policy, n)
		}
		a.headed(now, 800*time.Millisecond)
		if n := serve(100); n != 0 {
			t.Errorf("%s: after 800 ms it gets %d of the next 100", policy, n)
		}
		if serve(10_000) == 0 {
			t.Errorf("%s: not tried again within 100 s", policy)
		}
		if b.InFlight() != 0 {
			t.Errorf("%s: %d streams left", policy, b.InFlight())
		}
	}
}

// No policy places a stream where it may not go, finds whoever is left, and
// says why where there is nobody.
func TestEveryPolicyKeepsTheRules(t *testing.T) {
	for _, policy := range Policies() {
		p := placed(t, Placement{Policy: policy, BoundedLoad: 125}, slices.Repeat([]int{1}, 70)...)
		list := p.Backends()
		for _, b := range list[1:] {
			b.standing.Store(&Standing{State: Unhealthy})
		}
		for range 50 {
			if l := pick(t, p); l.Backend() != list[0] {
				t.Fatalf("%s: took %s, which is out", policy, l.Backend().ID)
			}
		}
		if _, err := p.Pick(time.Now(), Ask{Tried: list[:1]}); !errors.Is(err, ErrNone) {
			t.Errorf("%s: with none left: %v", policy, err)
		}
		list[0].terms.Store(&Terms{Weight: 1, Cap: 50, CapSource: CapConfig})
		if _, err := p.Pick(time.Now(), Ask{}); !errors.Is(err, ErrFull) {
			t.Errorf("%s: with all full: %v", policy, err)
		}
		list[40].standing.Store(&Standing{State: Active})
		if l := pick(t, p); l.Backend() != list[40] {
			t.Errorf("%s: took %s, want the one with room", policy, l.Backend().ID)
		}
		list[40].standing.Store(&Standing{State: Ejected, Until: time.Now().Add(-time.Second)})
		l := pick(t, p)
		if l.Backend() != list[40] || !l.is(isTrial) {
			t.Errorf("%s: an ejection is over, and %s was taken", policy, l.Backend().ID)
		}
	}
}

func TestEveryPolicyAllocatesNothing(t *testing.T) {
	for _, policy := range Policies() {
		p := placed(t, Placement{Policy: policy, BoundedLoad: 125, Second: Random, Share: .5}, slices.Repeat([]int{1}, 100)...)
		now, tried := time.Now(), p.Backends()[:1]
		if n := testing.AllocsPerRun(1000, func() {
			l, _ := p.Pick(now, Ask{Tried: tried, Hash: 5})
			l.Answered(now)
			l.Began(now)
			l.Progress(1, 100)
			l.Release(now)
		}); n != 0 {
			t.Errorf("%s: a stream makes %v allocations", policy, n)
		}
	}
}

// A backend in its slow start gets a tenth at first, its whole share at the end,
// and never nothing. (What the others may not have by bounded_load is its too.)
func TestSlowStart(t *testing.T) {
	for _, policy := range Policies() {
		p := placed(t, Placement{Policy: policy, SlowStart: 100 * time.Second, BoundedLoad: 125}, 1, 1, 1, 1)
		start := time.Unix(5000, 0)
		for i, b := range p.Backends() {
			since := start.Add(-time.Hour)
			if i == 0 {
				since = start
			}
			b.standing.Store(&Standing{State: Active, Since: since})
		}
		before := 0
		for _, c := range []struct {
			after       time.Duration
			least, most int
		}{{time.Second, 40, 300}, {50 * time.Second, 300, 700}, {200 * time.Second, 850, 1150}} {
			now, n := start.Add(c.after), 0
			var leases []Lease
			for i := range 4000 {
				l, err := p.Pick(now, Ask{Hash: mix(uint64(i) + 1)})
				if err != nil {
					t.Fatal(err)
				}
				l.Backend().headed(now, 20*time.Millisecond)
				if l.Backend() == p.Backends()[0] {
					n++
				}
				leases = append(leases, l)
			}
			for i := range leases {
				leases[i].Release(now)
			}
			if n < c.least || n > c.most || n < before {
				t.Errorf("%s: %v after its start it gets %d of 4000, want %d to %d", policy, c.after, n, c.least, c.most)
			}
			before = n
		}
	}
}

func TestSetPolicy(t *testing.T) {
	p := placed(t, Placement{Policy: RoundRobin}, 1, 1)
	for _, c := range []struct {
		name, second string
		share        float64
	}{{"fastest", "", 0}, {RoundRobin, "fastest", .5}, {RoundRobin, "", .5}, {RoundRobin, Random, 1.5}, {RoundRobin, Random, -1}} {
		if err := p.SetPolicy(c.name, c.share, c.second); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
	if got := p.Placement().Policy; got != RoundRobin {
		t.Fatalf("bad ones left %s", got)
	}
	held := pick(t, p)
	if err := p.SetPolicy(LeastConnections, 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := p.Update(weighted(1, 1, 1), Rules{Placement: Placement{Policy: RoundRobin}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := p.Placement().Policy; got != LeastConnections {
		t.Errorf("an update took the operator's policy back: %s", got)
	}
	if n := held.Backend().InFlight(); n != 1 {
		t.Errorf("the stream under way counts %d", n)
	}
	if err := p.SetPolicy("", 0, ""); err != nil || p.Placement().Policy != RoundRobin {
		t.Errorf("taken back: %v, %s", err, p.Placement().Policy)
	}
}

// A second policy gets its share, and each lease knows who chose.
func TestSecondPolicy(t *testing.T) {
	p := placed(t, Placement{Policy: RoundRobin, Second: Random, Share: .3}, 1, 1)
	n := 0
	for range 10_000 {
		l := pick(t, p)
		if l.Second() {
			n++
		}
		l.Release(time.Now())
	}
	if n < 2800 || n > 3200 {
		t.Errorf("the second policy chose %d of 10000", n)
	}
}

func BenchmarkPolicies(b *testing.B) {
	for _, policy := range Policies() {
		b.Run(policy, func(b *testing.B) {
			p := placed(b, Placement{Policy: policy, BoundedLoad: 125}, slices.Repeat([]int{1}, 1000)...)
			p.Random = nil
			now := time.Now()
			for i, x := range p.Backends() {
				x.headed(now, time.Duration(i)*time.Microsecond)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for h := rand.Uint64(); pb.Next(); h = mix(h + 1) {
					l, _ := p.Pick(now, Ask{Hash: h})
					l.Release(now)
				}
			})
		})
	}
}

// BenchmarkFull is what it costs to hear that 1,000 backends are full.
func BenchmarkFull(b *testing.B) {
	for _, policy := range Policies() {
		b.Run(policy, func(b *testing.B) {
			p := placed(b, Placement{Policy: policy, BoundedLoad: 125}, slices.Repeat([]int{1}, 1000)...)
			for _, x := range p.Backends() {
				x.terms.Store(&Terms{Weight: 1, Cap: 1, CapSource: CapConfig})
				x.flights.begin(0)
			}
			now := time.Now()
			for b.Loop() {
				_, _ = p.Pick(now, Ask{Hash: 1})
			}
		})
	}
}

// Streams that come one at a time are spread over backends of about the same
// speed, and not all given to the one whose reading happens to be best; one that
// is truly faster gets them.
func TestStreamsThatComeAlone(t *testing.T) {
	p := pool(t, 3, DefaultOutlier(), nil)
	for i, speed := range []float64{0.93, 1, 1.09} {
		p.Backends()[i].speed.Store(speed)
		p.Backends()[i].coarse.Store(1)
	}
	got := shares(t, p, 3000)
	for i := range got {
		within(t, got, i, 1000)
	}
	p.Backends()[2].speed.Store(2)
	p.Backends()[2].coarse.Store(alike * alike * alike)
	if got = shares(t, p, 300); got[2] != 300 {
		t.Errorf("the fast one got %d of 300", got[2])
	}
}

// A backend that failed to answer in time is asked again as soon as its phantoms
// are gone, so that it is either ejected or found well.
func TestAbsolved(t *testing.T) {
	p := pool(t, 3, ejecting(3, 50), nil)
	ill, now := p.Backends()[0], time.Now()
	p.usual = usual{answers: 100, median: 1, heads: 1, size: 1}
	for _, b := range p.Backends() {
		b.answers = reading{amount: 100, came: 100, things: 100, time: 1}
	}
	ill.answers = reading{time: 30}
	p.Failed(at(ill, now), now, FailedTimeout, "no answer in time")
	p.publish(p.Backends())
	if s := ill.Speed(); s < 0.9 {
		t.Errorf("its speed is %v after the failure", s)
	}
}

// A backend that hangs draws no more streams for being slow for long, nor for
// never having answered, where a policy goes by header times.
func TestHangingDrawsNothing(t *testing.T) {
	for _, policy := range []string{LeastResponseTime, PeakEWMA} {
		for _, answered := range []bool{true, false} {
			p := placed(t, Placement{Policy: policy}, 1, 1, 1)
			now := time.Unix(1000, 0)
			p.made = now
			ill, stuck := p.Backends()[0], 0
			for _, b := range p.Backends() {
				if answered || b != ill {
					b.headed(now, 20*time.Millisecond)
				}
			}
			for range 1000 {
				now = now.Add(100 * time.Millisecond)
				l, err := p.Pick(now, Ask{})
				if err != nil {
					t.Fatal(err)
				}
				if l.Backend() == ill {
					stuck++
					continue
				}
				l.Answered(now)
				l.Backend().headed(now, 20*time.Millisecond)
				l.Release(now)
			}
			for range 20 { // one after the other, and each client leaves after 2 s
				l, err := p.Pick(now, Ask{})
				if err != nil {
					t.Fatal(err)
				}
				if now = now.Add(2 * time.Second); l.Backend() == ill {
					stuck++
				} else {
					l.Answered(now)
					l.Backend().headed(now, 20*time.Millisecond)
				}
				l.Release(now)
			}
			if stuck < 1 || stuck > 8 {
				t.Errorf("%s, has answered %v: %d of 1000 streams wait for one that hangs", policy, answered, stuck)
			}
		}
	}
}
