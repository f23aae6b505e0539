package proxy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

// Every turn of a session goes to one backend, and what has no session anywhere.
func TestSessionStays(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		b := newBook(t)
		g := newFrontFor(t, b, plain, sticky(), naming(t, "b0", nil).addr, naming(t, "b1", nil).addr, naming(t, "b2", nil).addr)
		for turn := range 10 {
			for i := range 20 {
				key := fmt.Sprint("s", i)
				got := g.of(key)
				if got.status != 200 || got.body != b.home(key) {
					t.Fatalf("turn %d of %s: %+v, want %s", turn, key, got, b.home(key))
				}
			}
		}
		g.lookups(map[proxy.Lookup]float64{proxy.LookupNew: 20, proxy.LookupHit: 180})
		expect(t, "binds", g.metric("bind_seconds"), 20)
		g.idle()
	}
}

// The binding is another's, though this node proposed: the place at the proposed
// backend is given back, and the stream goes to the other.
func TestProposalLoses(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	first, second := newHeld(t), newHeld(t)
	g := newFrontFor(t, b, false, sticky(), first.addr, second.addr)
	other := map[string]string{"b0": "b1", "b1": "b0"}
	b.have(func() {
		b.between = func() {
			proposed := "b0"
			if g.backend(1).InFlight() == 1 {
				proposed = "b1"
			}
			b.place("s", other[proposed])
		}
	})
	got := make(chan said)
	go func() { got <- g.of("s") }()
	g.soon(patience, func() string {
		if first.heads.Load()+second.heads.Load() == 0 {
			return "nothing came"
		}
		return ""
	})
	home := b.home("s")
	for i, o := range []*held{first, second} {
		at := fmt.Sprint("b", i) == home
		expect(t, fmt.Sprint("in flight at b", i), g.backend(i).InFlight() == 1, at)
		expect(t, fmt.Sprint("came to b", i), o.heads.Load() == 1, at)
	}
	first.give <- struct{}{}
	second.give <- struct{}{}
	if s := <-got; s.status != 200 {
		t.Errorf("answer %+v", s)
	}
	g.idle()
	g.lookups(map[proxy.Lookup]float64{proxy.LookupHit: 1})
}

// A backend that drains serves the sessions that live there, and no others.
func TestSessionOfDrainingBackend(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	g := newFrontFor(t, b, false, sticky(), naming(t, "b0", nil).addr, naming(t, "b1", nil).addr)
	b.place("old", "b0")
	g.Pools()[0].Drain(g.backend(0), time.Now(), time.Time{})
	for range 5 {
		if got := g.of("old"); got.body != "b0" {
			t.Fatalf("answer %+v", got)
		}
	}
	for i := range 10 {
		if got := g.of(fmt.Sprint("new", i)); got.body != "b1" {
			t.Fatalf("answer %+v", got)
		}
	}
	if _, reasons := b.asked(); len(reasons) > 0 {
		t.Errorf("rebinds for %q", reasons)
	}
}

// A turn that is bound to a full backend waits for it, whatever others have room,
// and nobody waits behind it.
func TestSessionWaitsAtHome(t *testing.T) {
	t.Parallel()
	for _, draining := range []bool{false, true} {
		b := newBook(t)
		full, other := newHeld(t), newHeld(t)
		g := newFrontFor(t, b, false, func(p *proxy.PoolConfig) {
			sticky()(p)
			capOf(1, 8)(p)
		}, full.addr, other.addr)
		b.place("a", "b0")
		b.place("b", "b0")
		b.place("c", "b1")
		answers := make(chan said, 3)
		ask := func(key string) { go func() { answers <- g.of(key) }() }
		ask("a")
		full.arrived(t)
		if draining {
			g.Pools()[0].Drain(g.backend(0), time.Now(), time.Time{})
		}
		ask("b")
		g.counts(patience, 1, 1)
		ask("c")
		other.arrived(t) // though b came before
		g.get("/")       // anyone's, behind them all
		g.counts(patience, 2, 2)
		full.give <- struct{}{}
		full.arrived(t)
		full.give <- struct{}{}
		other.give <- struct{}{}
		for range 3 {
			if s := <-answers; s.status != 200 {
				t.Errorf("answer %+v", s)
			}
		}
		if draining {
			other.arrived(t)
			other.give <- struct{}{}
		} else {
			full.give <- struct{}{}
			other.give <- struct{}{}
		}
		g.idle()
	}
}

// closed is an address where nobody listens.
func closed(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().String()
}

