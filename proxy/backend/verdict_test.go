package backend

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// seen makes a witness of looks, oldest first, that begin at second from and
// are two seconds apart.
func seen(node string, from int, found ...Finding) Witness {
	w := Witness{Node: node}
	for i, f := range found {
		w.Looks = append(w.Looks, Look{At: time.Unix(int64(from+2*i), 0), Took: time.Second, Finding: f})
	}
	slices.Reverse(w.Looks)
	return w
}

func TestJudge(t *testing.T) {
	const ok, fail, wait = LookOK, LookFail, LookNotReady
	for _, c := range []struct {
		name      string
		witnesses []Witness
		alive     int
		before    bool
		down      bool
	}{
		{"nobody has looked", nil, 3, false, false},
		{"nobody has looked since", nil, 3, true, true},
		{"one alone", []Witness{seen("a", 0, fail, fail, fail)}, 1, false, true},
		{"one of three: its own network, maybe", []Witness{seen("a", 0, fail, fail, fail, fail, fail)}, 3, false, false},
		{"three failures of two", []Witness{seen("a", 0, ok, fail, fail), seen("b", 1, ok, fail)}, 3, false, true},
		{"two of two are not three", []Witness{seen("a", 0, ok, fail), seen("b", 1, ok, fail)}, 3, false, false},
		{"another sees it well", []Witness{seen("a", 0, fail, fail, fail), seen("b", 1, fail, fail, ok)}, 3, false, false},
		{"up by two of two", []Witness{seen("a", 0, fail, ok), seen("b", 1, fail, ok)}, 3, true, false},
		{"one up", []Witness{seen("a", 0, fail, fail), seen("b", 1, fail, ok)}, 3, true, true},
		{"alive is up, ready or not", []Witness{seen("a", 0, fail, wait), seen("b", 1, fail, wait)}, 3, true, false},
	} {
		v := Case{Witnesses: c.witnesses, Alive: c.alive, Rise: 2, Fall: 3, Before: Verdict{Down: c.before, Reason: "earlier"}}.Judge()
		if v.Down != c.down {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

// A check that timed out does not count while anybody gets bytes from the
// backend; one that was refused does.
func TestBusyIsNotDead(t *testing.T) {
	late := seen("a", 100, LookFail, LookFail, LookFail)
	for i := range late.Looks {
		late.Looks[i].TimedOut = true
	}
	judge := func(heard int64) bool {
		c := Case{Witnesses: []Witness{late, {Node: "b", Heard: heard}}, Alive: 1, Rise: 2, Fall: 3}
		return c.Judge().Down
	}
	for _, h := range []struct {
		name  string
		heard time.Time
		down  bool
	}{
		{"never", time.Unix(0, 0), true},
		{"before the first began", time.Unix(98, 0), true},
		{"within the first: two are left", time.Unix(99, 5e8), false},
		{"within the last", time.Unix(103, 5e8), false},
		{"since", time.Unix(110, 0), false},
	} {
		if got := judge(h.heard.UnixNano()); got != h.down {
			t.Errorf("heard %s: down %v", h.name, got)
		}
	}
	for i := range late.Looks {
		late.Looks[i].TimedOut = false
	}
	if !judge(time.Unix(110, 0).UnixNano()) {
		t.Error("refused connects do not count")
	}
}

// Whoever has the same reports comes to the same verdict, in whatever order
// they came; and a verdict of down needs two reporters.
func TestVerdictIsAFunctionOfReports(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	findings := Findings()
	for range 3000 {
		c := Case{Alive: 1 + r.IntN(4), Rise: 1 + r.IntN(3), Fall: 1 + r.IntN(4), Before: Verdict{Down: r.IntN(2) == 0, NotReady: r.IntN(2) == 0}}
		for n := range r.IntN(4) {
			w := Witness{Node: fmt.Sprint("n", n), Heard: int64(r.IntN(30)) * int64(time.Second)}
			for range r.IntN(MaxLooks + 1) {
				w.Looks = append(w.Looks, Look{
					At: time.Unix(int64(r.IntN(20)), 0), Took: time.Second, Finding: findings[r.IntN(len(findings))], TimedOut: r.IntN(4) == 0,
				})
			}
			c.Witnesses = append(c.Witnesses, w)
		}
		want := c.Judge()
		if again := c.Judge(); again != want {
			t.Fatalf("judged again: %+v, then %+v", want, again)
		}
		r.Shuffle(len(c.Witnesses), func(i, j int) { c.Witnesses[i], c.Witnesses[j] = c.Witnesses[j], c.Witnesses[i] })
		for _, w := range c.Witnesses {
			r.Shuffle(len(w.Looks), func(i, j int) { w.Looks[i], w.Looks[j] = w.Looks[j], w.Looks[i] })
		}
		if got := c.Judge(); got != want {
			t.Fatalf("in another order: %+v, want %+v", got, want)
		}
		failed := map[string]bool{}
		for _, w := range c.Witnesses {
			if slices.ContainsFunc(w.Looks, func(l Look) bool { return l.Finding == LookFail }) {
				failed[w.Node] = true
			}
		}
		if want.Down && !c.Before.Down && len(failed) < min(2, c.Alive) {
			t.Fatalf("down by %d reporters of %d: %+v", len(failed), c.Alive, c)
		}
		if (want.Reason == "") != (!want.Down && !want.NotReady) && c.Before.Reason == "" && c.Before == (Verdict{}) {
			t.Fatalf("%+v has reason %q", want, want.Reason)
		}
	}
}

// What other nodes testify counts with what this one saw.
func TestTestify(t *testing.T) {
	p, _ := watched(t, 2, DefaultOutlier())
	b := p.Backends()[0]
	p.Testify(b, time.Unix(2, 0), []Witness{seen("n2", 0, LookFail, LookFail, LookFail)}, 2)
	if b.Standing().State != Active {
		t.Error("one of two nodes put it out")
	}
	p.Looked(b, Look{At: time.Unix(5, 0), Finding: LookFail, Why: "connect: refused"})
	if s := b.Standing(); s.State != Unhealthy {
		t.Errorf("two nodes: %+v", s)
	}
	if got := p.Looks(b); len(got) != 1 || got[0].Why == "" {
		t.Errorf("own looks are %+v", got)
	}
	p.Testify(b, time.Unix(9, 0), []Witness{seen("n2", 7, LookOK, LookOK)}, 2)
	if b.Standing().State != Active {
		t.Errorf("two successes elsewhere: %+v", b.Standing())
	}
	for i := range 3 * MaxLooks {
		p.Looked(b, Look{At: time.Unix(int64(20+i), 0), Finding: LookOK})
	}
	if got := p.Looks(b); len(got) != MaxLooks || !got[0].At.Equal(time.Unix(int64(20+3*MaxLooks-1), 0)) {
		t.Errorf("%d looks are kept, the newest of %v", len(got), got[0].At)
	}
}

// What comes on streams is heard, without a clock of theirs.
func TestListen(t *testing.T) {
	p, _ := watched(t, 1, DefaultOutlier())
	b, from := p.Backends()[0], time.Unix(100, 0)
	b.Listen(from)
	if b.Heard() != 0 {
		t.Error("heard, though nothing came")
	}
	l := pick(t, p)
	l.Began(time.Now())
	l.Progress(1, 30)
	b.Listen(from.Add(time.Second))
	b.Listen(from.Add(2 * time.Second))
	if got := b.Heard(); got != from.Add(time.Second).UnixNano() {
		t.Errorf("heard at %v", time.Unix(0, got))
	}
	l.Release(time.Now())
}
