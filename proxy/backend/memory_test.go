package backend

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// handed is what arrives of a pool's memories at another process.
func handed(t testing.TB, p *Pool) (all []Memory, mean time.Duration) {
	t.Helper()
	before, mean := p.Memories(time.Now())
	text, err := json.Marshal(before)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all, mean
}

// An ejection goes on in the next process for the time that is left of it, and then
// one stream decides. A row of failures goes on, and so does what time in service
// makes of the row of ejections.
func TestRememberEjections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := pool(t, 4, ejecting(3, 50), nil)
		fail(a, 0, 3)
		fail(a, 1, 3)
		<-time.After(12 * time.Second)
		l, _ := a.Pick(time.Now(), Ask{Only: a.Backends()[1]})
		a.Succeeded(&l, time.Now(), 0)
		l.Release(time.Now())
		fail(a, 2, 2)
		<-time.After(time.Second)
		fail(a, 1, 3) // the second time in a row
		was := a.Backends()[1].Standing()

		var told []change
		b := pool(t, 4, ejecting(3, 50), func(c change) { told = append(told, c) })
		all, mean := handed(t, a)
		if n := b.Remember(all, mean, time.Now()); n != 4 {
			t.Fatalf("%d of 4 are known", n)
		}
		if s := b.Backends()[1].Standing(); s.State != Ejected || s.Times != 2 || !s.Until.Equal(was.Until) || !s.Since.Equal(was.Since) || s.Reason != was.Reason {
			t.Errorf("it was %+v, and is %+v", was, s)
		}
		if len(told) > 0 {
			t.Errorf("nothing happened, and was told: %+v", told)
		}
		if s := b.Backends()[0].Standing(); s.State != Ejected || b.Backends()[0].open(time.Now()) != true {
			t.Errorf("one whose time is over is not to be tried: %+v", s)
		}
		fail(b, 2, 1)
		if s := b.Backends()[2].Standing(); s.State != Active {
			t.Errorf("above the limit: %+v", s)
		}
		<-time.After(time.Until(was.Until) - time.Millisecond)
		if b.Backends()[1].open(time.Now()) {
			t.Error("it takes streams before its time")
		}
		<-time.After(2 * time.Millisecond)
		for _, i := range []int{0, 1} {
			l, err := b.Pick(time.Now(), Ask{Only: b.Backends()[i]})
			if err != nil {
				t.Fatal(err)
			}
			b.Succeeded(&l, time.Now(), 0)
			l.Release(time.Now())
		}
		if out(b) != 0 {
			t.Error("what its trial let in is out")
		}
		fail(b, 2, 1)
		if s := b.Backends()[2].Standing(); s.State != Ejected {
			t.Errorf("the third failure in a row, of which the first two were before: %+v", s)
		}
	})
}

// A trial that is under way is waited for: what comes of it decides, and where nothing
// is heard, the next stream is the trial.
func TestRememberTrials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			ends func(p *Pool, l *Lease)
			want State
			open bool // to the next stream
		}{
			{"good", func(p *Pool, l *Lease) { p.Succeeded(l, time.Now(), 0) }, Active, true},
			{"bad", func(p *Pool, l *Lease) { p.Failed(l, time.Now(), FailedBroke, "again") }, Ejected, false},
			{"none", func(_ *Pool, l *Lease) { l.Release(time.Now()) }, Ejected, true},
		} {
			a, b := pool(t, 2, ejecting(1, 50), nil), pool(t, 2, ejecting(1, 50), nil)
			fail(a, 0, 1)
			<-time.After(12 * time.Second)
			l, err := a.Pick(time.Now(), Ask{Only: a.Backends()[0]})
			all, mean := handed(t, a)
			trial, tried := all[0].Trial()
			if _, other := all[1].Trial(); err != nil || !tried || other {
				t.Fatal(all, err)
			}
			b.Remember(all, mean, time.Now())
			x := b.Backends()[0]
			b.Hearken(a.Became(trial), time.Now())
			if x.open(time.Now()) {
				t.Errorf("%s: two try it at once", c.name)
			}
			c.ends(a, &l)
			came := a.Became(trial)
			b.Hearken(came, time.Now())
			b.Hearken(came, time.Now()) // it is said again and again
			if s := x.Standing(); s.State != c.want || x.open(time.Now()) != c.open {
				t.Errorf("%s: it is %+v, open %v", c.name, s, x.open(time.Now()))
			}
			if c.name == "bad" && x.Standing().Times != 2 {
				t.Errorf("out for the %d. time", x.Standing().Times)
			}
			l.Release(time.Now())
		}
	})
}

func TestRememberTrialOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pool(t, 2, ejecting(1, 50), nil), pool(t, 2, ejecting(1, 50), nil)
		fail(a, 0, 1)
		<-time.After(12 * time.Second)
		l, _ := a.Pick(time.Now(), Ask{Only: a.Backends()[0]})
		defer l.Release(time.Now())
		all, mean := handed(t, a)
		b.Remember(all, mean, time.Now())
		<-time.After(lentTime + time.Second)
		b.Sample(time.Now())
		if !b.Backends()[0].open(time.Now()) {
			t.Error("it is never tried")
		}
		b.Hearken(Trial{ID: "b0", Of: b.Backends()[0].condition.out.until, Ended: true, Out: &Out{Times: 1}}, time.Now())
		if s := b.Backends()[0].Standing(); s.State != Ejected {
			t.Errorf("what comes too late was heard: %+v", s)
		}
	})
}

// Speeds, header times, learned caps, a slow start, the word of health checks and an
// operator's drain are as they were.
func TestRememberPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := remembering(t)
		x := a.Backends()
		a.Looked(x[2], Look{At: time.Now(), Finding: LookFail, Why: "no connection"})
		a.Looked(x[2], Look{At: time.Now(), Finding: LookFail, Why: "no connection"})
		a.Drain(x[3], time.Now(), time.Now().Add(time.Hour))
		var leases []Lease
		for i := range 4 {
			for range 2 {
				l, _ := a.pick(time.Now(), Ask{Only: x[i], Bound: true})
				if l.Backend() != nil {
					a.Succeeded(&l, time.Now(), time.Duration(1+i)*100*time.Millisecond)
					l.Answered(time.Now())
					l.Began(time.Now())
					leases = append(leases, l)
				}
			}
		}
		for range 50 {
			<-time.After(100 * time.Millisecond)
			for i := range leases {
				leases[i].Progress(4-3*(i/2%2), 40-30*(i/2%2))
			}
			a.Sample(time.Now())
		}
		x[0].slots.most = 17
		for i := range leases {
			leases[i].Release(time.Now())
		}
		a.Finished(x[0], 40*time.Second)
		a.Sample(time.Now().Add(10 * time.Millisecond))
		b := remembering(t)
		b.Drain(b.Backends()[3], time.Now(), time.Now().Add(9*time.Hour)) // as operators have decided
		<-time.After(time.Second)
		all, mean := handed(t, a)
		b.Remember(all, mean, time.Now())
		for i, y := range b.Backends() {
			if got, want := y.Standing(), x[i].Standing(); got.State != want.State || got.Reason != want.Reason || !got.Since.Equal(want.Since) || !got.Until.Equal(want.Until) {
				t.Errorf("%s was %+v, and is %+v", y.ID, want, got)
			}
			if got, want := y.Speed(), x[i].Speed(); got < want*.99 || got > want*1.01 {
				t.Errorf("%s had speed %v, and has %v", y.ID, want, got)
			}
			at, then := int64(b.micros(time.Now())), int64(a.micros(time.Now()))
			if got, want := y.header.now(&y.header.mean, at), x[i].header.now(&x[i].header.mean, then); got < want*.99 || got > want*1.01 {
				t.Errorf("%s had a mean of %v to the head, and has %v", y.ID, want, got)
			}
		}
		if s := b.Backends()[0].Terms(); s.Cap != 17 || s.CapSource != CapLearned {
			t.Errorf("the cap is %+v", s)
		}
		if b.Backends()[2].Standing().State != Unhealthy || len(b.Looks(b.Backends()[2])) != 2 || b.mean.Load() != int64(40*time.Second) {
			t.Errorf("it is %+v after %v, streams take %v", b.Backends()[2].Standing(), b.Looks(b.Backends()[2]), time.Duration(b.mean.Load()))
		}
		if spread := b.Backends()[0].Speed() / b.Backends()[1].Speed(); spread == 1 {
			t.Error("all speeds are alike: nothing was tested")
		}
		<-time.After(100 * time.Millisecond)
		b.Sample(time.Now())
		if got, want := b.Backends()[0].Speed(), x[0].Speed(); got < want*.9 || got > want*1.1 {
			t.Errorf("after a sample it has %v, and had %v", got, want)
		}
	})
}

func remembering(t *testing.T) *Pool {
	p := pool(t, 4, ejecting(3, 50), nil)
	rules := p.now.Load().rules
	rules.Health = DefaultHealth()
	rules.Health.Fall = 2
	rules.Placement.SlowStart = time.Minute
	var configs []Config
	for _, b := range p.Backends() {
		configs = append(configs, Config{ID: b.ID, URL: b.URL, Weight: 1})
	}
	if err := p.Update(configs, rules, time.Now()); err != nil {
		t.Fatal(err)
	}
	return p
}

// What the configuration says by now counts.
func TestRememberWhatIsConfigured(t *testing.T) {
	a := pool(t, 3, ejecting(1, 100), nil)
	a.Eject(a.Backends()[0], time.Now(), time.Hour)
	a.Eject(a.Backends()[1], time.Now(), time.Hour)
	a.Looked(a.Backends()[2], Look{At: time.Now(), Finding: LookFail})
	all, mean := handed(t, a)
	all[1].URL = "http://127.0.0.1:1"
	all[2].ID = "another"
	all = append(all, Memory{}, Memory{ID: "b2", URL: a.Backends()[2].URL, Failures: -1})
	b := pool(t, 3, ejecting(1, 100), nil)
	if n := b.Remember(all, mean, time.Now()); n != 1 || out(b) != 1 || b.Backends()[0].Standing().State != Ejected {
		t.Errorf("%d are known, %d are out", n, out(b))
	}
}

