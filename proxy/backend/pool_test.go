package backend

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// change is a state that a pool told of.
type change struct {
	id string
	Standing
}

// pool makes one of n backends, b0 and so on; told gets what it tells.
func pool(t testing.TB, n int, o OutlierConfig, told func(change)) *Pool {
	t.Helper()
	var configs []Config
	for i := range n {
		configs = append(configs, Config{ID: fmt.Sprintf("b%d", i), URL: fmt.Sprintf("http://127.0.0.1:%d", 9000+i), Weight: 1})
	}
	p, err := NewPool("llm", configs, Rules{Outlier: o}, Hooks{Changed: func(b *Backend, s Standing) {
		if told != nil {
			told(change{b.ID, s})
		}
	}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// slot is a backend's position in the pool.
func (p *Pool) slot(b *Backend) int { return slices.Index(p.Backends(), b) }

func pick(t testing.TB, p *Pool, tried ...*Backend) Lease {
	t.Helper()
	l, err := p.Pick(time.Now(), Ask{Tried: tried})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// shares are the picks of each backend when n streams come one after the
// other, each ending before the next.
func shares(t testing.TB, p *Pool, n int) []int {
	t.Helper()
	got := make([]int, len(p.Backends()))
	for range n {
		got[p.slot(momentary(t, p))]++
	}
	return got
}

// momentary is where a stream went that took no time, however slow the machine is.
func momentary(t testing.TB, p *Pool) *Backend {
	t.Helper()
	now := time.Now()
	l, err := p.Pick(now, Ask{})
	if err != nil {
		t.Fatal(err)
	}
	b := l.Backend()
	l.Release(now)
	return b
}

// within fails where a share is not want, give or take a part of it. With
// 20,000 draws and shares of a tenth or more, 10 % is four deviations away.
func within(t *testing.T, got []int, slot, want int) {
	t.Helper()
	if got[slot] < want*9/10 || got[slot] > want*11/10 {
		t.Errorf("backend %d got %d picks, want about %d: %v", slot, got[slot], want, got)
	}
}

const draws = 20_000

func TestNewPool(t *testing.T) {
	p, err := NewPool("llm", []Config{{ID: "a", URL: "http://h", Weight: 3}, {URL: "http://[::1]:9001", Weight: 1}}, Rules{Outlier: DefaultOutlier()}, Hooks{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		id, url string
		weight  int
	}{{"a", "http://h", 3}, {"[::1]:9001", "http://[::1]:9001", 1}} {
		b := p.Backends()[i]
		if b.ID != want.id || b.URL != want.url || b.Terms().Weight != want.weight {
			t.Errorf("backend %d is %+v", i, want)
		}
		if s := b.Standing(); s.State != Active || s.Reason == "" || s.Since.IsZero() || b.InFlight() != 0 {
			t.Errorf("backend %d begins as %+v with %d streams", i, s, b.InFlight())
		}
	}
	_, err = NewPool("llm", []Config{{ID: "a", URL: "ftp://h"}}, Rules{Outlier: DefaultOutlier()}, Hooks{}, time.Now())
	if err == nil || !strings.Contains(err.Error(), `backend "a" of pool "llm"`) {
		t.Errorf("a bad url gave %v", err)
	}
}

func TestPickNone(t *testing.T) {
	if _, err := pool(t, 0, DefaultOutlier(), nil).Pick(time.Now(), Ask{}); !errors.Is(err, ErrNone) {
		t.Errorf("no backends: %v", err)
	}
	p := pool(t, 2, DefaultOutlier(), nil)
	if _, err := p.Pick(time.Now(), Ask{Tried: p.Backends()}); !errors.Is(err, ErrNone) {
		t.Errorf("all tried: %v", err)
	}
	for _, s := range States() {
		for _, b := range p.Backends() {
			b.standing.Store(&Standing{State: s, Until: time.Now().Add(time.Hour)})
		}
		if _, err := p.Pick(time.Now(), Ask{}); (err == nil) != (s == Active) {
			t.Errorf("%s: %v", s, err)
		}
		if want := map[bool]int{true: 2}[s == Active]; p.Usable() != want {
			t.Errorf("%s: %d are usable", s, p.Usable())
		}
	}
}

// With nothing running every backend is as good as the other: none may be
// favoured, by its place or by who stands beside it.
func TestPickFavoursNone(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10} {
		fair(t, shares(t, pool(t, n, DefaultOutlier(), nil), draws), nil)
	}
}

func TestPickFavoursNoNeighbour(t *testing.T) {
	for _, out := range [][]int{{0}, {0, 1}, {1, 3}} {
		p := pool(t, 5, DefaultOutlier(), nil)
		for _, i := range out {
			p.Backends()[i].standing.Store(&Standing{State: Ejected, Until: time.Now().Add(time.Hour)})
		}
		got := shares(t, p, draws)
		fair(t, got, out)

		p = pool(t, 5, DefaultOutlier(), nil) // the same where they were tried
		tried := make([]*Backend, 0, 2)
		for _, i := range out {
			tried = append(tried, p.Backends()[i])
		}
		got = make([]int, 5)
		for range draws {
			l := pick(t, p, tried...)
			got[p.slot(l.Backend())]++
			l.Release(time.Now())
		}
		fair(t, got, out)
	}
}

// fair fails unless all but those that are out got the same share.
func fair(t *testing.T, got, out []int) {
	t.Helper()
	for i, n := range got {
		if !slices.Contains(out, i) {
			within(t, got, i, draws/(len(got)-len(out)))
		} else if n != 0 {
			t.Errorf("backend %d is out and got %d picks", i, n)
		}
	}
}

// Of few backends all are looked at: the emptiest is always taken.
func TestPickTakesTheEmptiest(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		p := pool(t, n, DefaultOutlier(), nil)
		for i, b := range p.Backends()[:n-1] {
			b.flights.word.Store(uint64(n - i))
		}
		if got := shares(t, p, 500); got[n-1] != 500 {
			t.Errorf("the emptiest of %d got %v of 500", n, got)
		}
	}
}

// Streams that stay are spread: with one choice 100 backends and 10,000
// streams would differ by dozens.
func TestPickSpreads(t *testing.T) {
	p := pool(t, 100, DefaultOutlier(), nil)
	for range 10_000 {
		pick(t, p)
	}
	for _, b := range p.Backends() {
		if n := b.InFlight(); n < 90 || n > 110 {
			t.Errorf("%s has %d streams of 10,000 over 100", b.ID, n)
		}
	}
}

func TestPickByWeight(t *testing.T) {
	p := pool(t, 2, DefaultOutlier(), nil)
	p.Backends()[0].terms.Store(&Terms{Weight: 3})
	for range 400 {
		pick(t, p)
	}
	if a, b := p.Backends()[0].InFlight(), p.Backends()[1].InFlight(); a+b != 400 || a < 298 || a > 302 {
		t.Errorf("weights 3 and 1 got %d and %d of 400", a, b)
	}
}

func TestPickPassesOverTried(t *testing.T) {
	p := pool(t, 3, DefaultOutlier(), nil)
	var tried []*Backend
	for range 3 {
		l := pick(t, p, tried...)
		tried = append(tried, l.Backend())
		l.Release(time.Now())
	}
	if tried[0] == tried[1] || tried[0] == tried[2] || tried[1] == tried[2] {
		t.Errorf("tried %s, %s, %s", tried[0].ID, tried[1].ID, tried[2].ID)
	}
}

func TestLease(t *testing.T) {
	var zero Lease
	zero.Release(time.Now())
	if zero.Backend() != nil {
		t.Error("the zero Lease claims something")
	}
	p := pool(t, 1, DefaultOutlier(), nil)
	b := p.Backends()[0]
	first, second := pick(t, p), pick(t, p)
	if b.InFlight() != 2 || first.Backend() != b {
		t.Errorf("%d streams after two picks", b.InFlight())
	}
	first.Release(time.Now())
	first.Release(time.Now())
	if b.InFlight() != 1 || first.Backend() != nil {
		t.Errorf("%d streams after one was released twice", b.InFlight())
	}
	second.Release(time.Now())
	if b.InFlight() != 0 {
		t.Errorf("%d streams at the end", b.InFlight())
	}
}

// Counts are exact while many pick and release at once.
func TestCountsAreExact(t *testing.T) {
	p := pool(t, 7, DefaultOutlier(), nil)
	var all sync.WaitGroup
	var mu sync.Mutex
	held := make([]int64, len(p.Backends()))
	for w := range 8 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			mine := make([]int64, len(p.Backends()))
			var leases []Lease
			for range 2000 {
				if len(leases) > 0 && r.IntN(3) == 0 {
					l := &leases[r.IntN(len(leases))]
					if b := l.Backend(); b != nil {
						mine[p.slot(b)]--
					}
					l.Release(time.Now())
					continue
				}
				l := pick(t, p)
				mine[p.slot(l.Backend())]++
				leases = append(leases, l)
			}
			mu.Lock()
			defer mu.Unlock()
			for i, n := range mine {
				held[i] += n
			}
		})
	}
	all.Wait()
	for i, b := range p.Backends() {
		if b.InFlight() != held[i] {
			t.Errorf("%s counts %d streams, %d are held", b.ID, b.InFlight(), held[i])
		}
	}
}

func TestPickAllocatesNothing(t *testing.T) {
	p := pool(t, 10, DefaultOutlier(), nil)
	now, tried := time.Now(), p.Backends()[:1]
	if n := testing.AllocsPerRun(1000, func() {
		l, _ := p.Pick(now, Ask{Tried: tried})
		l.Release(time.Now())
	}); n != 0 {
		t.Errorf("a pick makes %v allocations", n)
	}
}

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{3, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := pool(b, n, DefaultOutlier(), nil)
			now := time.Now()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l, _ := p.Pick(now, Ask{})
					l.Release(time.Now())
				}
			})
		})
	}
}
