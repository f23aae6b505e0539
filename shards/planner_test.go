package shards

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
)

// stage is a pool whose every session has one stream all the time, and the planners
// of all its shards.
type stage struct {
	now       time.Duration
	knee      float64
	speed     map[string]float64
	where     map[Key]string
	epoch     map[Key]Epoch
	moves     map[Key][]time.Duration
	busy      func(Key) bool
	requests  uint64
	elsewhere float64 // requests a second
	panics    bool
	stale     bool
	planners  []*Planner
	config    backend.RebalanceConfig
	lasts     time.Duration // a stream: so long after it was planned, a move comes true
	later     []later
}

// later is a move that was planned.
type later struct {
	at time.Duration
	to Target
}

// newStage has sessions by backend.
func newStage(c backend.RebalanceConfig, shards int, knee float64, sessions map[string]int) *stage {
	s := &stage{
		knee: knee, config: c, speed: make(map[string]float64), where: make(map[Key]string), epoch: make(map[Key]Epoch),
		moves: make(map[Key][]time.Duration), busy: func(Key) bool { return false },
	}
	all := keys(10000)
	for id, n := range sessions {
		s.speed[id] = 1
		for _, k := range all[:n] {
			s.where[k], s.epoch[k] = id, 1
		}
		all = all[n:]
	}
	for i := range shards {
		s.planners = append(s.planners, NewPlanner(c, i+1, shards))
	}
	return s
}

func (s *stage) loads() (all []Load) {
	for id, speed := range s.speed {
		l := Load{ID: id, Speed: speed, Takes: true}
		for _, at := range s.where {
			if at == id {
				l.Streams++
			}
		}
		all = append(all, l)
	}
	return all
}

func (s *stage) cv() float64 { return variation(s.loads(), s.knee) }

// interval has every planner plan, and every move come true.
func (s *stage) interval(t *testing.T) (said []Decision) {
	t.Helper()
	s.now += s.config.Interval
	s.later = slices.DeleteFunc(s.later, func(l later) bool {
		if l.at <= s.now {
			s.move(l.to)
		}
		return l.at <= s.now
	})
	loads := s.loads()
	for i, p := range s.planners {
		v := View{
			Now: s.now, Knee: s.knee, Backends: loads, Panic: s.panics, Stale: s.stale, Requests: s.requests, Elsewhere: s.elsewhere, Pending: len(s.later),
			Sessions: func(id string) (all []Candidate) {
				for k, at := range s.where {
					if at == id && int(k.Shard(len(s.planners))) == i+1 {
						all = append(all, Candidate{Session: k, Epoch: s.epoch[k], Busy: s.busy(k), Idle: time.Duration(k[15]) * time.Second})
					}
				}
				return all
			},
		}
		moves, d := p.Plan(v)
		if len(moves) != d.Moves || (d.Moves > 0) != (d.Reason == MovedSome) || d.String() == "" {
			t.Fatalf("%d moves, and it says %v", len(moves), d)
		}
		for _, m := range moves {
			if s.epoch[m.Session] != m.Seen || s.where[m.Session] == m.Backend || s.speed[m.Backend] == 0 {
				t.Fatalf("it plans %+v for a session on %s at epoch %d", m, s.where[m.Session], s.epoch[m.Session])
			}
			if s.lasts > 0 {
				s.later = append(s.later, later{s.now + s.lasts, m})
				continue
			}
			s.move(m)
		}
		said = append(said, d)
	}
	return said
}

func (s *stage) move(to Target) {
	s.where[to.Session] = to.Backend
	s.epoch[to.Session]++
	s.moves[to.Session] = append(s.moves[to.Session], s.now)
}

func (s *stage) moved() (n int) {
	for _, at := range s.moves {
		n += len(at)
	}
	return n
}

func tenAndTwo(minResidence time.Duration) *stage {
	c := backend.DefaultRebalance()
	c.MinResidence = minResidence
	return newStage(c, 1, 1, map[string]int{"b1": 10, "b2": 2})
}

// TestTenAndTwo is the issue's: the imbalance is seen, sessions move a few at a
// time, all remain, and it ends where it is even enough.
func TestTenAndTwo(t *testing.T) {
	s := tenAndTwo(0)
	before := s.cv()
	if d := s.interval(t)[0]; d.Reason != RestOnce || d.CV != before || d.Excess != 4 {
		t.Errorf("the first interval says %v, excess %v", d, d.Excess)
	}
	for range 20 {
		if d := s.interval(t)[0]; d.Moves > 1 {
			t.Errorf("a fifth of 4 is %d sessions", d.Moves)
		}
	}
	if got := s.cv(); got > 0.3 || got >= before || len(s.where) != 12 || s.moved() < 2 || s.moved() > 4 {
		t.Errorf("step time cv went from %.2f to %.2f; %d sessions, %d moves", before, got, len(s.where), s.moved())
	}
	if d := s.interval(t)[0]; d.Reason != RestEven {
		t.Errorf("at the end it says %v", d)
	}
}