// The form is of version 1 for good: what another version of the program has sent, and
// this one reads, is in the file. Every field is there.
func TestMemoryForm(t *testing.T) {
	text, err := os.ReadFile("testdata/memory.json")
	if err != nil {
		t.Fatal(err)
	}
	var m Memory
	in := json.NewDecoder(strings.NewReader(string(text)))
	in.DisallowUnknownFields()
	if err := in.Decode(&m); err != nil {
		t.Fatal(err)
	}
	missing(t, "", reflect.ValueOf(m))
	again, err := json.MarshalIndent(m, "", "\t")
	if err != nil || string(again)+"\n" != string(text) {
		t.Errorf("%v; written again it is\n%s", err, again)
	}
}

func missing(t *testing.T, name string, v reflect.Value) {
	switch {
	case v.IsZero():
		t.Errorf("%s is not in the file", name)
	case v.Kind() == reflect.Pointer:
		missing(t, name, v.Elem())
	case v.Kind() == reflect.Slice:
		missing(t, name, v.Index(0))
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			missing(t, name+"."+v.Type().Field(i).Name, v.Field(i))
		}
	}
}

// FuzzRemember: whatever another process says of backends, a pool goes on.
func FuzzRemember(f *testing.F) {
	text, err := os.ReadFile("testdata/memory.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(text))
	f.Add([]byte(`{"id":"b0","url":"http://127.0.0.1:9000","tokens":{"amount":1e300,"time":1e-300},"answers":{"things":1e300},"header":9223372036854775807,"out":{"times":9999999999,"on":true}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var m Memory
		if json.Unmarshal(text, &m) != nil {
			return
		}
		p := pool(t, 2, ejecting(3, 50), nil)
		m.ID, m.URL = p.Backends()[0].ID, p.Backends()[0].URL
		p.Remember([]Memory{m}, time.Second, time.Now())
		for i := range 3 {
			now := time.Now().Add(time.Duration(i) * time.Second)
			p.Sample(now)
			if s := p.Backends()[0].Speed(); !(s > 0 && s <= fastest) {
				t.Fatalf("speed %v", s)
			}
			if l, err := p.Pick(now, Ask{}); err == nil {
				l.Release(now)
			}
		}
		if _, err := json.Marshal(p.Backends()[0].memory(time.Now())); err != nil {
			t.Fatal(err)
		}
	})
}

// Where the machine's clock was set back, nothing lasts longer than it was to.
func TestRememberTheFuture(t *testing.T) {
	now := time.Now()
	later := now.Add(24 * time.Hour)
	p := pool(t, 2, ejecting(3, 50), nil)
	x, y := p.Backends()[0], p.Backends()[1]
	p.Drain(y, now, now.Add(time.Hour))
	p.Remember([]Memory{
		{
			ID: x.ID, URL: x.URL, State: Ejected, Since: later, Heard: later.UnixNano(), Phantoms: []int64{later.UnixNano()}, Headed: later,
			Out: &Out{On: true, Reason: "r", Until: later.Add(time.Minute), Length: time.Minute, Times: 1, Back: later},
		},
		{ID: y.ID, URL: y.URL, State: Draining, Since: later, Drain: &Leaving{Began: later, Until: later.Add(time.Minute)}},
	}, 0, now)
	if s := x.Standing(); s.State != Ejected || s.Until.After(now.Add(time.Minute)) || s.Since.After(now) || x.Heard() > now.UnixNano() || x.condition.out.back.After(now) {
		t.Errorf("it is %+v, heard at %d", s, x.Heard())
	}
	if n := x.Phantoms(now.Add(longestPhantom + time.Second)); n != 0 || x.header.at.Load() > int64(p.micros(now)) {
		t.Errorf("%v failures still count", n)
	}
	if s := y.Standing(); s.State != Draining || s.Until.After(now.Add(time.Minute)) || y.condition.drain.began.After(now) {
		t.Errorf("it is %+v", s)
	}
}

// What operators have agreed on, and what an operator took back at this node since, is
// found by the next process in this order: the latter holds.
func TestRememberAnAdmission(t *testing.T) {
	a, b := pool(t, 2, ejecting(3, 50), nil), pool(t, 2, ejecting(3, 50), nil)
	for _, p := range []*Pool{a, b} {
		p.Eject(p.Backends()[0], time.Now(), time.Hour) // as agreed
	}
	a.Admit(a.Backends()[0], time.Now()) // here alone
	all, mean := handed(t, a)
	b.Remember(all, mean, time.Now())
	if s := b.Backends()[0].Standing(); s.State != Active {
		t.Errorf("it was let in, and is %+v", s)
	}
}