// A home that refuses connections is left at once, for one that this node picks.
func TestSessionRebindsWhereRefused(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	g := newFrontFor(t, b, false, sticky(), closed(t), naming(t, "b1", nil).addr)
	b.place("s", "b0")
	for range 3 {
		if got := g.of("s"); got.body != "b1" {
			t.Fatalf("answer %+v", got)
		}
	}
	if turns, reasons := b.asked(); len(turns) != 3 || len(reasons) != 1 || reasons[0] != "refused" {
		t.Errorf("turns %q, rebinds for %q", turns, reasons)
	}
	g.lookups(map[proxy.Lookup]float64{proxy.LookupRepin: 1, proxy.LookupHit: 2})
	g.idle()
}

// What is left to say where the session cannot leave: what went wrong at home.
func TestSessionThatCannotLeave(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	b.have(func() { b.stays = true })
	g := newFrontFor(t, b, false, sticky(), closed(t), naming(t, "b1", nil).addr)
	b.place("s", "b0")
	if got := g.of("s"); got.status != 502 || got.code != string(backend.CodeRefused) {
		t.Errorf("answer %+v", got)
	}
	if turns, reasons := b.asked(); len(turns) != 1 || len(reasons) != 1 {
		t.Errorf("turns %q, rebinds for %q", turns, reasons)
	}
	b.place("gone", "b9")
	if got := g.of("gone"); got.status != 503 || got.code != string(backend.NoBackend) || !strings.Contains(got.body, "b9, where the session lives, is removed") {
		t.Errorf("answer %+v", got)
	}
	b.have(func() { b.fails = proxy.ErrNoLeader })
	if got := g.of("s"); got.status != 503 || got.code != string(backend.NoLeader) || got.retry == "" {
		t.Errorf("answer %+v", got)
	}
	g.idle()
	expect(t, "sheds", g.metric("shed_total", "no_leader"), 1)
}

// A home that health checks or failures put out is left, but in a panic by what
// streams find alone.
func TestSessionRebindsByVerdict(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		out   func(*backend.Pool)
		panic int
		home  string
		why   string
	}{
		{"ejected", func(p *backend.Pool) { p.Eject(p.Backends()[0], time.Now(), time.Hour) }, 0, "b1", "ejected"},
		{"ejected in a panic", func(p *backend.Pool) { p.Eject(p.Backends()[0], time.Now(), time.Hour) }, 100, "b0", ""},
		{"removed", func(p *backend.Pool) {
			c := backend.DefaultConfig()
			c.ID, c.URL = "b1", p.Backends()[1].URL
			if err := p.Update([]backend.Config{c}, backend.Rules{}, time.Now()); err != nil {
				t.Error(err)
			}
		}, 0, "b1", "removed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBook(t)
			g := newFrontFor(t, b, false, func(p *proxy.PoolConfig) {
				sticky()(p)
				p.Outlier.PanicPercent = tt.panic
			}, naming(t, "b0", nil).addr, naming(t, "b1", nil).addr)
			b.place("s", "b0")
			tt.out(g.Pools()[0])
			if got := g.of("s"); got.body != tt.home {
				t.Errorf("answer %+v", got)
			}
			if _, reasons := b.asked(); strings.Join(reasons, " ") != tt.why {
				t.Errorf("rebinds for %q", reasons)
			}
		})
	}
}

// A look that fails ends the turn before a byte is written, and another begins.
func TestSessionThatMovedMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	old, next := naming(t, "b0", nil), naming(t, "b1", nil)
	g := newFrontFor(t, b, false, sticky(), old.addr, next.addr)
	b.place("s", "b0")
	b.have(func() { b.looks = []error{errors.New("held"), errors.New("held")} })
	if got := g.of("s"); got.body != "b0" {
		t.Errorf("answer %+v", got)
	}
	turns, _ := b.asked()
	expect(t, "turns", len(turns), 3)
	expect(t, "heads at b0", old.heads.Load(), 1)
	b.have(func() { b.looks = slices.Repeat([]error{errors.New("held")}, 20) })
	if got := g.of("s"); got.status != 503 || got.code != string(backend.NoLeader) {
		t.Errorf("answer %+v", got)
	}
	expect(t, "heads at b0", old.heads.Load(), 1)
	expect(t, "retries", g.metric("retries_total", "llm"), 0)
	g.idle()
}

