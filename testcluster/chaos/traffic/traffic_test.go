package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/testcluster/chaos/history"
	"github.com/starling-lb/starling/testcluster/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run has traffic until enough is on record.
func run(t *testing.T, o Options, enough func(*Traffic) bool) *Traffic {
	t.Helper()
	x, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	defer x.Stop(ctx)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !enough(x) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not enough: %+v", x.Progress())
		}
	}
	return x
}

func entries(servers ...*llm.Server) func() []history.Entry {
	return func() (all []history.Entry) {
		for i, s := range servers {
			all = append(all, history.Entry{Node: fmt.Sprint("n", i+1), URL: s.URL()})
		}
		return all
	}
}

// TestAllKindsAreWhole: every kind of turn comes back whole, and is on record with
// its backend, which has it on record, too.
func TestAllKindsAreWhole(t *testing.T) {
	b := llm.ForTest(t, llm.Options{ID: "b1", Speed: 20})
	kinds := map[string]int{}
	x := run(t, Options{Entries: entries(b), Rate: 150, Tokens: 10, Seed: 1}, func(x *Traffic) bool {
		clear(kinds)
		for _, turn := range x.Turns() {
			if turn.Whole {
				kinds[turn.Kind]++
			}
		}
		return len(kinds) == 4 && x.Progress().Left > 0
	})
	if p := x.Progress(); p.Broken+p.Wrong+p.Unreachable+p.Refused+p.Open > 0 {
		t.Errorf("%+v, want all whole or left", p)
	}
	served := map[string]llm.Turn{}
	turns, _ := b.Turns(0)
	for _, s := range turns {
		served[s.RequestID] = s
	}
	for _, turn := range x.Turns() {
		s, ok := served[turn.ID]
		if turn.Whole && (!ok || turn.Backend != "b1" || s.Session != turn.Session || turn.Node != "n1" || turn.Bytes == 0 || turn.First.IsZero() || turn.Ended.Before(turn.First)) {
			t.Fatalf("%+v\nthe backend has %+v", turn, s)
		}
	}
}

// TestTroubleIsOnRecord: an entry that is down sends clients to the next, and an
// answer that breaks off is broken.
func TestTroubleIsOnRecord(t *testing.T) {
	down, breaking := llm.ForTest(t, llm.Options{ID: "b1"}), llm.ForTest(t, llm.Options{ID: "b2", Speed: 20})
	if err := errors.Join(down.SetFaults(llm.Faults{Refuse: true}), breaking.SetFaults(llm.Faults{BreakAfter: 2})); err != nil {
		t.Fatal(err)
	}
	x := run(t, Options{Entries: entries(down, breaking), Rate: 100, Tokens: 10}, func(x *Traffic) bool {
		p := x.Progress()
		return p.Broken > 5 && p.Unreachable > 5
	})
	tries := map[string]string{}
	for _, turn := range x.Turns() {
		tries[turn.ID] = turn.End
		if turn.End == unreachable && turn.Node != "n1" || turn.End == broken && turn.Node != "n2" {
			t.Fatalf("%+v", turn)
		}
	}
	for id, end := range tries {
		n, _, _ := strings.Cut(id, ".")
		if end == unreachable && strings.HasSuffix(id, ".1") && tries[n+".2"] == unreachable {
			t.Errorf("%s was tried twice at an entry that is down", n)
		}
	}
}

// TestRefusalsSayWhy: a status and its code are on record; tries end.
func TestRefusalsSayWhy(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set(codeHeader, "draining")
		w.WriteHeader(503)
	}))
	defer s.Close()
	x := run(t, Options{Entries: func() []history.Entry { return []history.Entry{{Node: "n1", URL: s.URL}} }, Rate: 50, Retries: 1}, func(x *Traffic) bool { return x.Progress().Refused > 10 })
	for _, turn := range x.Turns() {
		if turn.End != refused || turn.Code != "draining" || turn.Status != 503 || turn.Attempt > 2 {
			t.Fatalf("%+v", turn)
		}
	}
	if x.Scale(3); x.rate() != 75 {
		t.Errorf("%v turns a second, want 75 of each half", x.rate())
	}
}

