package moving_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/testcluster"
	"github.com/starling-lb/starling/testcluster/llm"
)

// scene is sessions at engines of which a quarter is new, as the simulator plays it, so
// many times as fast: ten seconds from an answer to the next turn on average
// and far less for some, answers of four seconds in the median, contexts that grow, and
// an engine that has not the context reads it again.
type scene struct {
	speed    float64
	engines  int // a quarter is new
	sessions int // at any time: another begins where one ends
	turns    int // of each
	knee     int
	warm     time.Duration // before anything counts
	steady   time.Duration // before the new ones are there, of which that is a part
	tune     func(*proxy.PoolConfig)
}

const (
	turnsEach  = 15      // as in the simulator
	endless    = 1 << 20 // of which none ends while it is looked at
	thinkTime  = 10.0    // seconds
	talkMedian = 4.0
	talkSigma  = 1.2
	perToken   = 20 // tokens of the simulator's that one event stands for
	promptEach = 800
)

// run is a scene that is played.
type run struct {
	scene
	*stage
	begun time.Time

	mu    sync.Mutex // guards what follows
	from  time.Time  // when the new ones were there; zero: they are not
	fresh []bool     // of the turns since: they came to a new one
	slow  []float64  // their time over the time alone
	early []float64  // that of the turns before
	wrong []string
}

// play has the sessions talk until what is looked for was seen, with the planner or
// without.
func play(t *testing.T, sc scene, moves bool, seen func(*run)) *run {
	t.Helper()
	engine := llm.Options{Prefill: 8000, Decode: 50.0 / perToken, Speed: sc.speed, Knee: sc.knee, MaxActive: 64}
	s := newStage(t, sc.engines, engine, func(cfg *node.Config, p *proxy.PoolConfig) {
		cfg.Shards.Count = 4
		p.Backends = p.Backends[:sc.engines*3/4]
		p.Placement.Knee = sc.knee
		r := &p.Rebalance
		r.Enabled = moves
		r.Interval, r.MinResidence = max(sc.real(5), 100*time.Millisecond), sc.real(300)
		if sc.tune != nil {
			sc.tune(p)
		}
	})
	r := &run{scene: sc, stage: s, begun: time.Now()}
	ctx, end := context.WithCancel(t.Context())
	var lives sync.WaitGroup
	defer lives.Wait()
	defer end()
	for i := range sc.sessions {
		lives.Go(func() { r.talk(ctx, i) })
	}
	rest(ctx, sc.steady)
	r.join(t)
	seen(r)
	return r
}

// real is how long something takes here that takes so many seconds.
func (sc scene) real(seconds float64) time.Duration {
	return time.Duration(seconds / sc.speed * float64(time.Second))
}

