package llm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func newBatch(active, queue int) *batch {
	return &batch{prefill: 8000, decode: 50, knee: 32, maxActive: active, maxQueue: queue, factor: 1, warm: newSessions(8)}
}

func jobOf(prompt, want int) *job { return newJob(&request{prompt: prompt, want: want}) }

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9*math.Max(1, math.Abs(b)) }

func TestRateIsTheFormula(t *testing.T) {
	for _, c := range []int{1, 8, 32, 64} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			b := newBatch(64, 0)
			jobs := make([]*job, c)
			for i := range jobs {
				jobs[i] = jobOf(800, 100)
				if !b.add(jobs[i]) {
					t.Fatalf("stream %d was refused", i)
				}
			}
			slower := 1 + float64(c-1)/32
			if got, want := b.due(), (0.1+0.02)*slower; !near(got, want) {
				t.Errorf("first token at %v s, want %v", got, want)
			}
			end := (0.1 + 100*0.02) * slower
			b.advance(end - 1e-6)
			if got := jobs[0].made.Load(); got != 99 {
				t.Errorf("%d tokens just before the end, want 99", got)
			}
			b.advance(end + 1e-6)
			for i, j := range jobs {
				if j.made.Load() != 100 {
					t.Errorf("stream %d has %d tokens at the end, want 100", i, j.made.Load())
				}
			}
			if len(b.active) != 0 || b.held != 0 {
				t.Errorf("%d streams and %d tokens left", len(b.active), b.held)
			}
		})
	}
}

// One of two streams ends midway: the other one's speed changes at that very
// moment, however late anybody looks.
func TestLatenessChangesNothing(t *testing.T) {
	b := newBatch(64, 0)
	short, long := jobOf(8000, 50), jobOf(8000, 100)
	b.add(short)
	b.add(long)
	// Two seconds of work each at 32/33, then one alone.
	end := 2*33/32.0 + 1
	b.advance(end - 1e-6)
	if short.made.Load() != 50 || long.made.Load() != 99 {
		t.Fatalf("made %d and %d, want 50 and 99", short.made.Load(), long.made.Load())
	}
	b.advance(end + 1e-6)
	if long.made.Load() != 100 {
		t.Fatalf("made %d, want 100", long.made.Load())
	}
}

// The same arrivals, cancels and faults, one batch looked at seldom and one at
// random moments in between: both must have made the same tokens.
func TestHowOftenAdvanceRunsDoesNotMatter(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	seldom, often := newBatch(6, 4), newBatch(6, 4)
	var a, b []*job
	now := 0.0
	for range 2000 {
		next := now + rng.ExpFloat64()*0.3
		for at := now; at < next; at += rng.ExpFloat64() * 0.02 {
			often.advance(at)
		}
		now = next
		seldom.advance(now)
		often.advance(now)
		switch rng.IntN(4) {
		case 0, 1:
			prompt, want := 1+rng.IntN(4000), 1+rng.IntN(60)
			a, b = append(a, jobOf(prompt, want)), append(b, jobOf(prompt, want))
			if seldom.add(a[len(a)-1]) != often.add(b[len(b)-1]) {
				t.Fatalf("at %v s: one took stream %d, the other refused it", now, len(a))
			}
		case 2:
			if len(a) > 0 {
				i := rng.IntN(len(a))
				seldom.remove(a[i])
				often.remove(b[i])
			}
		case 3:
			f := []float64{1, 1, 0.1, 0}[rng.IntN(4)]
			seldom.factor, often.factor = f, f
		}
		for i := range a {
			if a[i].made.Load() != b[i].made.Load() || a[i].pos >= 0 != (b[i].pos >= 0) {
				t.Fatalf("at %v s: stream %d has %d tokens, or %d looked at often", now, i, a[i].made.Load(), b[i].made.Load())
			}
		}
		if len(seldom.active) > 6 || len(seldom.queue) > 4 || seldom.generated != often.generated {
			t.Fatalf("at %v s: %d active, %d waiting, %d and %d tokens", now, len(seldom.active), len(seldom.queue), seldom.generated, often.generated)
		}
	}
	if seldom.generated < 1000 {
		t.Fatalf("only %d tokens were made: the test tests little", seldom.generated)
	}
}

