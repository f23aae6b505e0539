package llm

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// checkRates runs c streams side by side and holds each one's speed, while all
// of them ran, against the formula.
func checkRates(u *user, c, tokens int) {
	u.t.Helper()
	streams := make([]stream, c)
	var all sync.WaitGroup
	for i := range c {
		all.Go(func() { streams[i] = u.stream(u.t.Context(), chat(tokens), PromptTokensHeader, "8") })
	}
	all.Wait()
	var from, to time.Time
	for i, st := range streams {
		if st.err != nil || len(st.at) != tokens {
			u.t.Fatalf("stream %d: %d events, %v", i, len(st.at), st.err)
		}
		if first := st.at[0]; first.After(from) {
			from = first
		}
		if last := st.at[tokens-1]; to.IsZero() || last.Before(to) {
			to = last
		}
	}
	want := 50 / (1 + float64(c-1)/32)
	for i, st := range streams {
		if got := slope(st.at, from, to); got < want*0.95 || got > want*1.05 {
			u.t.Errorf("stream %d of %d: %.2f tokens/s, want %.2f", i, c, got, want)
		}
	}
}

// slope is the events per second in a window by least squares, so that one late
// read at its edge on a busy machine decides nothing.
func slope(at []time.Time, from, to time.Time) float64 {
	var n, st, sk, stt, stk float64
	for k, a := range at {
		if !a.Before(from) && !a.After(to) {
			t, k := a.Sub(from).Seconds(), float64(k)
			n, st, sk, stt, stk = n+1, st+t, sk+k, stt+t*t, stk+t*k
		}
	}
	return (n*stk - st*sk) / (n*stt - st*st)
}

func TestKneeOnTheWire(t *testing.T) {
	for _, c := range []int{1, 8, 32, 64} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			checkRates(serve(t, Options{}), c, int(2.5*50/(1+float64(c-1)/32)))
		})
	}
}

func TestKneeInFakeTime(t *testing.T) {
	for _, c := range []int{1, 8, 32, 64} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkRates(serveIn(t, Options{}), c, 200) })
		})
	}
}

func TestTokensComeOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := serveIn(t, Options{Speed: 10})
		start := time.Now()
		st := u.stream(t.Context(), chat(3000), PromptTokensHeader, "8000")
		if st.err != nil || len(st.events) != 3000 {
			t.Fatalf("%d events, %v", len(st.events), st.err)
		}
		for k, at := range st.at {
			want := 100*time.Millisecond + time.Duration(k+1)*2*time.Millisecond
			if late := at.Sub(start) - want; late < -time.Microsecond || late > time.Microsecond {
				t.Fatalf("token %d at %v, want %v", k, at.Sub(start), want)
			}
		}
	})
}

func TestQueueAndShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := serveIn(t, Options{MaxActive: 1, MaxQueue: 1})
		first, second := make(chan stream, 1), make(chan stream, 1)
		start := time.Now()
		go func() { first <- u.stream(t.Context(), chat(50), PromptTokensHeader, "8000") }()
		synctest.Wait()
		go func() { second <- u.stream(t.Context(), chat(50), PromptTokensHeader, "8000") }()
		synctest.Wait()
		if s := u.Status(); s.Running != 1 || s.Waiting != 1 {
			t.Fatalf("%d run, %d wait; want 1 and 1", s.Running, s.Waiting)
		}
		status, h, raw := u.get("POST", u.URL()+"/v1/completions", `{"prompt":"x"}`)
		if status != 429 || h.Get("Retry-After") == "" {
			t.Fatalf("status %d, Retry-After %q: %s", status, h.Get("Retry-After"), raw)
		}
		wantError(t, raw, "rate_limit_error", "rate_limit_exceeded")
		a, b := <-first, <-second
		if got := a.at[49].Sub(start).Round(time.Millisecond); got != 2*time.Second {
			t.Errorf("the first ended after %v, want 2s", got)
		}
		if got := b.at[0].Sub(start).Round(time.Millisecond); got != 3020*time.Millisecond {
			t.Errorf("the second one's first token came after %v, want 3.02s", got)
		}
		if got := u.turn(1); got.Outcome != Shed || got.Output != 0 || !got.FirstByte.IsZero() {
			t.Errorf("the refused turn: %+v", got)
		}
	})
}

