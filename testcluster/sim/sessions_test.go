package sim

import (
	"reflect"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/shards"
)

// chatter is small with sessions.
func chatter(moves *backend.RebalanceConfig) Cell {
	c := small()
	c.Load.Requests = 6000
	c.Sessions = &Sessions{Turns: 5, Think: 4 * time.Second, Shards: 4, Moves: moves}
	return c
}

// eager moves whatever it can.
func eager() *backend.RebalanceConfig {
	c := backend.DefaultRebalance()
	c.Threshold, c.Share, c.MinResidence, c.Interval = 0.01, 1, 0, time.Second
	return &c
}

// TestSessionsStay where their first turn went, unless they are moved; then every
// turn goes where the binding says, and a change of server costs the context.
func TestSessionsStay(t *testing.T) {
	for name, moves := range map[string]*backend.RebalanceConfig{"unmoved": nil, "moved": eager()} {
		c := chatter(moves)
		r := newRun(&c)
		where, epochs, changed := make(map[*session]int), make(map[*session]shards.Epoch), 0
		for step := 0; r.open > 0 || r.next < len(r.jobs) || r.talks.more(); step++ {
			source, now := r.events.first()
			r.step(source, now)
			if step%50 != 0 {
				continue
			}
			for _, s := range r.talks.all {
				if s.cached < 0 {
					continue
				}
				if was, known := where[s]; known && was != s.cached {
					changed++
					if s.epoch < 2 {
						t.Fatalf("%s: a session went from %d to %d at epoch %d", name, was, s.cached, s.epoch)
					}
				}
				if s.epoch < epochs[s] {
					t.Fatalf("%s: an epoch fell", name)
				}
				where[s], epochs[s] = s.cached, s.epoch
			}
		}
		if turns := len(r.talks.all) * 5; r.tally.requests == 0 || len(where) < len(r.talks.all)*9/10 {
			t.Errorf("%s: %d turns, %d measured; %d of %d sessions had an answer", name, turns, r.tally.requests, len(where), len(r.talks.all))
		}
		if (changed > 0) != (moves != nil) || (r.tally.moves > 0) != (moves != nil) {
			t.Errorf("%s: %d sessions changed their server, %d moves are counted", name, changed, r.tally.moves)
		}
		if f := r.placer.(*fleet); f.heard[0].inFlight != 0 {
			t.Errorf("%s: at the end %d streams are left", name, f.heard[0].inFlight)
		}
	}
}

// TestALostContextIsReadAgain: it is the server's work, and no part of what the
// turn is judged by.
func TestALostContextIsReadAgain(t *testing.T) {
	s := &session{context: 8000, cached: 2}
	q := &request{job: Job{Prompt: 800, Output: 50}, session: s}
	if s.lost(2) != 0 || s.lost(1) != 8000 {
		t.Error("a context is lost where it is, or not where it is not")
	}
	q.lost = s.lost(1)
	if q.prefill() != 1.1 || q.work() != 2.1 || q.job.Work() != 1.1 {
		t.Errorf("prefill %v, work %v, alone %v", q.prefill(), q.work(), q.job.Work())
	}
}

func TestSameSeedSameSessions(t *testing.T) {
	if c := chatter(eager()); !reflect.DeepEqual(Run(c), Run(c)) {
		t.Error("two runs of one seed differ")
	}
}

// TestSessionsAtRest: with the planner and heavy turns as they are by default, unlike
// engines make next to nothing move.
func TestSessionsAtRest(t *testing.T) {
	moves := backend.DefaultRebalance()
	c := Talking(&moves)
	c.Sessions.Heavy = true
	c.Proxies, c.Engines, c.Load.Requests = 4, Fleet(16, Batching, 1, 1, 2, 0.5), 25_000
	if f := Run(c); f.Moves > MovesMost || f.Requests < 15_000 {
		t.Errorf("%.3f moves per 100 of %d turns, want at most %v", f.Moves, f.Requests, MovesMost)
	}
}

// TestSessionsWhereEnginesJoin: the new ones get their part although sessions stay,
// by first turns and a few moves, and the slowest turns are no slower for it.
func TestSessionsWhereEnginesJoin(t *testing.T) {
	moves := backend.DefaultRebalance()
	moved := TalkingJoin(&moves, 4, 16)
	moved.Sessions.Heavy = true
	const seeds = 2
	played := Alone([]Cell{moved, TalkingJoin(nil, 4, 16)}, seeds)
	mean := func(all []Figures, of func(Figures) float64) (sum float64) {
		for _, f := range all {
			sum += of(f) / seeds
		}
		return sum
	}
	with, without := played[0], played[1]
	moves100 := mean(with, func(f Figures) float64 { return f.Moves })
	if got := mean(with, Figures.NewShare); got < ShareLess || moves100 == 0 {
		t.Errorf("new engines get %.1f %% of the requests (%.1f %% without moves) by %.2f moves per 100 turns, want %v %%", got, mean(without, Figures.NewShare), moves100, ShareLess)
	}
	p99 := func(f Figures) float64 { return f.Slowdown.P99 }
	if got, was := mean(with, p99), mean(without, p99); got > 1.05*was {
		t.Errorf("slowdown p99 is %.2f, without moves %.2f", got, was)
	}
}

// TestOneEngineMoreMovesNobody: at no load does one that is added to three like ones
// have sessions moved in the next minute, by the planner or by heavy turns.
func TestOneEngineMoreMovesNobody(t *testing.T) {
	moves := backend.DefaultRebalance()
	for _, rho := range []float64{0.5, 0.85} {
		c := TalkingJoin(&moves, 3, 4)
		c.Engines, c.Load.Rho, c.Window, c.Sessions.Heavy = Fleet(4, Batching, 1), rho, time.Minute, true
		c.Load.Requests = c.arrivals(c.Faults[0].From + 70)
		if f := Run(c); f.Moves > 0 || f.Requests < 100 {
			t.Errorf("rho %v: %.2f moves per 100 of %d turns", rho, f.Moves, f.Requests)
		}
	}
}