func TestQueueIsInOrderAndBounded(t *testing.T) {
	b := newBatch(1, 2)
	jobs := []*job{jobOf(80, 10), jobOf(80, 10), jobOf(80, 10), jobOf(80, 10)}
	for i, j := range jobs {
		if got, want := b.add(j), i < 3; got != want {
			t.Fatalf("stream %d: taken %v, want %v", i, got, want)
		}
	}
	b.remove(jobs[1])
	b.remove(jobs[1]) // again is nothing
	b.remove(jobs[3]) // never was in
	if len(b.queue) != 1 {
		t.Fatalf("%d wait, want 1", len(b.queue))
	}
	b.remove(jobs[0]) // its client left: the next one starts now
	b.advance(0.01 + 0.02 + 1e-6)
	if jobs[2].made.Load() != 1 || len(b.queue) != 0 {
		t.Fatalf("the waiting stream has %d tokens, %d wait; want 1 and 0", jobs[2].made.Load(), len(b.queue))
	}
}

func TestFactor(t *testing.T) {
	b := newBatch(64, 0)
	j := jobOf(8000, 100)
	b.add(j)
	b.advance(1.5) // 25 tokens
	b.factor = 0
	if !math.IsInf(b.due(), 1) {
		t.Fatalf("frozen, but due at %v", b.due())
	}
	b.advance(100)
	b.factor = 0.1
	b.advance(105 + 1e-6) // half a second's work
	if got := j.made.Load(); got != 50 {
		t.Fatalf("%d tokens, want 50", got)
	}
}

func TestWarmSessions(t *testing.T) {
	b := newBatch(64, 0)
	now := 0.0
	turn := func(session string, prompt, want int) float64 {
		j := newJob(&request{session: session, prompt: prompt, want: want})
		b.add(j)
		first := b.due() - now
		now += 1000
		b.advance(now)
		return first
	}
	for _, step := range []struct {
		session string
		prompt  int
		charged int
	}{
		{"a", 8000, 8000},
		{"a", 8100, 50},   // 50 of its 100 new tokens are the last answer
		{"b", 8100, 8100}, // another session
		{"a", 100, 1},     // never less than one
		{"", 8000, 8000},
		{"", 8000, 8000}, // no session is never warm
	} {
		if got, want := turn(step.session, step.prompt, 50), float64(step.charged)/8000+0.02; !near(got, want) {
			t.Errorf("session %q, %d tokens: first token after %v s, want %v", step.session, step.prompt, got, want)
		}
	}
	if b.hit != 8050+99 {
		t.Errorf("%d tokens came from the cache, want %d", b.hit, 8050+99)
	}
	for i := range 8 {
		turn(fmt.Sprint(i), 10, 1)
	}
	if b.warm.tokens("a") != 0 || b.warm.order.Len() != 8 || len(b.warm.byKey) != 8 {
		t.Errorf("a has %d tokens and %d sessions are kept; want it forgotten and 8", b.warm.tokens("a"), b.warm.order.Len())
	}
}

func TestCancelledTurnLeavesWhatItHad(t *testing.T) {
	b := newBatch(64, 0)
	cut := newJob(&request{session: "cut", prompt: 8000, want: 100})
	early := newJob(&request{session: "early", prompt: 80_000, want: 100})
	b.add(cut)
	b.add(early)
	b.advance(1.5)
	b.remove(cut)
	b.remove(early)
	if got, want := b.warm.tokens("cut"), 8000+int(cut.made.Load()); got != want || got == 8000 {
		t.Errorf("%d tokens are warm, want %d", got, want)
	}
	if got := b.warm.tokens("early"); got != 0 {
		t.Errorf("%d tokens are warm of a prompt that was not through", got)
	}
}
