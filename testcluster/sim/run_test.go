package sim

import (
	"math"
	"reflect"
	"testing"

	"github.com/starling-lb/starling/proxy/backend"
)

// small is the reference cell, over soon.
func small() Cell {
	c := Reference()
	c.Proxies, c.Engines, c.Load.Requests = 4, Fleet(8, Batching, 1, 1, 2, 0.5), 4000
	return c
}

// TestSameSeedSameFigures: a run depends on its cell and nothing else, whatever
// the policy.
func TestSameSeedSameFigures(t *testing.T) {
	for _, policy := range append(backend.Policies(), Oracle) {
		c := small()
		c.Rule.Policy = policy
		once, again := Run(c), Run(c)
		if !reflect.DeepEqual(once, again) {
			t.Errorf("%s: %+v, then %+v", policy, once, again)
		}
		if c.Seed++; reflect.DeepEqual(once, Run(c)) {
			t.Errorf("%s: another seed changes nothing", policy)
		}
	}
}

// TestNothingIsLeft: at the end every claim is given back, in the pools and in
// what they say of each other.
func TestNothingIsLeft(t *testing.T) {
	for _, kind := range []Kind{Gray, Dead, Frozen, Join} {
		for _, caps := range []Caps{Untold, ByEngine, Configured} {
			c := small()
			c.Rule.Caps = caps
			c.Faults = []Fault{{Kind: kind, Engine: 2, From: 20, To: 60}}
			r := play(c)
			f := r.placer.(*fleet)
			for j, h := range f.heard {
				if h.inFlight != 0 || h.running != 0 || r.servers[j].held() != 0 {
					t.Errorf("kind %d: server %d has %d streams of which %d run, the reports say %d", kind, j, r.servers[j].held(), h.running, h.inFlight)
				}
			}
			for i := range f.proxies {
				for _, b := range f.proxies[i].pool.Backends() {
					if b.InFlight() != 0 {
						t.Errorf("kind %d: proxy %d still has %d streams at %s", kind, i, b.InFlight(), b.ID)
					}
				}
			}
			settled := len(r.tally.latency) + r.tally.rejected + r.tally.failed
			if settled != r.tally.requests || settled == 0 {
				t.Errorf("kind %d: of %d requests %d are settled", kind, r.tally.requests, settled)
			}
		}
	}
}

// TestReportsAge: what a proxy hears of the others is from half to one and a half
// Age old, evenly.
func TestReportsAge(t *testing.T) {
	c := small()
	r := newRun(&c)
	f := r.placer.(*fleet)
	age := c.age()
	for i := range f.proxies {
		looked, _ := f.turn(i, 0)
		for range 10 {
			heard, who := f.turn(i, looked)
			if who != -1 || math.Abs(heard-looked-age/2) > 1e-9 {
				t.Fatalf("proxy %d looked at %v and hears at %v", i, looked, heard)
			}
			next, who := f.turn(i, heard)
			if who != i || math.Abs(next-looked-age) > 1e-9 {
				t.Fatalf("proxy %d looked at %v and then at %v", i, looked, next)
			}
			looked = next
		}
	}
}

// TestTokensAreTold: the pools hear of every token but each stream's first.
func TestTokensAreTold(t *testing.T) {
	c := small()
	c.Load.Requests = 200
	r := newRun(&c)
	f := r.placer.(*fleet)
	want := 0
	for _, j := range r.jobs {
		want += j.Output - 1
	}
	r.play()
	if f.tokens != want {
		t.Errorf("the pools heard of %d tokens, %d were made", f.tokens, want)
	}
}

// TestOracleKnows: it never goes to a dead engine, leaves a gray one, and waits for
// no frozen one.
func TestOracleKnows(t *testing.T) {
	c := small()
	c.Rule.Policy = Oracle
	c.Load.Rho = 0.7
	for kind, most := range map[Kind]float64{Dead: 0, Frozen: 0, Gray: 0.001} {
		c.Faults = []Fault{{Kind: kind, Engine: 2, From: 60, To: 60 + leastWindow}}
		if f := Run(c); f.Attempts[2] > most || f.Failed > 0 || f.Rejected > 0 {
			t.Errorf("kind %d: %.4f of the requests went to it, %.4f failed", kind, f.Attempts[2], f.Failed)
		}
	}
}

// TestFullCluster: with every slot taken and caps configured, requests
// wait at their proxy, no longer than the limit and no more of them than that.
func TestFullCluster(t *testing.T) {
	c := small()
	c.Rule.Caps = Configured
	c.Load.Rho = 1.3
	r := play(c)
	f := r.tally.figures()
	if f.Rejected < 0.1 || f.Rejected > 0.4 {
		t.Errorf("at 1.3 times the capacity %.3f were rejected", f.Rejected)
	}
	for i := range r.servers {
		if n := len(r.servers[i].queue); n != 0 {
			t.Errorf("%d wait at engine %d", n, i)
		}
	}
	c.Load.Rho = 0.5
	if f := Run(c); f.Rejected != 0 {
		t.Errorf("at half the capacity %.3f were rejected", f.Rejected)
	}
}

func TestTraces(t *testing.T) {
	for name, want := range map[string]struct{ rows, prompt, output int }{
		Chat: {19_366, 1154, 211}, Code: {8_819, 2047, 27},
	} {
		rows := Trace(name)
		prompt, output := 0, 0
		for _, r := range rows {
			prompt, output = prompt+r.Context, output+r.Generated
		}
		if n := len(rows); n != want.rows || prompt/n != want.prompt || output/n != want.output {
			t.Errorf("%s has %d rows of %d and %d tokens, want %+v", name, n, prompt/n, output/n, want)
		}
	}
}

// TestLoad: arrivals have the rate that rho asks for, and more proxies change no
// request.
func TestLoad(t *testing.T) {
	few, many := small(), small()
	many.Proxies = 64
	a, b := few.Jobs(), many.Jobs()
	work := 0.0
	for i := range a {
		work += a[i].Work()
		if a[i].At != b[i].At || a[i].Prompt != b[i].Prompt || a[i].Output != b[i].Output {
			t.Fatalf("request %d is %+v or %+v", i, a[i], b[i])
		}
	}
	if rho := work / a[len(a)-1].At / few.capacity(); math.Abs(rho-few.Load.Rho) > 1e-9 {
		t.Errorf("rho is %v, want %v", rho, few.Load.Rho)
	}
}

func TestCalendar(t *testing.T) {
	c := newCalendar(20)
	for step := range 1000 {
		source := (step * 7) % 20
		c.set(source, float64((step*step)%97))
		first, at := c.first()
		for s, other := range c.at {
			if other < at || other == at && s < first {
				t.Fatalf("step %d: %d at %v comes first, and not %d at %v", step, first, at, s, other)
			}
		}
	}
}

// TestRejectedByAnEngine: a request that finds an engine and its queue full is
// gone, and disturbs no other engine's events.
func TestRejectedByAnEngine(t *testing.T) {
	c := small()
	c.Load.Rho = 2
	c.Rule = Rule{Policy: backend.RoundRobin}
	if f := Run(c); f.Rejected < 0.2 || f.Rejected > 0.7 {
		t.Errorf("at twice the capacity %.3f were rejected", f.Rejected)
	}
}