// join has the new engines be part of the pool.
func (r *run) join(t *testing.T) {
	t.Helper()
	for _, b := range r.Backends()[r.engines*3/4:] {
		eventually(t, patience, func() string { // on a busy machine the answer may be late, and the backend there
			err := r.admin(t, 1).Post(t.Context(), map[string]any{"id": b.ID, "url": b.URL(), "weight": 1}, "pools", pool, "backends")
			if err != nil && r.metric(t, 1, "starling_backend_state", fmt.Sprintf("backend=%q", b.ID)) == 0 {
				return err.Error()
			}
			return ""
		})
	}
	for i := range nodes {
		eventually(t, patience, func() string {
			if n := r.metric(t, i, "starling_backend_state", `state="active"`); int(n) != r.engines {
				return fmt.Sprintf("node %d knows of %v backends", i, n)
			}
			return ""
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from = time.Now()
}

// talk is one session after another; the first is somewhere in its life.
func (r *run) talk(ctx context.Context, i int) {
	dice := rand.New(rand.NewPCG(uint64(i), 5))
	for n, first := 0, dice.IntN(r.turns); ctx.Err() == nil; n, first = n+1, 0 {
		think := thinkTime * math.Exp(dice.NormFloat64()-0.5)
		at := dice.IntN(nodes)
		context := 0
		for k := first; k < r.turns; k++ {
			work := min(60, max(0.5, talkMedian*math.Exp(talkSigma*dice.NormFloat64())))
			tokens := max(1, int(work*50/perToken))
			context += promptEach
			r.take(ctx, at+k, fmt.Sprintf("s%d-%d", i, n), context, tokens)
			context += tokens * perToken
			if !rest(ctx, r.real(think*dice.ExpFloat64())) {
				return
			}
		}
	}
}

// take is a turn, and notes what became of it.
func (r *run) take(ctx context.Context, at int, session string, prompt, tokens int) {
	began := time.Now()
	home, err := r.converse(ctx, at%nodes, session, prompt, tokens)
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.wrong = append(r.wrong, fmt.Sprintf("%s: %v", session, err))
	}
	alone := r.real(promptEach/8000.0 + float64(tokens)*perToken/50)
	slow := took.Seconds() / alone.Seconds()
	if r.from.IsZero() || began.Before(r.from) {
		if began.Sub(r.begun) >= r.warm {
			r.early = append(r.early, slow)
		}
		return
	}
	r.fresh = append(r.fresh, slices.ContainsFunc(r.Backends()[r.engines*3/4:], func(b *testcluster.Backend) bool { return b.ID == home }))
	r.slow = append(r.slow, slow)
}

// converse is a turn that has so much of a context.
func (r *run) converse(ctx context.Context, i int, session string, prompt, tokens int) (home string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Node(i).URL()+"/v1/chat/completions", strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Session-ID", session)
	req.Header.Set(llm.PromptTokensHeader, fmt.Sprint(prompt))
	req.Header.Set(llm.OutputTokensHeader, fmt.Sprint(tokens))
	resp, err := r.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && !strings.Contains(string(text), "[DONE]") {
		err = fmt.Errorf("status %d, and the stream ends with %.100s", resp.StatusCode, text[max(0, len(text)-100):])
	}
	return resp.Header.Get("X-Starling-Backend"), err
}

// lately is how much of the last turns came to the new engines, in percent, and how
// many they are.
func (r *run) lately(most int) (percent float64, turns int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.fresh[max(0, len(r.fresh)-most):]
	n := 0
	for _, fresh := range last {
		if fresh {
			n++
		}
	}
	return 100 * float64(n) / float64(max(1, len(last))), len(last)
}

const (
	shareLess = 21  // percent that new engines are to get, where 25 is fair
	shortOf   = 200 // turns of which the short form wants that part
)

// TestNewcomersGetTheirPart: a quarter of the engines is new. They get their part of the
// requests although sessions stay, and no turn is cut. In the short form no session ends
// and none moves for a heavy turn, so that the planner alone can bring it about. In the
// full form it is within what is five minutes there, of all requests, and the slowest
// turns are no slower for it, neither than before nor than without moves; and one that comes to three has nobody moved for a minute, with all as it is by default.
func TestNewcomersGetTheirPart(t *testing.T) {
	t.Parallel()
	if *full {
		t.Run("a quarter is new", wholeNewcomers)
		t.Run("one is added, by default", addedMovesNobody)
		return
	}
	r := play(t, scene{speed: 60, engines: 4, sessions: 40, turns: endless, knee: 1, steady: time.Second, tune: func(p *proxy.PoolConfig) { p.Policy = "least_connections" }}, true, func(r *run) {
		eventually(t, 2*patience, func() string {
			if got, n := r.lately(shortOf); n < shortOf || got < shareLess {
				return fmt.Sprintf("%.1f %% of the last %d turns came to the new engine, want %d of %d", got, n, shareLess, shortOf)
			}
			return ""
		})
	})
	if r.check(t) == 0 {
		t.Error("no session has moved, and a new engine has turns of sessions that were there before it")
	}
}

// wholeNewcomers plays so much of it that one turn in a hundred is some forty, and no
// faster than that a machine of two cores is idle most of the time.
func wholeNewcomers(t *testing.T) {
	sc := scene{speed: 5, engines: 8, sessions: 120, turns: turnsEach, knee: 8, warm: 20 * time.Second, steady: 50 * time.Second}
	var with, without sums
	for round := range 3 {
		for name, all := range map[string]*sums{"moved": &with, "unmoved": &without} {
			t.Run(fmt.Sprintf("%s %d", name, round+1), func(t *testing.T) {
				r := play(t, sc, all == &with, func(*run) { rest(t.Context(), sc.real(300)) })
				r.check(t)
				all.add(r)
				var one sums
				one.add(r)
				t.Log(&one)
			})
		}
	}
	t.Logf("%v; without moves %v", &with, &without)
	if with.share() < shareLess {
		t.Errorf("%.1f %% of the turns came to the new engines, want %d", with.share(), shareLess)
	}
	if is, was := p99(with.slow), p99(with.early); is > was {
		t.Errorf("slowdown p99 is %.2f, and was %.2f before there were new engines", is, was)
	}
	if is, was := p99(with.slow), p99(without.slow); is > p99More*was {
		t.Errorf("slowdown p99 is %.2f, without moves %.2f", is, was)
	}
}

const p99More = 1.15 // of real nodes: what the forty are is chance too

// sums are of several runs.
type sums struct {
	fresh, turns int
	slow, early  []float64
}

func (s *sums) add(r *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, fresh := range r.fresh {
		if s.turns++; fresh {
			s.fresh++
		}
	}
	s.slow, s.early = append(s.slow, r.slow...), append(s.early, r.early...)
}

func (s *sums) share() float64 { return 100 * float64(s.fresh) / float64(max(1, s.turns)) }

func p99(slow []float64) float64 {
	all := slices.Sorted(slices.Values(slow))
	return all[len(all)*99/100]
}

func (s *sums) String() string {
	return fmt.Sprintf("%.1f %% of %d turns came to the new engines, slowdown p99 %.2f, %.2f of %d turns before", s.share(), s.turns, p99(s.slow), p99(s.early), len(s.early))
}

// check has nothing gone wrong, and says how many sessions moved.
func (r *run) check(t *testing.T) float64 {
	t.Helper()
	moves, cut := r.everywhere(t, "starling_moves_total", `result="done"`), r.everywhere(t, "starling_move_cut_streams_total")
	t.Logf("%v sessions moved", moves)
	if len(r.wrong) > 0 || cut > 0 {
		t.Errorf("%v streams were cut; wrong: %q", cut, r.wrong)
	}
	return moves
}
