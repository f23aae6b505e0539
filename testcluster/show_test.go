package testcluster

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster/load"
)

func TestChanges(t *testing.T) {
	at := time.Unix(1000, 0)
	until := at.Add(4 * time.Second)
	active := api.Backend{ID: "b2", State: backend.Active, Reason: "configured", Since: at.Add(-time.Hour)}
	ejected := api.Backend{ID: "b2", State: backend.Ejected, Reason: "5 failures in a row", Since: at, EjectedUntil: &until}
	longer := ejected
	longer.Since, longer.EjectedUntil, longer.Reason = at.Add(time.Second), &until, "the trial stream failed"
	back := api.Backend{ID: "b2", State: backend.Active, Reason: "the trial stream succeeded", Since: at.Add(time.Minute)}
	for _, tc := range []struct {
		name          string
		before, after []api.Backend
		want          []string
	}{
		{"the first look", nil, []api.Backend{active}, nil},
		{"nothing new", []api.Backend{ejected}, []api.Backend{ejected}, nil},
		{"ejected", []api.Backend{active}, []api.Backend{ejected}, []string{"b2 is ejected for 4s (5 failures in a row)"}},
		{"again", []api.Backend{ejected}, []api.Backend{longer}, []string{"b2 stays ejected for 3s (the trial stream failed)"}},
		{"back", []api.Backend{longer}, []api.Backend{back}, []string{"b2 is active again (the trial stream succeeded)"}},
	} {
		if got := changes(tc.before, tc.after); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestFiguresFitATerminal(t *testing.T) {
	seen := []api.Backend{
		{ID: "b1", State: backend.Active, InFlight: api.InFlight{Local: 17}},
		{ID: "b2", State: backend.Ejected},
		{ID: "b3", State: backend.Active, InFlight: api.InFlight{Local: 16}},
	}
	ms := time.Millisecond
	snap := load.Snapshot{Open: 33, Rate: 1234.5, FirstByte: load.Quantiles{P50: 101 * ms, P99: 399 * ms}}
	got := figures(snap, seen)
	if want := "33 streams 1234 tokens/s  ttfb p50 101ms p99 399ms  b1 52% b2 ejected b3 48%"; got != want || len(got) >= 80 {
		t.Errorf("%d columns: %q, want %q", len(got), got, want)
	}
	snap.Failed = []load.Failure{{Kind: "x", Count: 3}}
	if got := figures(snap, nil); !strings.HasPrefix(got, "3 FAILED  ") {
		t.Errorf("%q does not begin with its failures", got)
	}
}

func TestScreen(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		name  string
		width int
		want  string
	}{
		{"terminal", 10, "figures 1\r\x1b[Kfigures 2\r\x1b[K03:04:05  news\nfigures 3"},
		{"narrow terminal", 5, "figu\r\x1b[Kfigu\r\x1b[K03:04:05  news\nfigu"},
		{"no terminal", 0, "03:04:05  figures 1\n03:04:05  news\n03:04:08  figures 3\n"},
	} {
		var out bytes.Buffer
		s := newScreen(&out)
		s.width = func() int { return tc.width }
		s.figures(at, "figures 1")
		s.figures(at.Add(time.Second), "figures 2")
		s.say(at, "news")
		s.figures(at.Add(3*time.Second), "figures 3")
		if got := out.String(); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
