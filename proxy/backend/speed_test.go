package backend

import (
	"math"
	"testing"
	"time"
)

// lab is a pool in virtual time, in which streams run at backends.
type lab struct {
	t    *testing.T
	pool *Pool
	now  time.Time
	runs [][]*Lease // by backend
}

func newLab(t *testing.T, n int) *lab {
	weights := make([]int, n)
	for i := range weights {
		weights[i] = 1
	}
	return &lab{t: t, pool: placed(t, Placement{}, weights...), now: time.Unix(0, 0), runs: make([][]*Lease, n)}
}

// begin has n streams begin at backend i, as far as the head of the answer.
func (b *lab) begin(i, n int) {
	b.t.Helper()
	for range n {
		l, err := b.pool.Pick(b.now, Ask{Only: b.pool.Backends()[i]})
		if err != nil {
			b.t.Fatal(err)
		}
		b.runs[i] = append(b.runs[i], &l)
	}
}

// flow has the streams of every backend flow for a time, each at the rate, in
// events a second of a stream, of its backend.
func (b *lab) flow(d time.Duration, rates ...float64) {
	const step = 50 * time.Millisecond
	owed := make([]float64, len(rates))
	for i := range rates {
		for _, l := range b.runs[i] {
			l.Answered(b.now)
			l.Began(b.now)
		}
	}
	for end := b.now.Add(d); b.now.Before(end); {
		b.now = b.now.Add(step)
		for i, rate := range rates {
			owed[i] += rate * step.Seconds() * float64(len(b.runs[i]))
			for ; owed[i] >= 1; owed[i]-- {
				b.runs[i][0].Progress(1, 200)
			}
		}
		b.pool.Sample(b.now)
	}
}

// about fails unless the backends' speeds are these, give or take a part.
func (b *lab) about(part float64, want ...float64) {
	b.t.Helper()
	for i, w := range want {
		if got := b.pool.Backends()[i].Speed(); math.Abs(got/w-1) > part {
			b.t.Errorf("backend %d has speed %.3f, want %.3f", i, got, w)
		}
	}
}

// The speed is that of one stream alone: four that share a backend get less
// each, and that is taken out.
func TestSpeedOfTokens(t *testing.T) {
	b := newLab(t, 3)
	b.begin(0, 1)
	b.begin(1, 33)
	b.begin(2, 1)
	b.flow(5*time.Second, 50, 25, 100) // 33 streams run at half speed
	b.about(.1, 1, 1, 2)
	x := b.pool.Backends()[2]
	if r := x.Rate(); r < 90 || r > 110 {
		t.Errorf("one stream alone gets %v events a second, want 100", r)
	}
	if s, want := x.StepTime(b.now), (32+2)/32.0/100; math.Abs(s/want-1) > .1 {
		t.Errorf("the next step takes %v s, want %v", s, want)
	}
}

// Nothing known, nothing judged.
func TestSpeedUnknown(t *testing.T) {
	b := newLab(t, 2)
	b.about(0, 1, 1)
	b.begin(0, 1)
	b.flow(time.Second, 5)
	b.about(0, 1, 1) // 5 events are not enough
	if r := b.pool.Backends()[0].Rate(); r != 0 {
		t.Errorf("rate %v from nothing", r)
	}
}

// A backend that slows down shows within seconds, and one whose streams get
// nothing at all is the most expensive of all; it is known again once it is
// back.
func TestSpeedFollows(t *testing.T) {
	b := newLab(t, 3)
	for i := range 3 {
		b.begin(i, 4)
	}
	b.flow(5*time.Second, 50, 50, 50)
	b.about(.05, 1, 1, 1)
	b.flow(6*time.Second, 50, 50, 5)
	b.about(.25, 1, 1, .15)
	b.flow(10*time.Second, 50, 50, 0)
	if got := b.pool.Backends()[2].Speed(); got > .03 {
		t.Errorf("a frozen backend has speed %v", got)
	}
	b.flow(10*time.Second, 50, 50, 50)
	b.about(.05, 1, 1, 1)
}

// What was known fades where nothing runs, so that a slow backend is tried again.
func TestSpeedFades(t *testing.T) {
	b := newLab(t, 3)
	for i := range 3 {
		b.begin(i, 2)
	}
	b.flow(5*time.Second, 50, 50, 5)
	for _, l := range b.runs[2] {
		l.Release(b.now)
	}
	b.runs[2] = nil
	b.flow(10*time.Second, 50, 50, 0)
	if got := b.pool.Backends()[2].Speed(); got > .3 {
		t.Errorf("speed %v soon after, forgotten too fast", got)
	}
	b.flow(4*time.Minute, 50, 50, 0)
	b.about(.1, 1, 1, 1)
}

