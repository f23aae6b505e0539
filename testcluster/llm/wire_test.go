package llm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// idle waits until nothing runs, waits or is connected.
func (u *user) idle() {
	u.t.Helper()
	u.client.CloseIdleConnections()
	eventually(u.t, func() error {
		if s := u.Status(); s.Running+s.Waiting+s.Conns != 0 {
			return fmt.Errorf("%d run, %d wait, %d connections", s.Running, s.Waiting, s.Conns)
		}
		return nil
	})
}

func TestHeadComesBeforeTheFirstToken(t *testing.T) {
	u := serve(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := u.ask(ctx, "POST", u.URL()+"/v1/chat/completions", chat(1), PromptTokensHeader, "100000") // a prefill of 12 s
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		t.Errorf("Content-Type %q", got)
	}
}

// A client that leaves frees its place at once, in every phase.
func TestClientLeaves(t *testing.T) {
	u := serve(t, Options{MaxActive: 1, Prefill: 1000, Decode: 100})
	for i, phase := range []struct {
		name   string
		prompt string
		events int
		tokens bool // some were written
		stream bool
	}{
		{"prefill", "100000", 0, false, true},
		{"decode", "1", 3, true, true},
		{"whole answer", "1", 0, false, false},
	} {
		t.Run(phase.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			body := chat(1000)
			if !phase.stream {
				body = `{"prompt":"x","max_tokens":1000,"messages":[{"content":"x"}]}`
			}
			seen := make(chan error, 1)
			go func() { // leaves when ctx ends
				resp, err := u.ask(ctx, "POST", u.URL()+"/v1/chat/completions", body, PromptTokensHeader, phase.prompt)
				if err == nil {
					defer resp.Body.Close()
					_, err = io.CopyN(io.Discard, resp.Body, int64(phase.events*100))
				}
				seen <- err
				<-ctx.Done()
			}()
			if phase.stream {
				if err := <-seen; err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, func() error {
				if u.Status().Running == 0 {
					return errors.New("not running yet")
				}
				return nil
			})
			waiting, leave := context.WithCancel(t.Context())
			go u.stream(waiting, chat(1000)) // behind it, and leaves as well
			eventually(t, func() error {
				if u.Status().Waiting != 1 {
					return errors.New("nobody waits yet")
				}
				return nil
			})
			leave()
			queued := u.turn(2*i + 1)
			left := time.Now()
			cancel()
			got := u.turn(2*i + 2)
			if queued.Outcome != Aborted || queued.Output != 0 || got.Outcome != Aborted || (got.Output > 0) != phase.tokens && phase.stream {
				t.Errorf("turns %+v, %+v", queued, got)
			}
			if took := got.End.Sub(left); took > time.Second {
				t.Errorf("noticed after %v", took)
			}
			u.idle()
		})
	}
}

// Clients that come and go, faults that come and go: nothing is left, and every
// request is on record once.
func TestChurnLeavesNothing(t *testing.T) {
	u := serve(t, Options{Speed: 50, MaxActive: 4, MaxQueue: 4})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var all sync.WaitGroup
	for worker := range 16 {
		rng := rand.New(rand.NewPCG(seed, uint64(worker)))
		all.Go(func() {
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(40))*time.Millisecond)
				u.stream(ctx, chat(1+rng.IntN(40)), SessionHeader, fmt.Sprint(rng.IntN(5)), RequestIDHeader, fmt.Sprint(worker))
				cancel()
			}
		})
	}
	for _, f := range []Faults{{Hang: true}, {BreakAfter: 10}, {Refuse: true, CloseConns: true}, {Slow: 3}, {}} {
		set(t, u, f)
	}
	all.Wait()
	u.idle()
	if l := u.engine.load(); l.held != 0 || l.sessions > 5 {
		t.Errorf("%d tokens are held and %d sessions, want 0 and at most 5", l.held, l.sessions)
	}
	turns, lost := u.Turns(0)
	if n := u.answers.Load(); lost != 0 || uint64(len(turns)) != n || n == 0 {
		t.Errorf("%d of %d requests are on record", len(turns), n)
	}
}

func TestBreakMidStream(t *testing.T) {
	u := serve(t, Options{Speed: 10})
	set(t, u, Faults{BreakAfter: 5})
	st := u.stream(t.Context(), chat(20), SessionHeader, "s")
	if len(st.events) != 5 || !errors.Is(st.err, syscall.ECONNRESET) {
		t.Fatalf("%d events and %v, want 5 and a reset", len(st.events), st.err)
	}
	if got := u.turn(1); got.Outcome != Broken || got.Output != 5 {
		t.Errorf("turn %+v", got)
	}
	resp, err := u.ask(t.Context(), "POST", u.URL()+"/v1/completions", `{"prompt":"x","max_tokens":5}`)
	if err == nil {
		resp.Body.Close()
		t.Fatalf("a whole answer came, status %d", resp.StatusCode)
	}
	if st := u.stream(t.Context(), chat(4)); st.err != nil || len(st.events) != 4 {
		t.Errorf("a shorter answer: %d events, %v", len(st.events), st.err)
	}
	set(t, u, Faults{})
	if st := u.stream(t.Context(), chat(20)); st.err != nil || len(st.events) != 20 {
		t.Errorf("after the fault: %d events, %v", len(st.events), st.err)
	}
	u.idle()
}