// Each of a stream's turns is told how long the ones before it have waited, so that all
// together wait no longer than one may.
func TestTurnsShareTheirWait(t *testing.T) {
	t.Parallel()
	const lag = 20 * time.Millisecond
	b := newBook(t)
	g := newFrontFor(t, b, false, sticky(), naming(t, "b0", nil).addr)
	b.place("s", "b0")
	b.have(func() { b.looks, b.lag = []error{errors.New("held"), errors.New("held")}, lag })
	began := time.Now()
	if got := g.of("s"); got.body != "b0" {
		t.Errorf("answer %+v", got)
	}
	took := time.Since(began)
	g.idle()
	b.have(func() {
		if len(b.waited) != 3 || b.waited[0] != 0 || b.waited[1] < lag || b.waited[2] < b.waited[1]+lag || b.waited[2] > took-lag {
			t.Errorf("turns of %v each, in %v, were told %v", lag, took, b.waited)
		}
	})
}

// A client that leaves while its session is looked for ends the search.
func TestClientLeavesDuringLookup(t *testing.T) {
	onEachLoop(t, nil, func(r *rig) {
		t := r.t
		b := newBook(t)
		b.have(func() { b.waits = make(chan struct{}) })
		g := newFrontFor(t, b, r.plain, sticky(), naming(t, "b0", nil).addr)
		c := g.dial()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Session-ID: s\r\n\r\n")
		g.counts(patience, 1, 0)
		_ = c.Close()
		g.idle()
		b.rests(patience)
		expect(t, "client_left", g.metric("streams_total", "client_left"), 1)
	})
}

// The same while its first turn waits in the queue for a place to propose.
func TestClientLeavesDuringProposal(t *testing.T) {
	onEachLoop(t, nil, func(r *rig) {
		t := r.t
		b := newBook(t)
		o := newHeld(t)
		g := newFrontFor(t, b, r.plain, func(p *proxy.PoolConfig) {
			sticky("header:X-Session-ID")(p)
			capOf(1, 8)(p)
		}, o.addr)
		g.get("/")
		o.arrived(t)
		c := g.dial()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Session-ID: s\r\n\r\n")
		g.counts(patience, 1, 1)
		_ = c.Close()
		g.counts(patience, 1, 0)
		b.rests(patience)
		o.give <- struct{}{}
		g.idle()
	})
}

// A pool that is full has no home for a new session, and says so.
func TestNoPlaceToPropose(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	g := newFrontFor(t, b, false, func(p *proxy.PoolConfig) {
		sticky()(p)
		p.Backends = nil
	})
	if got := g.of("s"); got.status != 503 || got.code != string(backend.NoBackend) {
		t.Errorf("answer %+v", got)
	}
	o := newHeld(t)
	g = newFrontFor(t, b, false, func(p *proxy.PoolConfig) {
		sticky()(p)
		capOf(1, 0)(p)
	}, o.addr)
	g.get("/")
	o.arrived(t)
	if got := g.of("s"); got.status != 429 {
		t.Errorf("answer %+v", got)
	}
	o.give <- struct{}{}
	g.idle()
}

// A turn whose home is far slower than others is moved before it begins, where
// that can be done; else it stays, and others do not ask for a while.
func TestHeavyTurn(t *testing.T) {
	t.Parallel()
	for _, stays := range []bool{false, true} {
		b := newBook(t)
		crowded, empty := newHeld(t), newHeld(t)
		g := newFrontFor(t, b, false, func(p *proxy.PoolConfig) {
			sticky("header:X-Session-ID")(p)
			p.Placement.Knee = 1
		}, crowded.addr, empty.addr)
		b.place("crowd", "b0")
		g.Pools()[0].Eject(g.backend(1), time.Now(), time.Hour) // there is nowhere else
		for range 8 {
			g.session("crowd")
			crowded.arrived(t)
		}
		g.Pools()[0].Admit(g.backend(1), time.Now())
		b.have(func() { b.stays = stays })
		b.place("s", "b0")
		b.place("other", "b0")
		g.session("s")
		if stays {
			crowded.arrived(t)
			g.session("other")
			crowded.arrived(t)
		} else {
			empty.arrived(t)
		}
		if _, reasons := b.asked(); len(reasons) == 0 || reasons[len(reasons)-1] != proxy.ReasonHeavy || stays && len(reasons) > 1 {
			t.Errorf("stays %v: rebinds for %q", stays, reasons)
		}
		for range 10 {
			crowded.give <- struct{}{}
			empty.give <- struct{}{}
		}
		g.idle()
	}
}

// session sends a request of a session, to be heard later.
func (g *front) session(key string) {
	fmt.Fprintf(g.dial(), "GET / HTTP/1.1\r\nHost: x\r\nX-Session-ID: %s\r\n\r\n", key)
}
