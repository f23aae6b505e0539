package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/testcluster/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"no URL":        {},
		"negative rate": {URL: "http://x", Rate: -1},
		"endless rate":  {URL: "http://x", Rate: 1e9},
		"no streams":    {URL: "http://x", MaxOpen: -1},
		"no tokens":     {URL: "http://x", Output: -1},
	} {
		if _, err := New(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v, want ErrOptions", name, err)
		}
	}
}

const patience = time.Minute // no wait is longer

// run drives a load until enough holds, and returns what it came to.
func run(t *testing.T, o Options, enough func(*Load, Snapshot) bool) Snapshot {
	t.Helper()
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !enough(l, l.Snapshot()) {
		select {
		case <-ctx.Done():
			t.Errorf("not enough in time: %+v", l.Snapshot())
			<-ended
			return l.Snapshot()
		case <-tick.C:
		}
	}
	cancel()
	<-ended
	s := l.Snapshot()
	for backend, n := range s.At {
		if n != 0 {
			t.Errorf("%d streams are still counted at %q", n, backend)
		}
	}
	if s.Open != 0 {
		t.Errorf("%d streams are still counted as open", s.Open)
	}
	return s
}

func TestAgainstADemoBackend(t *testing.T) {
	b := llm.ForTest(t, llm.Options{ID: "b1", Speed: 50})
	s := run(t, Options{URL: b.URL(), Rate: 100, Output: 40}, func(_ *Load, s Snapshot) bool { return s.Done >= 50 && s.At["b1"] > 0 })
	if len(s.Failed) > 0 || s.Broken > 0 || s.Skipped > 0 {
		t.Errorf("a backend in order: %+v", s)
	}
	if s.Tokens < 50 || s.Rate <= 0 || s.FirstByte.P50 <= 0 || s.FirstByte.P99 < s.FirstByte.P50 || s.AllFirst.P50 <= 0 {
		t.Errorf("figures: %+v", s)
	}
	turns, _ := b.Turns(0)
	done := int64(0)
	for _, turn := range turns {
		if turn.Outcome == llm.Done {
			done++
		}
	}
	if done < s.Done {
		t.Errorf("%d streams are counted as done, the backend knows of %d", s.Done, done)
	}
}

func TestBreaksOnPurposeAreNoFailures(t *testing.T) {
	for _, hurt := range []bool{true, false} {
		b := llm.ForTest(t, llm.Options{ID: "b1", Decode: 20})
		killed, tick, late := false, time.NewTicker(5*time.Millisecond), time.After(patience)
		defer tick.Stop()
		s := run(t, Options{URL: b.URL(), Rate: 100, MaxOpen: 20, Output: 2000}, func(l *Load, s Snapshot) bool {
			if !killed && s.At["b1"] >= 5 {
				killed = true
				kill := func() error {
					for s := l.Snapshot(); s.At["b1"] < 20 || s.Skipped == 0; s = l.Snapshot() { // more come until it is done
						select {
						case <-tick.C:
						case <-late:
							return fmt.Errorf("not enough in time: %+v", s)
						}
					}
					return b.SetFaults(llm.Faults{Refuse: true, CloseConns: true})
				}
				err := error(nil)
				if hurt {
					err = l.Hurt("b1", kill)
				} else {
					err = kill()
				}
				if err != nil {
					t.Error(err)
				}
			}
			return killed && s.At["b1"] == 0
		})
		cut := int64(0)
		for _, f := range s.Failed {
			if f.Kind == string(kindCut) {
				cut = f.Count
			}
		}
		if want := int64(20); hurt && (s.Broken != want || cut != 0) || !hurt && (s.Broken != 0 || cut != want) {
			t.Errorf("hurt %v: %d broken on purpose, %d broken off; all: %+v", hurt, s.Broken, cut, s)
		}
	}
}

func TestFailuresAreCountedByKind(t *testing.T) {
	stub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Starling-Error", "no_backend")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer stub.Close()
	lying := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, event("none of its tokens", ""))
	}))
	defer lying.Close()
	for url, kind := range map[string]string{
		stub.URL:             "status 503 no_backend",
		lying.URL:            "wrong answer",
		"http://127.0.0.1:1": "no connection",
	} {
		s := run(t, Options{URL: url, Rate: 200}, func(_ *Load, s Snapshot) bool { return s.Failures() >= 3 })
		if len(s.Failed) != 1 || s.Failed[0].Kind != kind || s.Failed[0].Last == nil || s.Done > 0 {
			t.Errorf("%s: %+v, want failures of kind %q only", url, s, kind)
		}
	}
}

func event(token, finish string) string {
	reason := "null"
	if finish != "" {
		reason = fmt.Sprintf("%q", finish)
	}
	return fmt.Sprintf("data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"delta\":{\"content\":%q},\"finish_reason\":%s}]}\n\n", token, reason)
}

