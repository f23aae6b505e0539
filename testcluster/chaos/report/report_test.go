package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

func at(seconds float64) time.Time {
	return time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// sample is a run of a minute with something of everything, and names that must
// not become marks of the page.
func sample() (*history.Run, []history.Verdict) {
	run := &history.Run{
		Scenario: "mixed", Seed: 7, Level: "processes", Nodes: 3, Backends: 4, Consistency: "available", Command: "starling chaos --scenario mixed --seed 7",
		Began: at(0), Healed: at(50), Ended: at(60),
		Recovered: map[string]time.Duration{"leaders": 2 * time.Second, "members": 9 * time.Second},
		Wanted:    map[string]time.Duration{"leaders": 5 * time.Second, "members": 5 * time.Second, "map": time.Minute},
		Faults: []history.Fault{
			{ID: 1, Kind: history.Kill, Target: []string{"n2"}, Detail: "kill -9", Began: at(10), Ended: at(16), Breaks: []string{"n2"}},
			{ID: 2, Kind: history.Backend, Target: []string{"b1"}, Detail: "hung <b>", Began: at(12), Ended: at(20)},
			{ID: 3, Kind: history.Reset, Target: []string{"n1"}, Began: at(30)},
		},
		Trouble: []string{"one node took 3 s to start"},
	}
	for i := range 600 {
		turn := history.Turn{ID: fmt.Sprint(i), Session: "s", Due: at(float64(i) / 10), Began: at(float64(i) / 10), First: at(float64(i)/10 + 0.02), Ended: at(float64(i)/10 + 0.3), Status: 200, End: "clean", Whole: true, Bytes: 1000}
		line := history.Line{RequestID: turn.ID, At: turn.Began, Backend: "b1", Epoch: 1}
		if i > 200 {
			line.Backend, line.Epoch = "b2", 2
		}
		switch {
		case i%50 == 7:
			turn.End, turn.Whole = "broken", false
		case i%60 == 8:
			turn.End, turn.Whole, turn.First, turn.Status = "refused", false, time.Time{}, 503
		case i%70 == 9:
			turn.End, turn.Whole, turn.First, turn.Status = "unreachable", false, time.Time{}, 0
		}
		run.Turns, run.Lines = append(run.Turns, turn), append(run.Lines, line)
	}
	for s := range 60 {
		for n := range 3 {
			up := n != 1 || s < 10 || s > 16
			run.Samples = append(run.Samples, history.Sample{At: at(float64(s)), Node: fmt.Sprint("n", n+1), Up: up, Led: 4 + n})
		}
	}
	return run, []history.Verdict{
		{Promise: "P1", Words: "agree", Held: true, Numbers: "40 sessions"},
		{Promise: "P3", Words: "one at a time", Numbers: "broken 1 times", Story: []string{"+10.000s fault begins: kill on n2", "+11.000s two at once"}},
	}
}

func TestText(t *testing.T) {
	run, verdicts := sample()
	var b strings.Builder
	if err := Text(&b, run, verdicts); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mixed: broken: P3", "3 faults in 1m", "P1        held    agree", "P3        BROKEN", "+11.000s two at once", "the harness: one node", "again: starling chaos --scenario mixed --seed 7"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := Text(&b, run, verdicts[:1]); err != nil || !strings.Contains(b.String(), "all promises held") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestPage: the page stands alone, its picture is well formed, and nothing that a
// run says becomes a mark of it.
func TestPage(t *testing.T) {
	run, verdicts := sample()
	var b bytes.Buffer
	if err := HTML(&b, Judged{run, verdicts}); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"mixed: broken: P3", "two at once", "hung &lt;b&gt;", "starling chaos --scenario mixed --seed 7", "9.0 s", "never", "kill n2", "nobody let them in", "prefers-color-scheme: dark"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, never := range []string{"<script", "http://", "https://", "url(", "@import", "hung <b>", "NaN", "ZgotmplZ"} {
		if strings.Contains(page, never) {
			t.Errorf("%q is in it", never)
		}
	}
	picture := page[strings.Index(page, "<svg"):strings.Index(page, "</svg>")]
	d := xml.NewDecoder(strings.NewReader(picture + "</svg>"))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestEmptyRun: a run that never began has a page, too.
func TestEmptyRun(t *testing.T) {
	var b bytes.Buffer
	if err := HTML(&b, Judged{Run: &history.Run{Scenario: "none", Began: at(0)}}); err != nil || strings.Contains(b.String(), "NaN") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestPageOfSeveral: an overview leads to each.
func TestPageOfSeveral(t *testing.T) {
	run, verdicts := sample()
	other := *run
	other.Scenario = "drain"
	var b bytes.Buffer
	if err := HTML(&b, Judged{run, verdicts}, Judged{&other, verdicts[:1]}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 of 2 scenarios kept all promises", `href="#drain"`, `id="drain"`, `href="#mixed"`, `id="mixed"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q", want)
		}
	}
}

func TestFigures(t *testing.T) {
	run, _ := sample()
	f := count(run)
	moves := 0.0
	for _, v := range f.moves {
		moves += v
	}
	if len(f.whole) != 61 || f.whole[30] < 7 || f.p50[30] < 0.019 || f.p50[30] > 0.021 || moves != 1 {
		t.Errorf("%d buckets, %v whole, p50 %v, %v moves", len(f.whole), f.whole[30], f.p50[30], moves)
	}
	run.Ended = at(3600)
	if f := count(run); len(f.whole) > mostBuckets+2 || f.bucket != 7*time.Second {
		t.Errorf("%d buckets of %v", len(f.whole), f.bucket)
	}
	if nice(0.3) != 0.5 || nice(17) != 20 || nice(0) != 1 || nice(100) != 100 {
		t.Error(nice(0.3), nice(17), nice(0), nice(100))
	}
}
