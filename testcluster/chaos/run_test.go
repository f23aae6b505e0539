package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos"
	"github.com/starling-lb/starling/testcluster/chaos/history"
	"github.com/starling-lb/starling/testcluster/chaos/judge"
	"github.com/starling-lb/starling/testcluster/chaos/report"
)

// scenario is a file of this test's own.
func scenario(t *testing.T, text string) chaos.Scenario {
	t.Helper()
	path := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := chaos.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rehearse runs a scenario and judges it; nothing may be broken, and nothing left.
func rehearse(t *testing.T, s chaos.Scenario, level string) *history.Run {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	var told bytes.Buffer
	h, err := chaos.Run(t.Context(), s, chaos.Options{Seed: 5, Level: level, Program: program(), Out: &told, Dir: dir})
	if err != nil {
		t.Fatalf("%v\n%s", err, told.String())
	}
	verdicts := judge.Judge(h)
	if !judge.Held(verdicts) || len(h.Trouble) > 0 {
		if err := report.Text(&told, h, verdicts); err != nil {
			t.Error(err)
		}
		t.Errorf("broken, or trouble:\n%s", told.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
	for _, f := range h.Faults {
		if f.Ended.Before(f.Began) || f.Detail == "" {
			t.Errorf("a fault that is not told whole: %+v", f)
		}
	}
	return h
}

func count(h *history.Run, k history.Kind) (n int) {
	for _, f := range h.Faults {
		if f.Kind == k {
			n++
		}
	}
	return n
}

// shared is how many points there are in logs, meta's or those of sessions' shards, of
// which two nodes said what their replicas come to.
func shared(h *history.Run, meta bool) (n int) {
	type point struct {
		shard       int
		incarnation uint32
		applied     uint64
	}
	who := map[point]map[string]bool{}
	for _, s := range h.States {
		if (s.Shard == 0) != meta {
			continue
		}
		p := point{s.Shard, s.Incarnation, s.Applied}
		if who[p] == nil {
			who[p] = map[string]bool{}
		}
		if who[p][s.Node] = true; len(who[p]) == 2 {
			n++
		}
	}
	return n
}

// TestInside: a small run in this process, with a fault of each sort that there is
// in it: of the network, of a node, of a disk, of a clock, of a backend.
func TestInside(t *testing.T) {
	h := rehearse(t, scenario(t, `
backends: 3
duration: 5s
traffic: {rate: 15, sessions: 10}
steps:
  - {at: 0s, for: 1500ms, fault: partition, target: n1}
  - {at: 500ms, for: 1s, fault: disk, target: n2, how: slow, by: 20ms}
  - {at: 1s, fault: clock, target: n3, by: 1s}
  - {at: 2s, for: 1s, fault: kill, target: n2}
  - {at: 3500ms, for: 1s, fault: backend, target: b1, how: slow, factor: 3}
`), chaos.Inside)
	if len(h.Faults) != 5 || len(h.Turns) < 40 || len(h.Lines) == 0 || len(h.Served) == 0 || len(h.Samples) < 9 || len(h.Leaders) < 5 || len(h.Last) != 3 {
		t.Errorf("the history lacks: %d faults, %d turns, %d lines, %d served, %d samples, %d reigns, %d dumps", len(h.Faults), len(h.Turns), len(h.Lines), len(h.Served), len(h.Samples), len(h.Leaders), len(h.Last))
	}
	if shared(h, false) == 0 || shared(h, true) == 0 || len(h.Votings) == 0 {
		t.Errorf("no entry after which two replicas said what they come to, or nobody said who votes: %d states, %d votings", len(h.States), len(h.Votings))
	}
	broken := 0
	for _, f := range h.Faults {
		if len(f.Breaks) > 0 && f.Kind != history.Kill {
			t.Errorf("%s may break streams of %v", f.Kind, f.Breaks)
		}
	}
	for _, turn := range h.Turns {
		if turn.End == "unreachable" && turn.Node == "n2" {
			broken++
		}
	}
	if broken == 0 {
		t.Error("n2 was down for a second, and nobody noticed")
	}
}

// TestProcesses: nodes in processes of their own, behind relays: cut off, killed,
// stopped and let go on, and handed over to another process, which does as it is told
// and stands still as the one before did.
func TestProcesses(t *testing.T) {
	if runtime.GOOS != "linux" {
		_, err := chaos.Run(t.Context(), scenario(t, "duration: 1s"), chaos.Options{Level: chaos.Processes, Program: program()})
		if !errors.Is(err, chaos.ErrLevel) {
			t.Errorf("got %v, want %v", err, chaos.ErrLevel)
		}
		return
	}
	h := rehearse(t, scenario(t, `
backends: 2
duration: 5s
level: processes
traffic: {rate: 15, sessions: 10}
steps:
  - {at: 0s, for: 1500ms, fault: one-way, target: n1}
  - {at: 500ms, for: 1s, fault: loss, target: n2, loss: 0.2}
  - {at: 2s, for: 500ms, fault: pause, target: n3}
  - {at: 2600ms, fault: hand-over, target: n3}
  - {at: 3s, for: 1s, fault: kill, target: n1}
  - {at: 4100ms, fault: clock, target: n3, by: 100ms}
  - {at: 4200ms, for: 300ms, fault: pause, target: n3}
`), chaos.Processes)
	if count(h, history.Pause) != 2 || count(h, history.Kill) != 1 || len(h.Turns) < 30 {
		t.Errorf("%d faults, %d turns", len(h.Faults), len(h.Turns))
	}
	for _, f := range h.Faults {
		if f.Kind == history.HandOver && !strings.Contains(f.Detail, "is the node after") {
			t.Errorf("no hand-over: %s", f.Detail)
		}
	}
}

// TestEveryScenario: each can be read, and is about something.
func TestEveryScenario(t *testing.T) {
	names := chaos.Names()
	if len(names) < 20 {
		t.Errorf("%d scenarios", len(names))
	}
	for _, name := range names {
		s, err := chaos.Load(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Name != name || s.About == "" || len(s.Steps) == 0 && s.Nemesis == nil {
			t.Errorf("%s: %+v", name, s)
		}
		for _, st := range s.Steps {
			if st.At+st.For > s.Duration {
				t.Errorf("%s: %s at %v for %v goes beyond %v", name, st.Fault, st.At, st.For, s.Duration)
			}
		}
	}
}

func TestBadScenarios(t *testing.T) {
	for text, want := range map[string]string{
		"steps: [{fault: flood}]":                         "no fault",
		"steps: [{fault: disk, how: wet}]":                "write one of slow, stall",
		"steps: [{fault: loss, loss: 20}]":                "from 0 to 1",
		"steps: [{fault: corrupt, share: 20}]":            "from 0 to 1",
		"steps: [{fault: kill, when: always}]":            "when",
		"nodes: 0":                                        "out of range",
		"backends: 99":                                    "out of range",
		"nemesis: {kinds: [wipe]}":                        "comes at random",
		"nemesis: {least: 5s, most: 1s}":                  "in this order",
		"duration: long":                                  "duration",
		"colour: red":                                     "colour",
		"consistency: sometimes":                          "available",
		"steps: [{fault: backend, how: dead, for: soon}]": "for",
	} {
		path := filepath.Join(t.TempDir(), "bad.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := chaos.Load(path); !errors.Is(err, chaos.ErrScenario) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	if _, err := chaos.Load("no-such"); !errors.Is(err, chaos.ErrScenario) || !strings.Contains(err.Error(), "partition") {
		t.Errorf("got %v", err)
	}
}

// TestStopped: a run that is ended from outside leaves nothing behind.
func TestStopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := chaos.Run(ctx, scenario(t, "duration: 1h"), chaos.Options{Level: chaos.Inside, Dir: dir}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}