// Streams that idle tell nothing of how fast their backend is: a busy room's
// backend is not faster than a quiet one's.
func TestSpeedOfIdleStreams(t *testing.T) {
	b := newLab(t, 3)
	for i := range 3 {
		b.begin(i, 20)
	}
	b.flow(time.Minute, .5, .01, .1)
	b.about(.3, 1, 1, 1)
	streams := 0
	for range 30 {
		l := pick(t, b.pool)
		if l.Backend() == b.pool.Backends()[0] {
			streams++
		}
	}
	if streams < 5 || streams > 15 {
		t.Errorf("of 30 more streams the busy one gets %d", streams)
	}
}

// Where answers come whole, the time to their heads tells, and one that hangs
// shows although no head of it ever came.
func TestSpeedOfAnswers(t *testing.T) {
	b := newLab(t, 4)
	times := []time.Duration{20, 20, 40, 0} // ms; the last hangs
	b.begin(3, 2)
	for range 300 {
		b.now = b.now.Add(40 * time.Millisecond)
		for i, took := range times[:3] {
			l, err := b.pool.Pick(b.now, Ask{Only: b.pool.Backends()[i]})
			if err != nil {
				t.Fatal(err)
			}
			at := b.now.Add(took * time.Millisecond)
			l.Answered(at)
			l.Release(at)
		}
		b.pool.Sample(b.now)
	}
	b.about(.15, 1.25, 1.25, .68) // beside the median of 50, 50, 25 and 0 a second
	if got := b.pool.Backends()[3].Speed(); got > .12 {
		t.Errorf("one that hangs has speed %v", got)
	}
}

// Of a pool of token streams too, one that hangs before the first token shows.
func TestSpeedOfOneThatHangsBeforeItsTokens(t *testing.T) {
	b := newLab(t, 3)
	for i := range 2 {
		b.begin(i, 4)
	}
	for range 100 {
		for i := range 2 { // heads come in 100 ms
			l, err := b.pool.Pick(b.now, Ask{Only: b.pool.Backends()[i]})
			if err != nil {
				t.Fatal(err)
			}
			l.Answered(b.now.Add(100 * time.Millisecond))
			l.Release(b.now.Add(100 * time.Millisecond))
		}
		b.flow(100*time.Millisecond, 50, 50)
	}
	b.begin(2, 10)
	for range 100 {
		b.flow(100*time.Millisecond, 50, 50)
	}
	if got := b.pool.Backends()[2].Speed(); got > .5 {
		t.Errorf("speed %v though ten streams wait for 10 s", got)
	}
}

// What other nodes read stands in for a node without streams of its own there.
func TestSpeedElsewhere(t *testing.T) {
	b := newLab(t, 3)
	for i := range 2 {
		b.begin(i, 2)
	}
	b.flow(5*time.Second, 50, 50)
	own := b.pool.Backends()[0].Reading()
	if own < 9500 || own > 10500 { // bytes
		t.Fatalf("own reading %v, want 10000", own)
	}
	if b.pool.Backends()[2].Reading() != 0 {
		t.Error("a reading from no stream")
	}
	b.pool.Hear(map[string]Elsewhere{"b2": {Nodes: 1, Running: 3, InFlight: 3, Speed: own / 4}})
	b.flow(time.Second, 50, 50)
	b.about(.1, 1, 1, .25)
}

// Where streams wait for their first piece, more than at others, all slots are
// taken; a cap that somebody configured stands above that, and an engine's word
// too.
func TestLearnedCap(t *testing.T) {
	b := newLab(t, 3)
	x := b.pool.Backends()[0]
	for i := range 3 {
		b.begin(i, 40)
	}
	b.flow(20*time.Second, 50, 50, 50)
	if c := x.Terms(); c.Cap != 0 || c.CapSource != CapNone {
		t.Fatalf("nobody waited, and the cap is %+v", c)
	}
	wait := b.runs[0]
	b.begin(0, 10)
	b.runs[0] = wait // the ten stay silent
	b.flow(20*time.Second, 50, 50, 50)
	if c := x.Terms(); c.CapSource != CapLearned || c.Cap < 38 || c.Cap > 40 {
		t.Fatalf("ten waited beside 40 that ran, and the cap is %+v", c)
	}
	if c := b.pool.Backends()[1].Terms(); c.CapSource != CapNone {
		t.Errorf("nobody waited there, and the cap is %+v", c)
	}
	b.begin(0, 60) // learned caps turn nobody away
	for range surelyWaits {
		x.SetEngine(30, 5, 0, b.now)
	}
	if c := x.Terms(); c.CapSource != CapEngine || c.Cap != 30 {
		t.Errorf("the engine runs 30 while 5 wait, and the cap is %+v", c)
	}
	x.SetEngine(10, 0, 64, b.now)
	if c := x.Terms(); c.Cap != 64 {
		t.Errorf("the engine says 64, and the cap is %+v", c)
	}
	b.flow(engineFresh+time.Second, 50, 50, 50)
	if c := x.Terms(); c.CapSource != CapLearned {
		t.Errorf("the engine is silent, and the cap is %+v", c)
	}
	configs := weighted(1, 1)
	configs[0].MaxStreams = 7
	if err := b.pool.Update(configs, Rules{}, b.now); err != nil {
		t.Fatal(err)
	}
	x.SetEngine(10, 5, 0, b.now)
	if c := x.Terms(); c.CapSource != CapConfig || c.Cap != 7 {
		t.Errorf("configured, and the cap is %+v", c)
	}
}