func TestTranscript(t *testing.T) {
	const seed, done = 7, "data: [DONE]\n\n"
	token := func(k int) string { return llm.Token(seed, k) }
	one, two, last := event(token(0), ""), event(token(1), ""), event(token(2), "length")
	whole := one + two + last + done
	for _, tc := range []struct{ name, text, wrong string }{
		{"right", whole, ""},
		{"nothing", "", "clean end after 0 of 3"},
		{"clean end between events", one + two, "clean end after 2 of 3"},
		{"clean end before [DONE]", one + two + last, "clean end after 3 of 3"},
		{"clean end within an event", whole[:len(one)+10], "in the middle of"},
		{"clean end before the last blank line", whole[:len(whole)-1], "clean end after 3 of 3"},
		{"[DONE] too early", one + two + done, "[DONE] after 2 of 3"},
		{"event after [DONE]", whole + one, "after [DONE]"},
		{"a token lost", one + last + done, "token 1 is"},
		{"a token twice", one + one + two + last + done, "token 1 is"},
		{"two tokens swapped", two + one + last + done, "token 0 is"},
		{"a token too many", one + two + event(token(2), "") + event(token(3), "length") + done, "finish_reason"},
		{"wrong end", one + two + event(token(2), "stop") + done, "finish_reason"},
		{"end too early", event(token(0), "length"), "finish_reason"},
		{"no blank line", strings.Replace(whole, "\n\n", "\n", 1), "not where one may be"},
		{"a comment", ": ping\n\n" + whole, "not where one may be"},
		{"no JSON", "data: {\n\n", "event"},
		{"another object", strings.Replace(whole, "chat.completion.chunk", "chat.completion", 1), "no chunk"},
		{"a line without end", "data: " + strings.Repeat("x", 5000), "a line of over"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			said := transcript{seed: seed, want: 3}
			heard := 0
			err := said.read(strings.NewReader(tc.text), func() { heard++ })
			switch {
			case tc.wrong == "" && (err != nil || heard != 3):
				t.Errorf("%v after %d tokens, want 3 and no error", err, heard)
			case tc.wrong != "" && (!errors.Is(err, errWrong) || !strings.Contains(err.Error(), tc.wrong)):
				t.Errorf("%v, want a wrong answer that says %q", err, tc.wrong)
			}
		})
	}
}

func TestVisibleBreakIsNotWrong(t *testing.T) {
	said := transcript{want: 3}
	err := said.read(io.MultiReader(strings.NewReader(event(llm.Token(0, 0), "")), broken{}), func() {})
	if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errWrong) {
		t.Errorf("%v, want what the connection said", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestHistogram(t *testing.T) {
	var h histogram
	if q := h.quantiles(); q != (Quantiles{}) {
		t.Errorf("of nothing: %v", q)
	}
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	h.add(24 * time.Hour) // beyond the last bucket
	h.add(0)
	near := func(got, want time.Duration) bool {
		return float64(got) > 0.95*float64(want) && float64(got) < 1.06*float64(want)
	}
	if q := h.quantiles(); !near(q.P50, 500*time.Millisecond) || !near(q.P99, 990*time.Millisecond) {
		t.Errorf("%v, want about 500ms and 990ms", q)
	}
}

func TestFiguresForgetAndAverage(t *testing.T) {
	start := time.Unix(1000, 0)
	tally := newTally(start)
	for i := range 100 { // ten tokens per second
		tally.token(start.Add(time.Duration(i) * 100 * time.Millisecond))
	}
	tally.first(start, time.Second)
	if s := tally.snapshot(start.Add(9900 * time.Millisecond)); s.Rate != 10 || s.FirstByte.P50 == 0 {
		t.Errorf("after ten seconds: %+v", s)
	}
	if s := tally.snapshot(start.Add(time.Minute)); s.Rate != 0 || s.FirstByte.P50 != 0 || s.AllFirst.P50 == 0 || s.Tokens != 100 {
		t.Errorf("after a minute of silence: %+v", s)
	}
	if s := newTally(start); s.rate(start.Add(500*time.Millisecond)) != 0 {
		t.Error("a rate of nothing")
	}
}

func TestKindsAreBounded(t *testing.T) {
	tally := newTally(time.Now())
	for i := range 3 * maxKinds {
		tally.begin(1000)
		tally.end(&stream{}, kind(fmt.Sprint(i)), errors.New("x"))
	}
	if s := tally.snapshot(time.Now()); len(s.Failed) != maxKinds+1 || s.Failures() != 3*maxKinds {
		t.Errorf("%d kinds, %d failures; want %d and %d", len(s.Failed), s.Failures(), maxKinds+1, 3*maxKinds)
	}
}
