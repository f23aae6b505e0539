package backend

import (
	"fmt"
	"testing"
	"time"
)

// told is a pool of one whose engine speaks once a second.
type told struct {
	*Pool
	b   *Backend
	now time.Time
}

func tells(t *testing.T, cap int) *told {
	t.Helper()
	now := time.Unix(1000, 0)
	p, err := NewPool("llm", []Config{{ID: "b", URL: "http://b", Weight: 1, MaxStreams: cap}}, Rules{}, Hooks{}, now)
	if err != nil {
		t.Fatal(err)
	}
	return &told{p, p.Backends()[0], now}
}

// says has the engine say the same n times; the cap after it, with its source.
func (e *told) says(n, running, waiting int) string {
	for range n {
		e.now = e.now.Add(time.Second)
		e.b.SetEngine(running, waiting, 0, e.now)
	}
	t := e.b.Terms()
	return fmt.Sprintf("%d by %s", t.Cap, t.CapSource)
}

func TestEngineCap(t *testing.T) {
	e := tells(t, 0)
	for _, step := range []struct {
		what                string
		n, running, waiting int
		want                string
	}{
		{"nothing waits", 60, 40, 0, "0 by none"},
		{"some wait for the next step, now and then", 4, 40, 3, "0 by none"},
		{"not in a row", 1, 40, 0, "0 by none"},
		{"fewer than a sixteenth wait, always", 60, 64, 3, "0 by none"},
		{"it is full", 5, 32, 4, "32 by engine"},
		{"and idle later", 60, 3, 0, "32 by engine"},
		{"longer contexts: fewer fit", 12, 20, 4, "20 by engine"},
		{"shorter ones: the cap is too low", 1, 22, 0, "27 by engine"},
		{"and too low again", 1, 30, 0, "37 by engine"},
		{"until it is full", 5, 41, 5, "41 by engine"},
		{"it reads a long prompt", 5, 1, 60, "22 by engine"},
		{"and works them off", 1, 40, 0, "50 by engine"},
	} {
		if got := e.says(step.n, step.running, step.waiting); got != step.want {
			t.Errorf("%s: cap %s, want %s", step.what, got, step.want)
		}
	}
	e = tells(t, 0)
	if got := e.says(5, 1, 99); got != "87 by engine" {
		t.Errorf("one runs and 99 wait for a moment: cap %s", got)
	}
	if got := e.says(30, 1, 99); got != "1 by engine" {
		t.Errorf("it runs one at a time: cap %s", got)
	}
	e = tells(t, 7)
	if got := e.says(20, 32, 9); got != "7 by config" {
		t.Errorf("a configured cap became %s", got)
	}
}

// The node sends an eighth more than an engine's cap, and no more than a
// configured one.
func TestRoomBeyondAnEnginesCap(t *testing.T) {
	for cap, want := range map[int]int{1: 2, 8: 9, 64: 72} {
		e := tells(t, 0)
		e.says(10, cap, cap)
		n := 0
		for ; n < 1000; n++ {
			if _, err := e.Pick(e.now, Ask{}); err != nil {
				break
			}
		}
		if n != want {
			t.Errorf("cap %d took %d streams, want %d", cap, n, want)
		}
	}
}