func TestRefuse(t *testing.T) {
	u := serve(t, Options{Decode: 1000})
	addr := u.Addr()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	kept := make(chan stream, 1)
	go func() { kept <- u.stream(ctx, chat(1_000_000/10)) }()
	eventually(t, func() error {
		if u.Status().Running != 1 {
			return errors.New("not running yet")
		}
		return nil
	})
	for round := range 20 {
		set(t, u, Faults{Refuse: true})
		if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			c.Close()
			t.Fatalf("round %d: %v, want refused", round, err)
		}
		if other, err := net.Listen("tcp", addr); err == nil {
			other.Close()
			t.Fatalf("round %d: somebody else got the port", round)
		}
		set(t, u, Faults{})
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("round %d: %v once open again", round, err)
		}
		c.Close()
	}
	if u.Addr() != addr || u.Status().Running != 1 {
		t.Errorf("address %s, %d running; want %s and the stream of before", u.Addr(), u.Status().Running, addr)
	}
	set(t, u, Faults{Refuse: true, CloseConns: true})
	if st := <-kept; !errors.Is(st.err, syscall.ECONNRESET) {
		t.Errorf("the stream ended with %v, want a reset", st.err)
	}
	if got := u.turn(1); got.Outcome != Broken {
		t.Errorf("turn %+v", got)
	}
	u.idle()
}

func TestStop(t *testing.T) {
	start := func(t *testing.T) (*user, chan stream) {
		u := serve(t, Options{Speed: 10})
		done := make(chan stream, 1)
		go func() { done <- u.stream(context.Background(), chat(200)) }()
		eventually(t, func() error {
			if u.Status().Running != 1 {
				return errors.New("not running yet")
			}
			return nil
		})
		return u, done
	}
	after := func(t *testing.T, u *user) {
		if c, err := net.Dial("tcp", u.Addr()); err == nil {
			c.Close()
			t.Error("the port is open after Stop")
		}
		if err := u.SetFaults(Faults{}); !errors.Is(err, ErrNotRunning) {
			t.Errorf("SetFaults: %v, want ErrNotRunning", err)
		}
		if err := u.Start(t.Context()); err == nil {
			t.Error("a stopped server started again")
		}
	}
	t.Run("graceful", func(t *testing.T) {
		u, done := start(t)
		unused, err := net.Dial("tcp", u.Addr()) // must not be waited for
		if err != nil {
			t.Fatal(err)
		}
		defer unused.Close()
		if err := u.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if st := <-done; st.err != nil || len(st.events) != 200 {
			t.Errorf("the stream got %d events, %v", len(st.events), st.err)
		}
		after(t, u)
	})
	t.Run("cut", func(t *testing.T) {
		u, done := start(t)
		now, cancel := context.WithCancel(t.Context())
		graceful := make(chan error, 1)
		go func() { graceful <- u.Stop(t.Context()) }()
		cancel()
		if err := u.Stop(now); err == nil || !strings.Contains(err.Error(), "1 answers") {
			t.Errorf("Stop: %v, want one answer cut", err)
		}
		if err := <-graceful; err == nil {
			t.Error("the Stop that was hurried says nothing")
		}
		if st := <-done; st.err == nil {
			t.Error("the stream was not cut")
		}
		if got := u.turn(1); got.Outcome != Stopped {
			t.Errorf("turn %+v", got)
		}
		after(t, u)
	})
	t.Run("hung", func(t *testing.T) {
		u, done := start(t)
		set(t, u, Faults{Hang: true})
		if err := u.Stop(t.Context()); err == nil {
			t.Error("nothing was cut")
		}
		<-done
	})
	t.Run("never started", func(t *testing.T) {
		s, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetFaults(Faults{}); !errors.Is(err, ErrNotRunning) {
			t.Errorf("SetFaults: %v", err)
		}
		if err := errors.Join(s.Stop(t.Context()), s.Stop(t.Context())); err != nil {
			t.Error(err)
		}
		if err := s.Start(t.Context()); err == nil {
			t.Error("started after Stop")
		}
	})
}

func TestStartUndoesItself(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	other := serve(t, Options{})
	for _, o := range []Options{{Address: taken.Addr().String()}, {Control: taken.Addr().String()}, {Address: other.Addr()}} {
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%v, want address in use", err)
		}
		for _, f := range []*front{s.data, s.control} {
			if up, _ := f.state(); up {
				t.Error("a port stayed open")
			}
		}
	}
}