// TestBrakes: each by itself stops the planning, and after it two intervals must be
// uneven again.
func TestBrakes(t *testing.T) {
	for name, brake := range map[string]func(s *stage, on bool){
		"panic": func(s *stage, on bool) { s.panics = on },
		"stale": func(s *stage, on bool) { s.stale = on },
		"off": func(s *stage, on bool) {
			c := s.config
			c.Enabled = !on
			s.planners[0].Configure(c)
		},
		"spike": func(s *stage, on bool) {
			if on {
				s.requests += 500
			}
		},
		"spike, by other nodes": func(s *stage, on bool) {
			if s.elsewhere = 0; on {
				s.elsewhere = 100
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			said, _, _ := strings.Cut(name, ",")
			s := tenAndTwo(0)
			next := func() Reason {
				s.requests += 50
				return s.interval(t)[0].Reason
			}
			for range 3 {
				next()
			}
			was := s.moved()
			for range 3 {
				brake(s, true)
				if got := next(); got != Reason(said) {
					t.Errorf("it says %q", got)
				}
			}
			brake(s, false)
			if got := next(); got != RestOnce || was == 0 || s.moved() != was {
				t.Errorf("then it says %q; %d moves before, %d after", got, was, s.moved())
			}
			if next(); s.moved() == was {
				t.Error("it never went on")
			}
		})
	}
}

// spike says whether the planner takes the interval that ends for one.
func spike(p *Planner, v View) bool {
	pace, limit := p.measure(v)
	return limit > 0 && pace > limit
}

// TestFewRequestsAreNoSpike: at one in four seconds, chance alone doubles the count
// of an interval now and then.
func TestFewRequestsAreNoSpike(t *testing.T) {
	p := NewPlanner(backend.DefaultRebalance(), 1, 1)
	r := rand.New(rand.NewPCG(1, 1))
	spikes, n := 0, uint64(0)
	for i := range 2000 {
		for range 50 {
			if r.Float64() < 0.025 {
				n++
			}
		}
		if spike(p, View{Now: time.Duration(i) * 5 * time.Second, Requests: n}) {
			spikes++
		}
	}
	if spikes > 4 {
		t.Errorf("%d spikes in 2000 intervals", spikes)
	}
	if !spike(p, View{Now: 10000 * time.Second, Requests: n + 40}) {
		t.Error("forty in one interval are none")
	}
	p.config.MaxRate = 10
	for requests, want := range map[uint64]bool{40: false, 120: true} {
		q := *p
		if spike(&q, View{Now: 10005 * time.Second, Requests: n + 40 + requests}) != want {
			t.Errorf("%d requests in 5 s, at most 10 a second: %v", requests, !want)
		}
	}
	if p.config.MaxRate = 0; spike(p, View{Now: 10005 * time.Second, Requests: n + 1e6}) {
		t.Error("it should not matter")
	}
}

// TestSpikeElsewhere: requests count wherever they come in. Half of the usual ones by
// this node and half by others are no spike, and nor are all by one of the two; three
// times as many are, by others alone too. While the others are not heard there is none,
// nor is there one as soon as they are.
func TestSpikeElsewhere(t *testing.T) {
	p := NewPlanner(backend.DefaultRebalance(), 1, 1)
	now, n := time.Duration(0), uint64(0)
	look := func(own uint64, elsewhere float64, stale bool) bool {
		now, n = now+5*time.Second, n+own
		return spike(p, View{Now: now, Requests: n, Elsewhere: elsewhere, Stale: stale})
	}
	for range 30 {
		if look(100, 20, false) {
			t.Fatal("what is usual is a spike")
		}
	}
	for _, tt := range []struct {
		own       uint64
		elsewhere float64
		want      bool
	}{{200, 0, false}, {0, 40, false}, {100, 100, true}, {0, 120, true}, {600, 0, true}, {100, 20, false}} {
		if got := look(tt.own, tt.elsewhere, false); got != tt.want {
			t.Errorf("%d here and %v/s elsewhere: spike %v", tt.own, tt.elsewhere, got)
		}
	}
	for range 60 {
		if look(100, 0, true) {
			t.Fatal("a spike of what is not heard")
		}
	}
	if look(100, 20, false) {
		t.Error("what was not heard for five minutes is a spike when it is")
	}
	if look(1, 0, false); p.pace.mean < 30 {
		t.Errorf("the mean is %v", p.pace.mean)
	}
	quiet := NewPlanner(backend.DefaultRebalance(), 1, 1)
	for i := range 20 {
		spike(quiet, View{Now: time.Duration(i) * 5 * time.Second})
	}
	if spike(quiet, View{Now: 100 * time.Second, Requests: 1}) || !spike(quiet, View{Now: 105 * time.Second, Requests: 3}) {
		t.Error("one request after a silence is a spike, or two are none")
	}
}