// TestReads: nodes are asked where sessions live.
func TestReads(t *testing.T) {
	b := llm.ForTest(t, llm.Options{Speed: 20})
	held := false // one question at a time
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "-0") {
			w.WriteHeader(404)
			return
		}
		if held = !held; held {
			_ = json.NewEncoder(w).Encode(api.Session{Held: true}) // which says nothing
			return
		}
		_ = json.NewEncoder(w).Encode(api.Session{Backend: "b1", Epoch: 3})
	}))
	defer admin.Close()
	o := Options{Entries: entries(b), Admins: func() []history.Entry { return []history.Entry{{Node: "n7", URL: admin.URL}} }, Regulars: 2}
	x := run(t, o, func(x *Traffic) bool { return len(x.Reads()) > 10 })
	found := map[history.Read]int{}
	for _, r := range x.Reads() {
		if r.Node != "n7" || r.Ended.Before(r.Began) {
			t.Fatalf("%+v", r)
		}
		found[history.Read{Session: r.Session, Backend: r.Backend, Epoch: r.Epoch}]++
	}
	if len(found) > 2 || found[history.Read{Session: "regular-0-1", Backend: "b1", Epoch: 3}] == 0 {
		t.Errorf("%v", found)
	}
}

// TestTrace: guests come as a trace has it, at the rate that was asked for, and all
// turns have its sizes.
func TestTrace(t *testing.T) {
	rows := []llm.Row{{At: 0, Context: 5, Generated: 3}, {At: time.Second, Context: 6, Generated: 4}, {At: 4 * time.Second, Context: 7, Generated: 5}}
	x, err := New(Options{Entries: entries(), Rate: 20, Trace: rows})
	if err != nil {
		t.Fatal(err)
	}
	dice := rand.New(rand.NewPCG(1, 1))
	a, b, c := x.gap(dice, 0), x.gap(dice, 1), x.gap(dice, 2)
	if b < 3*a-time.Microsecond || b > 3*a+time.Microsecond || c != a || (a+b)/2-seconds(1/(10*guestEnds)) > time.Microsecond {
		t.Errorf("%v, %v, %v; want 1 to 3, the mean a third of a second", a, b, c)
	}
	for i := range 100 {
		if p := x.plan(dice, "s", i, time.Now()); p.kind != websocket && p.prompt != p.want+2 {
			t.Fatalf("%+v is no row of the trace", p)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {Entries: entries(), Rate: -1}, {Entries: entries(), Regulars: 1e6}} {
		if _, err := New(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func event(token string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", token)
}

// TestStreamIsCompared: what is not just the answer that was asked for is wrong, or
// has the connection's own error.
func TestStreamIsCompared(t *testing.T) {
	one, two, done := event(llm.Token(7, 0)), event(llm.Token(7, 1)), "data: [DONE]\n\n"
	for _, c := range []struct{ name, text, want string }{
		{"whole", one + two + done, ""},
		{"a clean end too early", one, "1 of 2"},
		{"no end mark", one + two, "[DONE] seen: false"},
		{"an end mark too early", one + done, "[DONE] after 1"},
		{"a token too many", one + two + two + done, "token 2 of 2"},
		{"swapped", two + one + done, "token 0 of 2"},
		{"half an event", one + two[:9], "clean end"},
		{"behind the end", one + two + done + one, "after 2 of 2"},
		{"no event", "hello\n", "after 0 of 2"},
		{"a long line", "data: " + strings.Repeat("x", 5000), "a line of over"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := said{seed: 7, want: 2}
			err := s.stream(strings.NewReader(c.text), func(int) bool { return true })
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, errWrong) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	s := said{seed: 7, want: 2}
	if err := s.whole(strings.NewReader(`{"choices":[{"message":{"content":"no"}}]}`)); !errors.Is(err, errWrong) {
		t.Errorf("%v for another text", err)
	}
	if err := s.whole(strings.NewReader(fmt.Sprintf(`{"choices":[{"message":{"content":%q}}]}`, llm.Text(7, 2)))); err != nil {
		t.Error(err)
	}
}
