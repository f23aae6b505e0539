package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRows(t *testing.T) {
	for _, c := range []struct {
		r              row
		limit, verdict string
	}{
		{row{value: 99.5, most: 100}, "≤ 100", "yes"},
		{row{value: 100, most: 100}, "≤ 100", "yes"},
		{row{value: 100.1, most: 100}, "≤ 100", "NO"},
		{row{value: 10_000, least: 10_000}, "≥ 10000", "yes"},
		{row{value: 9_999, least: 10_000}, "≥ 10000", "NO"},
		{row{value: 7}, "", ""},
	} {
		if c.r.limit() != c.limit || c.r.verdict() != c.verdict {
			t.Errorf("%+v: %q, %q", c.r, c.r.limit(), c.r.verdict())
		}
	}
}

func TestMissedLimitsFail(t *testing.T) {
	good, bad := row{what: "good", value: 1, most: 2}, row{what: "bad", value: 3, most: 2}
	for _, c := range []struct {
		rows []row
		want error
	}{{[]row{good}, nil}, {[]row{good, bad}, errMissed}} {
		var out strings.Builder
		if err := report(&out, []string{"load: none"}, c.rows); !errors.Is(err, c.want) {
			t.Errorf("%v", err)
		}
		if s := out.String(); !strings.Contains(s, "load: none") || strings.Contains(s, "NO") != (c.want != nil) {
			t.Errorf("printed:\n%s", s)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, args := range []string{"-only nothing", "-sessions 5", "-lone 1", "-span 1h", "more"} {
		if err := run(strings.Fields(args), new(strings.Builder)); !errors.Is(err, errUsage) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestLimitsOfMemory: what does not depend on the machine is held to its limits here.
func TestLimitsOfMemory(t *testing.T) {
	o := options{sessions: 1_000_000, dir: t.TempDir()}
	if raced {
		o.sessions = 50_000
	}
	all, err := memory(o)
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for _, r := range all {
		if !r.met() || r.value < 24 {
			t.Errorf("%s: %.1f B, the limit is %s", r.what, r.value, r.limit())
		}
	}
	var saved bytes.Buffer
	if _, err := table(keys(o.sessions)).WriteTo(&saved); err != nil || saved.Len() > 30*o.sessions || saved.Len() < 20*o.sessions {
		t.Errorf("a snapshot of %d sessions has %d bytes, %v", o.sessions, saved.Len(), err)
	}
}

// TestAllIsMeasured runs a small form: what depends on the machine may be missed.
func TestAllIsMeasured(t *testing.T) {
	var out strings.Builder
	err := run([]string{"-dir", t.TempDir(), "-sessions", "20000", "-lone", "20", "-span", "200ms"}, &out)
	if err != nil && !errors.Is(err, errMissed) {
		t.Fatal(err)
	}
	for _, want := range []string{"synced: p50", "CPUs", "replica's table", "leader's timers", "node's cache", "snapshot, size", "binding, nothing else, p99", "of 2048 callers", "hit of the cache", "waits for locks"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, out.String())
		}
	}
}
