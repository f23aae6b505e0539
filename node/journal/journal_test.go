package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-lb/starling/node/api"
)

func follow(t *testing.T, j *Journal, after string, last int) *Reader {
	t.Helper()
	r, err := j.Follow(after, last)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func add(j *Journal, reasons ...string) {
	for _, r := range reasons {
		j.Add(api.Event{Kind: api.StateEvent, Reason: r})
	}
}

// reads is what a reader gets next: reasons, and how many were lost before.
func (r *Reader) reads(t *testing.T) (lost int, reasons []string) {
	t.Helper()
	list, err := r.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Kind == api.LostEvent {
			lost += e.Lost
			continue
		}
		if e.ID == "" || e.Time.IsZero() {
			t.Errorf("event %+v has no id or no time", e)
		}
		reasons = append(reasons, e.Reason)
	}
	return lost, reasons
}

func TestFollow(t *testing.T) {
	j := New()
	add(j, "1", "2", "3")
	all, err := follow(t, j, "", kept).Next(t.Context())
	if err != nil || len(all) != 3 {
		t.Fatalf("all: %v, %v", all, err)
	}
	fresh := follow(t, j, "", 0)
	add(j, "4")
	for _, c := range []struct {
		name string
		r    *Reader
		want string
	}{
		{"from now on", fresh, "4"},
		{"the last two", follow(t, j, "", 2), "3 4"},
		{"behind the second", follow(t, j, all[1].ID, 0), "3 4"},
		{"behind the second, whatever else is asked", follow(t, j, all[1].ID, 4), "3 4"},
	} {
		if lost, got := c.r.reads(t); lost != 0 || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, %d lost; want %s", c.name, got, lost, c.want)
		}
	}
}

// An id of a process that is gone says nothing: all that there is comes, behind a
// word that it is not a sequel.
func TestAnotherProcess(t *testing.T) {
	j := New()
	add(j, "1", "2")
	list, err := follow(t, j, "0badcafe-7", 0).Next(t.Context())
	if err != nil || len(list) != 3 || list[0].Kind != api.LostEvent || list[0].ID != "" || !strings.Contains(list[0].Reason, "another process") || list[2].Reason != "2" {
		t.Errorf("%+v, %v", list, err)
	}
}

// Who does not read loses the oldest, is told how many, and holds up nobody.
func TestSlowReader(t *testing.T) {
	j := New()
	r := follow(t, j, "", 0)
	for i := range kept + 10 {
		add(j, fmt.Sprint(i))
	}
	lost, got := r.reads(t)
	if lost+len(got) != kept+10 || lost < 10 || got[len(got)-1] != fmt.Sprint(kept+9) {
		t.Errorf("%d lost, %d read, the last is %s", lost, len(got), got[len(got)-1])
	}
	add(j, "more")
	if again, got := r.reads(t); again != 0 || !slices.Equal(got, []string{"more"}) {
		t.Errorf("then %d lost, %v", again, got)
	}
	if j.lost != int64(lost) {
		t.Errorf("%d are counted", j.lost)
	}
}

func TestNextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := New()
		r := follow(t, j, "", 0)
		got := make(chan string)
		go func() {
			_, reasons := r.reads(t)
			got <- strings.Join(reasons, " ")
		}()
		synctest.Wait()
		add(j, "now")
		if s := <-got; s != "now" {
			t.Errorf("got %q", s)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if list, err := r.Next(gone); err == nil {
			t.Errorf("got %v", list)
		}
	})
}

func TestFollowRefuses(t *testing.T) {
	j := New()
	for _, id := range []string{"x", "1", j.run + "-", j.run + "-x", j.run + "--1"} {
		if _, err := j.Follow(id, 0); !errors.Is(err, ErrID) {
			t.Errorf("%q: %v", id, err)
		}
	}
	var all []*Reader
	for range maxReaders {
		all = append(all, follow(t, j, "", 0))
	}
	if _, err := j.Follow("", 0); !errors.Is(err, ErrReaders) {
		t.Errorf("one more: %v", err)
	}
	all[0].Close()
	all[0].Close()
	follow(t, j, "", 0)
	if _, err := j.Follow("", 0); !errors.Is(err, ErrReaders) {
		t.Errorf("a reader that is closed twice makes room for two: %v", err)
	}
}

func TestMetrics(t *testing.T) {
	j := New()
	add(j, "1", "2")
	reg := prometheus.NewRegistry()
	reg.MustRegister(j)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "starling_events_total" && m.GetLabel()[0].GetValue() == "state" && m.GetCounter().GetValue() != 2 {
				t.Errorf("%v", m)
			}
		}
	}
	if len(families) != 3 {
		t.Errorf("%d metrics", len(families))
	}
}

// TestPrecede: after an upgrade what was told before is there, under the ids it had, and
// who has read some of it goes on behind that.
func TestPrecede(t *testing.T) {
	before := New()
	add(before, "1", "2", "3")
	all := before.Last(10)
	if few := before.Last(2); len(all) != 3 || len(few) != 2 || few[0].Reason != "2" {
		t.Fatalf("the last are %v, the last two %v", all, few)
	}
	j := New()
	add(j, "4")
	j.Precede(all)
	add(j, "5")
	own := j.Last(2)
	for _, c := range []struct {
		name, after, want string
		last              int
	}{
		{name: "all", last: 10, want: "1 2 3 4 5"},
		{name: "behind one of the process before", after: all[1].ID, want: "3 4 5"},
		{name: "behind its last", after: all[2].ID, want: "4 5"},
		{name: "behind what it told at last, which is not here", after: strings.TrimSuffix(all[2].ID, "3") + "9", want: "4 5"},
		{name: "behind this one's first", after: own[0].ID, want: "5"},
	} {
		if lost, got := follow(t, j, c.after, c.last).reads(t); lost != 0 || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, %d lost; want %s", c.name, got, lost, c.want)
		}
	}
	j.Precede(all) // somebody reads
	third := New()
	third.Precede(j.Last(10))
	add(third, "6")
	if lost, got := follow(t, third, all[0].ID, 0).reads(t); lost != 0 || strings.Join(got, " ") != "2 3 4 5 6" {
		t.Errorf("two upgrades later: %v, %d lost", got, lost)
	}
}

// TestPrecedeWithMore than there is room for: the oldest are gone, and that is said.
func TestPrecedeWithMore(t *testing.T) {
	before := New()
	for i := range kept {
		add(before, fmt.Sprint(i))
	}
	j := New()
	add(j, "own")
	j.Precede(before.Last(kept))
	first := before.Last(kept)[0].ID
	if list, err := follow(t, j, first, 0).Next(t.Context()); err != nil || len(list) != kept+1 || list[0].Kind != api.LostEvent || list[kept].Reason != "own" {
		t.Errorf("%d events, the first %+v, %v", len(list), list[0], err)
	}
}