// A stream goes on to a backend with a slot where all that are drawn have none,
// and where no cap turns anybody away, to the least full of those without.
func TestSlotsComeFirst(t *testing.T) {
	const n = 200
	p := placed(t, Placement{}, repeat(n)...)
	for _, x := range p.Backends() {
		x.terms.Store(&Terms{Weight: 1, Cap: 2, CapSource: CapLearned})
	}
	for range 2 * n {
		pick(t, p)
	}
	for _, x := range p.Backends() {
		if x.InFlight() != 2 {
			t.Fatalf("%s has %d streams, all have room for 2", x.ID, x.InFlight())
		}
	}
	for range n {
		pick(t, p)
	}
	for _, x := range p.Backends() {
		if k := x.InFlight(); k > 4 {
			t.Errorf("%s has %d streams of 3 on average", x.ID, k)
		}
	}
}

func repeat(n int) (weights []int) {
	for range n {
		weights = append(weights, 1)
	}
	return weights
}

// The more streams arrive between two reports, the fewer backends are drawn.
func TestDraws(t *testing.T) {
	for _, c := range []struct {
		nodes, rate, fixed, want int
	}{{0, 2000, 0, 4}, {3, 3, 0, 4}, {3, 10, 0, 3}, {3, 50, 0, 2}, {3, 50, 6, 6}} {
		p := placed(t, Placement{Draws: c.fixed}, repeat(10)...)
		said := map[string]Elsewhere{}
		for _, x := range p.Backends() {
			said[x.ID] = Elsewhere{Nodes: c.nodes}
		}
		p.Hear(said)
		now := time.Unix(0, 0)
		for range 100 {
			for range c.rate {
				l, err := p.Pick(now, Ask{})
				if err != nil {
					t.Fatal(err)
				}
				l.Release(now)
			}
			now = now.Add(100 * time.Millisecond)
			p.Sample(now)
		}
		if got := p.drawing(p.now.Load()); got != c.want {
			t.Errorf("%d other nodes, %d streams in 100 ms here: draws %d, want %d", c.nodes, c.rate, got, c.want)
		}
	}
}

// Reports too old to add: own counts stand for those of all nodes.
func TestStaleReports(t *testing.T) {
	p := placed(t, Placement{}, 1, 1)
	a := p.Backends()[0]
	l, err := p.Pick(time.Unix(0, 0), Ask{Only: a})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release(time.Unix(1, 0))
	c := choice{pool: p, set: p.now.Load(), list: p.Backends(), now: time.Unix(0, 0)}
	for _, e := range []struct {
		said Elsewhere
		want float64
	}{{Elsewhere{}, 2}, {Elsewhere{Nodes: 4, InFlight: 10}, 12}, {Elsewhere{Nodes: 4, InFlight: 10, Stale: true}, 6}} {
		p.Hear(map[string]Elsewhere{a.ID: e.said})
		if got := c.streams(a); got != e.want {
			t.Errorf("%+v: counts %v streams, want %v", e.said, got, e.want)
		}
	}
}

// Of an idle backend that failed, four failures look like as many streams as the
// others have.
func TestPhantomsWeigh(t *testing.T) {
	p := placed(t, Placement{}, 1, 1)
	a, b := p.Backends()[0], p.Backends()[1]
	now := time.Unix(0, 0)
	for range 40 {
		if _, err := p.Pick(now, Ask{Only: b}); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		p.Failed(at(a, now), now, FailedConnect, "refused")
	}
	c := choice{pool: p, set: p.now.Load(), list: p.Backends(), now: now}
	if c.streams(a) < 40 {
		t.Errorf("ten failures count as %v streams beside 40", c.streams(a))
	}
	if l, err := p.Pick(now, Ask{}); err != nil || l.Backend() != b {
		t.Error("the one that fails at once was taken")
	}
}

func TestSpread(t *testing.T) {
	p := placed(t, Placement{}, 1, 1)
	if s, n := p.Spread(time.Unix(0, 0)); s != 0 || n != 0 {
		t.Errorf("nothing runs: %v, %v", s, n)
	}
	for range 3 {
		if _, err := p.Pick(time.Unix(0, 0), Ask{Only: p.Backends()[0]}); err != nil {
			t.Fatal(err)
		}
	}
	s, n := p.Spread(time.Unix(0, 0))
	if n != 1 || math.Abs(s-1.5/34.5) > 1e-9 { // 3 and 0 streams; steps of 36 and 33
		t.Errorf("spread of 3 and 0 streams: step %v, in flight %v", s, n)
	}
}
