package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos"
)

func TestChaosRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--scenario no-such":  "partition", // it lists those that there are
		"--scenario no/such":  "no such file",
		"--level cloud":       "--level \"cloud\" is none",
		"--nodes 99":          "--nodes 99 is out of range",
		"--beside 0":          "--beside 0 is out of range",
		"--duration -1s":      "is negative",
		"--duration tomorrow": "invalid argument",
		"more":                "unknown command",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(append([]string{"chaos"}, strings.Fields(args)...), &stdout, &stderr); code != exitUsage || !strings.Contains(stderr.String(), want) || stdout.Len() > 0 {
			t.Errorf("chaos %s: exit %d, %q, want %d and %q", args, code, stderr.String(), exitUsage, want)
		}
	}
}

// TestChaos: a short rehearsal in this process says how it goes, judges, writes its
// page and leaves nothing else behind.
func TestChaos(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	page := filepath.Join(t.TempDir(), "page.html")
	var stdout, stderr bytes.Buffer
	if code := run([]string{"chaos", "--scenario", "partition", "--seed", "7", "--level", "inside", "--duration", "2s", "--report", page}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit %d: %s\n%s", code, stderr.String(), stdout.String())
	}
	for _, want := range []string{"partition n", ": over", "P12", "held", "again: starling chaos --scenario partition --seed 7", "report: " + page} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
	if text, err := os.ReadFile(page); err != nil || !bytes.Contains(text, []byte("<svg")) {
		t.Errorf("the page: %v, %.200s", err, text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}

// TestChaosStopped: ctrl-C ends a rehearsal of many scenarios, however many are left,
// and that is no success.
func TestChaosStopped(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	stop(why)
	ended := make(chan []outcome, 1)
	go func() { ended <- chaosOptions{beside: 1}.several(ctx, make([]chaos.Scenario, 5), io.Discard) }()
	select {
	case got := <-ended:
		if len(got) != 5 || !errors.Is(got[4].err, why) {
			t.Errorf("got %+v", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for scenarios that are not begun any more")
	}
}