// TestLongStreamsDoNotPileUpMoves: a move comes true when its session's stream has
// ended, long after the next intervals; what was planned by then is not planned
// again.
func TestLongStreamsDoNotPileUpMoves(t *testing.T) {
	s := newStage(backend.DefaultRebalance(), 1, 1, map[string]int{"b1": 100, "b2": 20})
	s.lasts = 2 * time.Minute
	for range 100 {
		s.interval(t)
	}
	if n, b2 := s.moved(), s.loads(); n < 15 || n > 40 {
		t.Errorf("%d moves for 40 streams too many; at the end %+v", n, b2)
	}
	if got := s.cv(); got > 0.3 {
		t.Errorf("step time cv %.2f", got)
	}
}

// TestASessionStaysAfterAMove for its residence, whatever goes on.
func TestASessionStaysAfterAMove(t *testing.T) {
	s := tenAndTwo(time.Minute)
	for i := range 200 {
		if i%10 == 9 { // the other one becomes the slow one
			s.speed["b1"], s.speed["b2"] = 0.2+1.8*float64(i/10%2), 2-1.8*float64(i/10%2)
		}
		s.interval(t)
	}
	twice := 0
	for k, at := range s.moves {
		for i := range at[1:] {
			twice++
			if d := at[i+1] - at[i]; d < time.Minute {
				t.Errorf("%v moved again after %v", k, d)
			}
		}
	}
	if twice == 0 {
		t.Error("no session moved twice: nothing was tested")
	}
}

// TestShardsMoveTheirPart: sixteen leaders who see the same move together about a
// fifth of the excess.
func TestShardsMoveTheirPart(t *testing.T) {
	c := backend.DefaultRebalance()
	s := newStage(c, 16, 8, map[string]int{"b1": 700, "b2": 100, "b3": 100, "b4": 100})
	s.interval(t)
	whole := excess(s.loads(), s.knee) // 450
	s.interval(t)
	if got := float64(s.moved()); got < 0.15*whole || got > 0.25*whole {
		t.Errorf("%v sessions of %v too many moved at once", got, whole)
	}
	for range 40 {
		s.interval(t)
	}
	if got := s.cv(); got > 0.3 {
		t.Errorf("after 40 intervals the step time cv is %.2f", got)
	}
	few := newStage(c, 16, 1, map[string]int{"b1": 20, "b2": 4}) // a part of a session each
	at := 0
	for at = range 60 {
		few.interval(t)
		if n := few.moved(); n > 2*(at+1) {
			t.Fatalf("%d moves after %d intervals: the shards move as one", n, at+1)
		}
		if few.cv() <= 0.3 {
			break
		}
	}
	if got := few.cv(); got > 0.3 {
		t.Errorf("after %d intervals the step time cv of few sessions is %.2f", at+1, got)
	}
}

// TestGroups: a large pool's backends are parted among the shards, all of them, and
// moves stay inside.
func TestGroups(t *testing.T) {
	var all []Load
	for i := range 1000 {
		all = append(all, Load{ID: fmt.Sprint("b", i), Speed: 1, Takes: true})
	}
	seen, part := make(map[string]int), 0.0
	for shard := 1; shard <= 16; shard++ {
		loads, p := NewPlanner(backend.DefaultRebalance(), shard, 16).own(all)
		if len(loads) < groupLeast || len(loads) > 2*groupLeast {
			t.Errorf("shard %d sees %d backends", shard, len(loads))
		}
		for _, l := range loads {
			seen[l.ID]++
		}
		part += p * float64(len(loads))
	}
	if len(seen) != 1000 || part < 999 || part > 1001 {
		t.Errorf("%d of 1000 backends are seen, and %v is corrected", len(seen), part)
	}
	few, p := NewPlanner(backend.DefaultRebalance(), 3, 16).own(all[:100])
	if len(few) != 100 || p != 1.0/16 {
		t.Errorf("of 100 it sees %d, and corrects %v", len(few), p)
	}
	all[5].Takes, all[6].Speed = false, 0
	if few, _ := NewPlanner(backend.DefaultRebalance(), 3, 16).own(all[:100]); len(few) != 98 {
		t.Errorf("of 98 that count it sees %d", len(few))
	}
}