// A wrong placement costs a prefill that the client sees.
func TestWarmTurnIsFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := serveIn(t, Options{ID: "here"}), serveIn(t, Options{ID: "there"})
		ttft := func(u *user) time.Duration {
			start := time.Now()
			st := u.stream(t.Context(), chat(10), PromptTokensHeader, "80000", SessionHeader, "s1")
			if st.err != nil {
				t.Fatal(st.err)
			}
			return st.at[0].Sub(start).Round(time.Millisecond)
		}
		for i, step := range []struct {
			u    *user
			want time.Duration
		}{{here, 10_020 * time.Millisecond}, {here, 20 * time.Millisecond}, {there, 10_020 * time.Millisecond}, {here, 20 * time.Millisecond}} {
			if got := ttft(step.u); got != step.want {
				t.Errorf("turn %d: first token after %v, want %v", i, got, step.want)
			}
		}
		if a, b := here.turn(1), here.turn(2); a.Warm || !b.Warm || b.Cached != 79_999 || b.Session != "s1" || b.Backend != "here" {
			t.Errorf("turns %+v, %+v", a, b)
		}
		here.Forget()
		if got := ttft(here); got != 10_020*time.Millisecond {
			t.Errorf("forgotten, first token after %v", got)
		}
	})
}

func TestSlowAndHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := serveIn(t, Options{})
		set(t, u, Faults{Slow: 10})
		done := make(chan stream, 1)
		start := time.Now()
		go func() { done <- u.stream(t.Context(), chat(20), PromptTokensHeader, "8000") }()
		<-time.After(11 * time.Second) // ten for the prefill, five tokens
		set(t, u, Faults{Hang: true})
		asked := make(chan stream, 1)
		go func() { asked <- u.stream(t.Context(), chat(1)) }()
		for _, path := range []string{"/health", "/healthz", "/v1/models", "/metrics", "/nowhere"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if resp, err := u.ask(ctx, "GET", u.URL()+path, ""); err == nil {
				t.Errorf("%s answered %d while hung", path, resp.StatusCode)
				resp.Body.Close()
			}
			cancel()
		}
		set(t, u, Faults{})
		st := <-done
		if got := st.at[4].Sub(start).Round(time.Millisecond); got != 11*time.Second {
			t.Errorf("fifth token after %v, want 11s", got)
		}
		if got := st.at[5].Sub(start).Round(time.Millisecond); got < 16*time.Second || got > 16100*time.Millisecond {
			t.Errorf("sixth token after %v, want 16s and a step", got)
		}
		if st.err != nil || len(st.events) != 20 {
			t.Errorf("%d events, %v", len(st.events), st.err)
		}
		if late := <-asked; late.err != nil || len(late.events) != 1 {
			t.Errorf("asked during the hang: %d events, %v", len(late.events), late.err)
		}
	})
}

func TestHealthSpeaksForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := serveIn(t, Options{})
		probe := func() int {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			resp, err := u.ask(ctx, "GET", u.URL()+"/health", "")
			if err != nil {
				return 0
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		for _, step := range []struct {
			f    Faults
			want int
			took time.Duration
		}{
			{Faults{}, 200, 0},
			{Faults{Health: HealthFail}, 503, 0},
			{Faults{Health: HealthHang}, 0, time.Second},
			{Faults{Hang: true}, 0, time.Second},
			{Faults{Hang: true, Health: HealthOK}, 200, 0},
			{Faults{HealthDelay: 300 * time.Millisecond}, 200, 300 * time.Millisecond},
			{Faults{HealthDelay: 2 * time.Second}, 0, time.Second},
		} {
			set(t, u, step.f)
			start := time.Now()
			if got := probe(); got != step.want || time.Since(start) != step.took {
				t.Errorf("%+v: status %d after %v, want %d after %v", step.f, got, time.Since(start), step.want, step.took)
			}
		}
		set(t, u, Faults{Hang: true, Health: HealthOK})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if st := u.stream(ctx, chat(1)); st.err == nil {
			t.Error("only health may answer")
		}
		if got := u.turn(1); got.Outcome != Aborted || got.Output != 0 {
			t.Errorf("a client that left a hung backend: %+v", got)
		}
	})
}

func TestFlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := serveIn(t, Options{})
		set(t, u, Faults{Flap: 2 * time.Second})
		<-time.After(500 * time.Millisecond)
		for i := range 8 { // down first, a change every second
			if got, want := u.Status().Up, i%2 == 1; got != want {
				t.Errorf("second %d: up %v, want %v", i, got, want)
			}
			<-time.After(time.Second)
		}
		set(t, u, Faults{})
		<-time.After(time.Minute)
		if !u.Status().Up {
			t.Error("down after the flapping was lifted")
		}
	})
}

func set(t *testing.T, u *user, f Faults) {
	t.Helper()
	if err := u.SetFaults(f); err != nil {
		t.Fatal(err)
	}
	if got := u.Faults(); got != f {
		t.Fatalf("faults %+v, want %+v", got, f)
	}
}