// TestIdleSessionsFirst, and of these who was used last; a full backend takes none.
func TestIdleSessionsFirst(t *testing.T) {
	c := backend.DefaultRebalance()
	c.Share = 1
	p := NewPlanner(c, 1, 1)
	crowd := []Candidate{{Key{1}, 3, true, 0, false}, {Key{2}, 4, false, time.Hour, false}, {Key{3}, 5, false, time.Second, false}, {Key{4}, 6, true, 0, false}}
	v := View{
		Knee: 1, Sessions: func(string) []Candidate { return crowd },
		Backends: []Load{{"b1", 20, 1, 0, true}, {"b2", 0, 1, 2, true}, {"b3", 0, 1, 1, true}, {"b4", 0, 9, 0, false}},
	}
	p.Plan(v)
	v.Now = c.Interval
	moves, d := p.Plan(v)
	if len(moves) != 3 || moves[0] != (Target{Key{3}, 5, "b2"}) || moves[1] != (Target{Key{2}, 4, "b3"}) || moves[2] != (Target{Key{1}, 3, "b2"}) {
		t.Errorf("%v: %+v", d, moves)
	}
	v.Now += c.Interval
	if moves, d := p.Plan(v); len(moves) != 1 || moves[0].Session != (Key{4}) {
		t.Errorf("then %v: %+v", d, moves)
	}
	v.Now += c.Interval
	if _, d := p.Plan(v); d.Reason != RestNobody {
		t.Errorf("when all have moved: %v", d)
	}
}

// TestClientsWithoutCookies: of a thousand sessions that had a single turn, the last a
// moment ago, none is moved while there is one that talks; nor when they are silent.
func TestClientsWithoutCookies(t *testing.T) {
	c := backend.DefaultRebalance()
	c.Share = 1
	p := NewPlanner(c, 1, 1)
	var crowd []Candidate
	for i := range 10 {
		crowd = append(crowd, Candidate{Session: Key{1, byte(i)}, Epoch: 1, Busy: i%2 > 0, Idle: 10 * time.Second})
	}
	for i := range 1000 {
		crowd = append(crowd, Candidate{Session: Key{2, byte(i >> 8), byte(i)}, Epoch: 1, New: true, Idle: time.Duration(i) * 200 * time.Millisecond})
	}
	v := View{
		Knee: 1, Report: time.Minute, Sessions: func(string) []Candidate { return crowd },
		Backends: []Load{{"b1", 17, 1, 0, true}, {"b2", 0, 1, 0, true}},
	}
	p.Plan(v)
	v.Now = c.Interval
	moves, d := p.Plan(v)
	if len(moves) != 8 || slices.ContainsFunc(moves, func(m Target) bool { return m.Session[0] != 1 }) {
		t.Errorf("%v: %+v", d, moves)
	}
	crowd = crowd[10:]
	v.Backends[0].Streams, v.Backends[1].Streams = 9000, 0
	v.Now += c.Interval
	silent := 0
	for range 6 { // 256 at a time
		moves, _ = p.Plan(v)
		silent += len(moves)
		v.Now += c.Interval
	}
	if silent != 601 { // of the last two reports
		t.Errorf("%d of the 1000 were moved", silent)
	}
}

// TestNoMoveMakesItWorse, with any speeds, loads and settings: the longest step of
// all never grows.
func TestNoMoveMakesItWorse(t *testing.T) {
	moved := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 9))
		c := backend.DefaultRebalance()
		c.Threshold, c.Share, c.MinResidence = 0.05, 0.1+0.9*r.Float64(), 0
		n := make(map[string]int)
		for i := range 2 + r.IntN(6) {
			n[fmt.Sprint("b", i)] = r.IntN(60)
		}
		s := newStage(c, 1, float64(1+r.IntN(32)), n)
		for id := range s.speed {
			s.speed[id] = 0.25 * float64(1+r.IntN(12))
		}
		longest := func() (worst float64) {
			for _, l := range s.loads() {
				if l.Streams > 0 {
					worst = max(worst, l.step(s.knee, 0))
				}
			}
			return worst
		}
		was := longest()
		for range 30 {
			s.interval(t)
			now := longest()
			if now > was+1e-9 {
				t.Fatalf("seed %d: the longest step went from %v to %v", seed, was, now)
			}
			was = now
		}
		moved += s.moved()
	}
	if moved < 200 {
		t.Errorf("%d moves in all: nothing was tested", moved)
	}
}

func TestRebalanceConfig(t *testing.T) {
	faults := 0
	count := func(string, string, ...any) { faults++ }
	if backend.DefaultRebalance().Validate(count); faults != 0 {
		t.Error("the defaults are refused")
	}
	backend.RebalanceConfig{Threshold: 11, Share: 2, MinResidence: -1}.Validate(count)
	if faults != 4 {
		t.Errorf("%d of 4 faults were found", faults)
	}
}
